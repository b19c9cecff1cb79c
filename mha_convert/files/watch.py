"""What must hold while a source is used: nobody writes to its files, and its checksums are right."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from ..records.source import Checkpoint
from .locations import refuse_changed


@contextmanager
def unchanged(checkpoint: Checkpoint) -> Iterator[None]:
    """Refuse a source that was written to during the block, also where the block failed: that is why, then."""
    try:
        yield
    except Exception:
        refuse_changed(checkpoint.files)
        raise
    refuse_changed(checkpoint.files)


@contextmanager
def checked(checkpoint: Checkpoint) -> Iterator[None]:
    """Compare the source with its checksums in a thread alongside the block; the block ends when both have ended.

    A block that fails on a damaged source fails with what is wrong with the source.
    """
    check = in_background(checkpoint.check)
    try:
        yield
    except Exception:
        check.result()
        raise
    check.result()


def in_background(action: Callable[[], None]) -> "Future[None]":
    """Start it in a thread that nobody waits for at the end of an interrupted command."""
    result: Future[None] = Future()

    def run() -> None:
        try:
            action()
        except BaseException as error:
            result.set_exception(error)
        else:
            result.set_result(None)

    threading.Thread(target=run, daemon=True).start()
    return result
