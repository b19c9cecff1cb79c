"""A target appears complete or not at all: it is written under another name in its folder, then renamed.

A draft is called ``.<target>.<process>-<random>.draft`` and is locked by the process that writes it. A process that is
killed leaves its draft, and its lock is gone with it: the next conversion to the same target removes such drafts.

A target at a URL is written to a local file first, and brought to its store when it is finished.
"""

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import WriteError, reason
from ..files.locations import Location, publish, scratch_file, store_errors
from ..signals import held, note_placed, note_sending

NAME_BYTES = 150  # of the target's name in the draft's; file systems allow 255 in all
ORDINARY = 0o666  # less the umask
OWNERS = 0o600  # what we need while we write
LIMIT, PLACE = "Raise the limit (ulimit -f) or use another folder", "Use another folder"
NEXT_STEPS = {
    errno.EFBIG: LIMIT,
    errno.EROFS: PLACE,
    errno.EACCES: PLACE,
    errno.EPERM: PLACE,
    errno.ENAMETOOLONG: "Use a shorter name",
    errno.EIO: "Check the disk, or use another folder",
}


def refusal(target: Location, error: OSError) -> WriteError:
    """The operating system's refusal, and what to do."""
    step = NEXT_STEPS.get(error.errno or 0, "Free space or use another folder")
    return WriteError(f"{target} cannot be written: {reason(error)}. {step}.")


def check_target(target: Location, *, overwrite: bool) -> None:
    """Refuse what cannot be written, before any work is done."""
    if not isinstance(target, Path):  # a store's folders are parts of names
        with store_errors(target):
            is_folder, exists, is_other = target.is_dir(), target.exists(), False
    else:
        final = resolved(target)
        try:
            mode = final.stat().st_mode if final.exists() else None
        except OSError as error:
            raise refusal(target, error) from error
        exists, is_folder = mode is not None, mode is not None and stat.S_ISDIR(mode)
        is_other = mode is not None and not stat.S_ISREG(mode)
    if is_folder:
        raise WriteError(f"{target} is a folder. Pass the name of a file in it.")
    if is_other:
        raise WriteError(f"{target} is a device, pipe or socket, expected a file or a new name. Use another name.")
    if isinstance(target, Path) and not final.parent.is_dir():
        raise WriteError(f"{target}: there is no folder '{final.parent}'. Create it first.")
    if exists and not overwrite:
        raise WriteError(f"{target} exists already. Use --overwrite (overwrite=True) to replace it, or another name.")


def resolved(target: Path) -> Path:
    """Where the file will be; a link to it stays a link."""
    try:
        return target.resolve()
    except (OSError, RuntimeError) as error:  # links in a circle
        raise WriteError(f"{target} is a link that leads nowhere. Use another name.") from error


@contextmanager
def draft(target: Location, *, overwrite: bool) -> Iterator[Path]:
    """The path to write to; renamed to ``target`` when the block ends well, removed when it does not."""
    check_target(target, overwrite=overwrite)
    if not isinstance(target, Path):
        copy = scratch_file(target.name)
        try:
            yield copy
            note_sending(str(target))
            publish(copy, target)
            note_placed(str(target))
        finally:
            with suppress(OSError):
                copy.unlink()
        return
    final = resolved(target)
    try:
        remove_abandoned(final)
        with new_draft(final) as path:
            yield path
            synchronise(path)
            with held():
                place(path, final, overwrite=overwrite)
                note_placed(str(target))
        synchronise_folder(target, final)
    except OSError as error:
        raise refusal(target, error) from error


@contextmanager
def new_draft(final: Path) -> Iterator[Path]:
    """An empty file in the target's folder, locked; removed at the end if it has not become the target."""
    name = stem(final)
    path = final.with_name(f".{name}.{os.getpid()}-{os.urandom(4).hex()}.draft")
    descriptor = None
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode_of(final, ORDINARY) | OWNERS)
        if not lock(descriptor):  # no such thing as locks here: nobody can tell, so nobody removes it
            os.close(descriptor)
            descriptor = None
        yield path
    finally:
        with suppress(OSError):
            path.unlink()
        if descriptor is not None:
            os.close(descriptor)


def stem(final: Path) -> str:
    """The target's name in its draft's: as much as fits, of what the locale can write."""
    return os.fsencode(final.name)[:NAME_BYTES].decode(sys.getfilesystemencoding(), errors="ignore")


def lock(descriptor: int) -> bool:
    """Lock a file until it is closed, or its process ends however it does; False where that is not to be had."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def remove_abandoned(final: Path) -> None:
    """Remove drafts of this target whose process is gone."""
    name = stem(final)
    ours = re.compile(re.escape(f".{name}.") + r"\d+-[0-9a-f]{8}\.draft")
    with suppress(OSError), os.scandir(final.parent) as entries:
        for entry in entries:
            if ours.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                remove_if_abandoned(Path(entry.path))


def remove_if_abandoned(path: Path) -> None:
    """Remove a draft that nobody has locked. An empty one may be about to be locked, and costs nothing."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR)
        try:
            if os.fstat(descriptor).st_size and lock(descriptor):
                path.unlink()
        finally:
            os.close(descriptor)


def mode_of(final: Path, otherwise: int) -> int:
    """The rights of an existing target, which a new one keeps."""
    try:
        return stat.S_IMODE(final.stat().st_mode) & 0o777
    except OSError:
        return otherwise


def place(path: Path, final: Path, *, overwrite: bool) -> None:
    """Give the draft its name in one step."""
    if overwrite:
        mode = mode_of(final, 0)
        if mode:
            with suppress(OSError):  # some file systems know no rights
                path.chmod(mode)
        path.replace(final)
        return
    try:
        os.link(path, final)  # fails where the name was taken meanwhile; a rename would replace it
    except OSError as error:
        if os.path.lexists(final):
            raise taken(final) from error
        path.replace(final)  # a file system without hard links


def taken(final: Path) -> WriteError:
    """The error for a name that another process took meanwhile."""
    return WriteError(f"{final} was made by another process meanwhile, and exists now. Use another name.")


def synchronise(path: Path) -> None:
    """Wait until the disk has it."""
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def synchronise_folder(target: Path, final: Path) -> None:
    """Wait until the disk has the name, too; some file systems cannot synchronise a folder."""
    try:
        synchronise(final.parent)
    except OSError as error:
        if error.errno == errno.EIO:
            raise WriteError(
                f"{target} was written and is complete, but its folder cannot be synchronised: {reason(error)}. "
                "Check the disk."
            ) from error
