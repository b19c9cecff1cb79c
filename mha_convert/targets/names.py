"""Names of targets: what one is called by default, and which names none may have."""

from collections.abc import Sequence
from pathlib import Path

from ..errors import WriteError
from ..files.locations import (
    STANDARD_INPUT,
    Location,
    StrPath,
    is_one_of,
    is_remote,
    is_url,
    name_of,
    refuse_object,
    state_of,
)
from ..records.source import Checkpoint


def default_target(source: StrPath, suffixes: Sequence[str]) -> Path:
    """``<source's name>.safetensors`` in the current folder; ``suffixes`` are those of sources."""
    name = name_of(source)
    if not name or str(source) == STANDARD_INPUT:
        raise WriteError(f"{source} has no name to call the target after. Use TARGET.")
    return Path(f"{without_suffix(name, suffixes)}.safetensors")


def without_suffix(name: str, suffixes: Sequence[str]) -> str:
    """A file's name without the longest of the suffixes that it has; other dots are part of the name."""
    low = name.lower()
    suffix = max((end for end in suffixes if low.endswith(end) and low != end), key=len, default="")
    return name[: len(name) - len(suffix)]


def refuse_source_as_target(source: StrPath, target: Location) -> None:
    """The source is never written to."""
    place = Path(source) if not is_url(source) else None
    is_same = (
        str(target) == str(source)
        if place is None or not isinstance(target, Path)
        else target.exists() and place.exists() and target.samefile(place)
    )
    if is_same:
        raise WriteError(f"{target} is the source itself. Use another name.")


def refuse_part_as_target(target: Location, checkpoint: Checkpoint, like: StrPath | None) -> None:
    """No file that was read is written to: shards, a folder's files, ``config``; nor ``like``."""
    if is_remote(target):
        return
    if is_one_of(target, checkpoint.files):
        raise WriteError(f"{target} is the source itself, or part of it. Use another name.")
    if like is not None and not is_url(like) and is_one_of(target, [state_of(Path(like))]):
        raise WriteError(f"{target} is the model of --like (like=). Use another name.")


def refuse_as_module(module: StrPath, source: StrPath, target: Location) -> None:
    """The source of modules has a name that Python can import, and no other file's.

    Raises:
        WriteError: it has not.
    """
    refuse_object(module)
    if Path(module).suffix != ".py" or not Path(module).stem.isidentifier():
        raise WriteError(f"{module} is not a name that Python can import. Name it like attention.py.")
    refuse_source_as_target(source, Path(module))
    if isinstance(target, Path) and Path(module).resolve() == target.resolve():
        raise WriteError(f"{target} is named as the target and as the module's source. Use two names.")
