"""How is this file read? A format is one module with ``accepts(head, path)`` and ``read(path)``."""

import os
import stat
from pathlib import Path
from typing import Protocol

from ..datatypes import Checkpoint
from ..errors import ReadError, reason
from . import keras_folder, keras_zip, legacy_hdf5, sharded, weights_hdf5
from .impostors import recognise


class Reader(Protocol):
    """What a reader module offers."""

    def accepts(self, head: bytes, path: Path) -> bool:
        """Whether the content is of this format."""

    def read(self, path: Path) -> Checkpoint:
        """Describe the model."""


READERS: tuple[Reader, ...] = (keras_zip, keras_folder, legacy_hdf5, weights_hdf5, sharded)
HEAD_SIZE = 512


def read(path: str | os.PathLike[str]) -> Checkpoint:
    """Describe a saved Keras model without loading it: no array is read, nothing in the file is run.

    What the file is, is decided by its content and never by its name.

    Args:
        path: a ``.keras``, ``.h5``/``.hdf5`` or ``.weights.h5`` file of any Keras since 2.4; an unzipped ``.keras``
            folder; the ``.weights.json`` of sharded weights, or the folder with it.

    Raises:
        ReadError: the file is missing, damaged, or something else; the message says what it really is.
    """
    source = Path(path)
    head = first_bytes(source)
    for reader in READERS:
        if reader.accepts(head, source):
            return reader.read(source)
    impostor = recognise(head, source)
    raise ReadError(f"{source}: this is {impostor.what}, expected a saved Keras model. {impostor.next_step}")


def first_bytes(source: Path) -> bytes:
    """The beginning of the file, none of a folder; what is no regular file is refused, unopened."""
    try:
        mode = source.stat().st_mode
        if stat.S_ISDIR(mode):
            return b""
        if not stat.S_ISREG(mode):
            raise ReadError(f"{source}: this is a device, pipe or socket, expected a file. Give a file on a disk.")
        with source.open("rb") as file:
            return file.read(HEAD_SIZE)
    except OSError as error:
        raise ReadError(f"{source}: cannot be opened: {reason(error)}. Check the path and its permissions.") from error
    except ValueError as error:  # a NUL in the path
        raise ReadError(f"{source!r}: is not a path ({error}). Check the path.") from error
