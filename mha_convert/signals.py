"""Ctrl-C and the other signals that end a command: one exception, one line, and the exit code that shells expect.

Used by the command alone: a program that imports the package keeps its own handlers. Little is imported here, as a
signal that comes before ``install`` is Python's, which prints a traceback.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
EXIT_CODE = 128  # and the signal's number
AGAIN = 0.05  # seconds


class Interrupted(BaseException):
    """The command was asked to end. No ``except`` for errors, nor typer's for ``KeyboardInterrupt``, takes it."""


class State:
    """The signal that came, whether it must wait, and the files that have got their names."""

    def __init__(self) -> None:
        self.number = 0
        self.holding = 0
        self.placed: list[str] = []
        self.sending = ""
        self.instead: Callable[[], str] | None = None


_state = State()


def install() -> None:
    """From here on signals raise ``Interrupted``; one that is ignored (``nohup``, a job in the background) stays so."""
    for name in NAMES:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    sys.unraisablehook = unraisable


def interrupt(number: int, frame: "FrameType | None") -> None:
    """The first signal ends the command; those that follow do not disturb the cleaning up."""
    if _state.number:
        return
    _state.number = number
    if not _state.holding:
        raise Interrupted


def ignore() -> None:
    """All is done. Python restores handlers of its own while it ends, and a late signal would change the exit code."""
    for name in NAMES:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def unraisable(lost: "Any") -> None:
    """What is raised in a finaliser is lost, and printed; an interruption is raised again a moment later instead."""
    if not issubclass(lost.exc_type, Interrupted):
        sys.__unraisablehook__(lost)
        return
    number, _state.number = _state.number, 0
    again = threading.Timer(AGAIN, send, [number])
    again.daemon = True
    again.start()


def send(number: int) -> None:
    """Send the signal to the main thread, which may wait for something."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        signal.raise_signal(number)


@contextmanager
def held() -> Iterator[None]:
    """A signal that comes in the block is raised at its end."""
    _state.holding += 1
    try:
        yield
    finally:
        _state.holding -= 1
    if _state.number and not _state.holding and threading.current_thread() is threading.main_thread():
        raise Interrupted


def note_placed(name: str) -> None:
    """Remember for the last line that a file has got its name."""
    _state.placed.append(name)


def note_sending(name: str) -> None:
    """Remember a file that is brought to a store: what the store has of it, nobody knows until it is compared."""
    _state.sending = name


@contextmanager
def interruptible() -> Iterator[None]:
    """Run the command; whatever an interruption became on its way, it ends in one line and the signal's exit code."""
    try:
        install()
        yield
    except BaseException as error:
        if not _state.number or (isinstance(error, SystemExit) and not error.code):
            raise
        from .errors import printable

        sys.stderr.write(f"{printable(told())}\n")  # cli, which prints all else, may not be imported yet
        sys.exit(EXIT_CODE + _state.number)
    finally:
        ignore()


def note_instead(told: "Callable[[], str]") -> None:
    """Let a command that writes many files say itself what an interruption leaves."""
    _state.instead = told


def told() -> str:
    """What an interrupted command has written."""
    if _state.instead is not None:
        return f"Interrupted: {_state.instead()}"
    if _state.placed:
        return f"Interrupted: {', '.join(_state.placed)} was written and is complete."
    if _state.sending:
        return f"Interrupted: {_state.sending} was being sent, and the store may have it. Convert again."
    return "Interrupted: nothing was written; an existing target is as it was."
