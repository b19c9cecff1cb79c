"""A folder appears complete or not at all: it is written under another name beside its place, then renamed.

A folder is replaced only where it holds nothing but what an earlier conversion wrote.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import WriteError, listed
from ..files.locations import StrPath, locate
from ..signals import held, note_placed
from .drafts import refusal, synchronise

FILES = frozenset(("model.py", "model.safetensors", "report.json", "README.md"))
OF_PYTHON = frozenset(("__pycache__",))


def check_folder(folder: StrPath, *, overwrite: bool) -> Path:
    """Refuse what cannot be written, before any work is done.

    Raises:
        WriteError: the place is a URL, a file, or a folder that may not be replaced.
    """
    place = locate(folder)
    if not isinstance(place, Path):
        raise WriteError(f"{folder} is a URL, expected a folder on a disk. Write it here first.")
    if os.path.lexists(place) and not place.is_dir():
        raise WriteError(f"{place} is a file, expected a folder or a new name. Use another name.")
    if not place.parent.is_dir():
        raise WriteError(f"{place}: there is no folder '{place.parent}'. Create it first.")
    held_there = sorted(item.name for item in place.iterdir()) if place.is_dir() else []
    others = [name for name in held_there if name not in FILES | OF_PYTHON]
    if others:
        raise WriteError(
            f"{place} holds {listed(others, 3)}, which mha-convert did not write. Use another name, or an empty folder."
        )
    if held_there and not overwrite:
        raise WriteError(f"{place} exists already. Use --overwrite (overwrite=True) to replace it, or another name.")
    return place


@contextmanager
def draft_folder(folder: StrPath, *, overwrite: bool) -> Iterator[Path]:
    """The folder to write to; renamed to its name when the block ends well, removed when it does not.

    Raises:
        WriteError: the disk refuses, or somebody made the folder meanwhile.
    """
    place = check_folder(folder, overwrite=overwrite)
    final = place.resolve()
    draft = final.with_name(f".{final.name}.{os.getpid()}-{os.urandom(4).hex()}.draft")
    try:
        draft.mkdir()
        try:
            yield draft
            for file in sorted(draft.iterdir()):
                if file.is_file():
                    synchronise(file)
            with held():
                put(draft, final, overwrite=overwrite)
                note_placed(str(folder))
        finally:
            with suppress(OSError):
                shutil.rmtree(draft)
    except OSError as error:
        raise refusal(place, error) from error


def put(draft: Path, final: Path, *, overwrite: bool) -> None:
    """Give the draft its name; an older folder is moved away first, and is back where that fails."""
    if not final.is_dir():
        draft.rename(final)
        return
    check_folder(final, overwrite=overwrite)
    old = final.with_name(f"{draft.name}.old")
    final.rename(old)
    try:
        draft.rename(final)
    except OSError:
        old.rename(final)
        raise
    shutil.rmtree(old)
