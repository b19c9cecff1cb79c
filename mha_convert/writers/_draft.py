"""A target appears complete or not at all: it is written under another name in its folder, then renamed.

A target behind a URL is written to a local file first, and brought to its store when it is finished.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import WriteError, reason
from ..locations import is_remote, publish, scratch_file, store_errors


def check_target(target: Path, *, overwrite: bool) -> None:
    """Refuse what cannot be written, before any work is done."""
    with store_errors(target):
        is_folder, exists = target.is_dir(), target.exists()
    if is_folder:
        raise WriteError(f"{target}: is a folder. Give the name of a file in it.")
    if not is_remote(target) and not target.parent.is_dir():  # a store's folders are parts of names
        raise WriteError(f"{target}: there is no folder '{target.parent}'. Create it first.")
    if exists and not overwrite:
        raise WriteError(f"{target}: exists already. Give --overwrite (overwrite=True) to replace it, or another name.")


@contextmanager
def draft(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """The path to write to; renamed to ``target`` when the block ends well, removed when it does not."""
    check_target(target, overwrite=overwrite)
    if is_remote(target):
        copy = scratch_file(target.name)
        try:
            yield copy
            publish(copy, target)
        finally:
            with suppress(OSError):
                copy.unlink()
        return
    final = target.resolve()
    path = final.with_name(f".{final.name[:100]}.{os.getpid()}-{os.urandom(4).hex()}.draft")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield path
        commit(path, final, overwrite=overwrite)
    except OSError as error:
        raise WriteError(f"{target}: cannot be written: {reason(error)}. Free space or give another folder.") from error
    finally:
        with suppress(OSError):
            path.unlink()


def commit(path: Path, final: Path, *, overwrite: bool) -> None:
    """Bring the draft to the disk, then give it its name in one step."""
    synchronise(path)
    if overwrite:
        path.replace(final)
    else:
        try:
            os.link(path, final)  # fails where the name was taken meanwhile; a rename would replace it
        except FileExistsError as error:
            raise WriteError(f"{final}: was made by another process meanwhile. Give another name.") from error
        except OSError:  # a file system without hard links
            path.replace(final)
    with suppress(OSError):  # some file systems cannot synchronise a folder
        synchronise(final.parent)


def synchronise(path: Path) -> None:
    """Wait until the disk has it."""
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
