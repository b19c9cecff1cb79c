"""How are tensors written? A writer is one module with ``SUFFIX``, ``write`` and ``open_target``."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Protocol

from ..datatypes import Tensor
from ..errors import ReadError, WriteError, printable, reason
from ..locations import local_copy, locate, name_of, open_binary
from . import safetensors_file, torch_file
from ._draft import check_target, draft

if TYPE_CHECKING:
    import torch

__all__ = ["SUFFIXES", "WRITERS", "StoredTarget", "check_target", "draft", "open_target", "write", "writer_for"]


class Writer(Protocol):
    """What a writer module offers."""

    SUFFIX: str

    def accepts(self, head: bytes, path: Path) -> bool:
        """Whether a file's content is of this form."""

    def write(self, path: Path, tensors: Sequence[Tensor], description: str) -> None:
        """Write the tensors and what the target says of itself."""

    def open_target(self, path: Path) -> "StoredTarget":
        """Read the target back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTarget:
    """A written target: its own description, the shapes and dtypes in it, and ``read(key)`` for each tensor."""

    path: Path
    description: str | None
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    read: Callable[[str], "torch.Tensor"]


WRITERS: tuple[Writer, ...] = (safetensors_file, torch_file)
HEAD_SIZE = 16
SUFFIXES = tuple(writer.SUFFIX for writer in WRITERS)


def writer_for(target: str | os.PathLike[str]) -> Writer:
    """The writer of a target's suffix.

    Raises:
        WriteError: no writer has this suffix.
    """
    suffix = PurePath(name_of(target)).suffix.lower()
    found = next((writer for writer in WRITERS if suffix == writer.SUFFIX), None)
    if found is None:
        raise WriteError(
            f"{target}: suffix '{printable(suffix)}' is unknown. "
            f"Name the target {' or '.join(f'*{known}' for known in SUFFIXES)}."
        )
    return found


def write(
    path: str | os.PathLike[str], tensors: Sequence[Tensor], description: str = "", *, overwrite: bool = False
) -> None:
    """Write tensors to ``path`` without verification; the file appears when it is complete.

    Args:
        path: ends in ``.safetensors`` or ``.pt``; a URL is written to its store.
        tensors: from ``convert``.
        description: what the target says of itself, from ``describe_plan``; ``load_modules`` needs it.
        overwrite: whether an existing file is replaced.

    Raises:
        WriteError: unknown suffix, existing target, or the disk refuses.
    """
    writer = writer_for(path)
    with draft(locate(path), overwrite=overwrite) as drafted:
        writer.write(drafted, tensors, description)


def open_target(path: str | os.PathLike[str]) -> StoredTarget:
    """A written ``.safetensors`` or ``.pt`` file, described; tensors are read one at a time.

    Which of the two it is, is decided by its content.

    Args:
        path: the file; one behind a URL is copied here first.

    Raises:
        ReadError: missing, damaged, or of another form.
    """
    source = local_copy(locate(path))
    try:
        with open_binary(source) as file:
            head = file.read(HEAD_SIZE)
    except OSError as error:
        raise ReadError(f"{source}: cannot be opened: {reason(error)}. Check the path.") from error
    for writer in WRITERS:
        if writer.accepts(head, source):
            return writer.open_target(source)
    raise ReadError(f"{source}: is of no form that mha-convert writes ({', '.join(SUFFIXES)}). Convert again.")
