"""How are tensors written? A writer is one module with ``SUFFIX``, ``write`` and ``open_target``."""

import os
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Protocol

from ..errors import ReadError, WriteError, reason
from ..files.locations import MODEL, is_folder, local_copy, locate, name_of, open_binary, refuse_object
from ..records.plan import TargetTensor
from . import safetensors_file, torch_file
from .drafts import check_target, draft
from .stored import Target
from .user_model import UserModel, read_model

__all__ = [
    "SUFFIXES",
    "WRITERS",
    "Target",
    "UserModel",
    "check_target",
    "draft",
    "open_model",
    "open_target",
    "write",
    "writer_for",
]


class Writer(Protocol):
    """What a writer module offers."""

    SUFFIX: str

    def accepts(self, head: bytes, path: Path) -> bool:
        """Whether a file's content is of this form."""

    def write(self, path: Path, tensors: Sequence[TargetTensor], description: str) -> None:
        """Write the tensors and what the target says of itself."""

    def open_target(self, path: Path) -> Target:
        """Read the target back."""


WRITERS: tuple[Writer, ...] = (safetensors_file, torch_file)
HEAD_SIZE = 16
SUFFIXES = tuple(writer.SUFFIX for writer in WRITERS)


def writer_for(target: str | os.PathLike[str]) -> Writer:
    """The writer of a target's suffix.

    Raises:
        WriteError: no writer has this suffix.
    """
    refuse_object(target)
    suffix = PurePath(name_of(target)).suffix.lower()
    found = next((writer for writer in WRITERS if suffix == writer.SUFFIX), None)
    if found is None:
        raise WriteError(
            f"{target}: suffix '{suffix}' is unknown. Name the target {' or '.join(f'*{known}' for known in SUFFIXES)}."
        )
    return found


def write(
    path: str | os.PathLike[str], tensors: Sequence[TargetTensor], description: str = "", *, overwrite: bool = False
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


def open_target(path: str | os.PathLike[str]) -> Target:
    """A written ``.safetensors`` or ``.pt`` file, described; tensors are read one at a time.

    Which of the two it is, is decided by its content.

    Args:
        path: the file; one at a URL is copied here first.

    Raises:
        ReadError: missing, damaged, or of another form.
    """
    source, head = opened(path)
    for writer in WRITERS:
        if writer.accepts(head, source):
            return writer.open_target(source)
    raise ReadError(f"{source} is not in a form that mha-convert writes ({', '.join(SUFFIXES)}). Convert again.")


def open_model(path: str | os.PathLike[str]) -> UserModel:
    """The tensors of a PyTorch model of the user's, described: a ``state_dict``, also in a trainer's checkpoint.

    Args:
        path: ``.safetensors``, or a file of ``torch.save``; one at a URL is copied here first.

    Raises:
        ReadError: missing, damaged, or something else; the message says what, and how to save a ``state_dict``.
    """
    refuse_object(path, MODEL)
    return read_model(*opened(path))


def opened(path: str | os.PathLike[str]) -> tuple[Path, bytes]:
    """The file, here on a disk, and how it begins."""
    source = local_copy(locate(path))
    try:
        if is_folder(source):
            raise ReadError(f"{source} is a folder, expected a file. Pass a file on a disk.")
        with open_binary(source) as file:
            return source, file.read(HEAD_SIZE)
    except OSError as error:
        raise ReadError(f"{source} cannot be opened: {reason(error)}. Check the path.") from error
    except ValueError as error:  # a NUL in the path
        raise ReadError(f"{source} is not a path ({error}). Check the path.") from error
