"""Standard streams that are closed, or whose reader goes away; used by the command alone."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

BROKEN_PIPE = 128 + 13  # what a shell says of a program that SIGPIPE ended


def opened() -> None:
    """Refuse to work for a closed standard output; a closed standard input or error is as good as an empty one.

    Files that are opened later must not get the numbers of closed streams: what is printed would be written into them.
    """
    closed = {number for number in (0, 1, 2) if is_closed(number)}
    for _ in closed:
        os.open(os.devnull, os.O_RDWR)  # takes the smallest free number
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if 1 in closed:
        sys.stderr.write("error: Standard output is closed. Redirect it: > FILE, or > /dev/null.\n")
        sys.exit(1)


def is_closed(number: int) -> bool:
    """Whether a file descriptor is closed."""
    try:
        os.fstat(number)
    except OSError as error:
        return error.errno == errno.EBADF
    return False


@contextmanager
def until_closed() -> Iterator[None]:
    """Run the command, and end silently where the reader of its output went away (``| head``)."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    except BrokenPipeError:
        end()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # typer makes its own exit of it
            end()
        raise


def end() -> NoReturn:
    """Exit; what Python flushes at its end goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    sys.exit(BROKEN_PIPE)
