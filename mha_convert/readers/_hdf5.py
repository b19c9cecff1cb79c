"""The only file that touches HDF5.

Keras' datasets are contiguous and unfiltered, and a ``.keras`` zip stores its HDF5 member uncompressed, so an array
is a view into a memory map of the user's file; h5py finds it, and reads whatever is stored otherwise. Links that
lead out of the file are refused before they are followed: opening them would read other files of the machine.
"""

import io
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..datatypes import Array, Role, Variable
from ..errors import ReadError, printable

MAGIC = b"\x89HDF\r\n\x1a\n"
STORED_AS = {"V2": "bfloat16"}  # Keras writes bfloat16 as 2 opaque bytes; no other 2-byte opaque type is known.
READABLE_KINDS = "fiub"
MAX_DEPTH = 64


class FileWindow(io.RawIOBase):
    """A part of a file as a file of its own: the HDF5 image inside an uncompressed zip member."""

    def __init__(self, path: Path, start: int, size: int) -> None:
        self.file, self.start, self.size, self.position = path.open("rb"), start, size, 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move within the window."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.size}[whence]
        self.position = base + offset
        return self.position

    def tell(self) -> int:
        """Position within the window."""
        return self.position

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` from the window; h5py calls this."""
        self.file.seek(self.start + self.position)
        count = self.file.readinto(memoryview(buffer)[: max(0, self.size - self.position)])
        self.position += count
        return count

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Close the underlying file."""
        self.file.close()
        super().close()


@dataclass(frozen=True)
class Hdf5Image:
    """Where an HDF5 file lies: a window of ``path``, or ``content`` held in memory (a compressed zip member)."""

    path: Path
    start: int = 0
    size: int | None = None
    content: bytes | None = None

    @contextmanager
    def open(self) -> Iterator[h5py.File]:
        """The image as an open ``h5py.File``; damage becomes ``ReadError``."""
        try:
            with self.stream() as stream, h5py.File(stream, "r") as file:
                yield file
        except ReadError:
            raise
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
            fact = printable(str(error) or type(error).__name__)
            raise ReadError(
                f"{self.path}: the HDF5 data cannot be read: {fact}. "
                "The file is damaged or incomplete; copy or download it again."
            ) from error

    def stream(self) -> io.RawIOBase | io.BytesIO:
        """The bytes of the image, seekable."""
        if self.content is not None:
            return io.BytesIO(self.content)
        return FileWindow(self.path, self.start, self.length)

    @property
    def length(self) -> int:
        """Bytes in the image."""
        if self.content is not None:
            return len(self.content)
        return self.path.stat().st_size - self.start if self.size is None else self.size

    @cached_property
    def bytes(self) -> Array:
        """The whole image as a read-only array of bytes, mapped and not loaded."""
        if self.content is not None:
            return np.frombuffer(self.content, np.uint8)
        return np.memmap(self.path, np.uint8, "r", self.start, (self.length,))

    def variable(self, dataset: h5py.Dataset, role: Role) -> Variable:
        """Describe one dataset. External and virtual storage is refused: it is data of other files."""
        path = dataset.name.lstrip("/")
        creation = dataset.id.get_create_plist()
        if creation.get_layout() == h5py.h5d.VIRTUAL or creation.get_external_count():
            raise ReadError(
                f"{self.path}: dataset '{printable(path)}' keeps its numbers in another file. "
                "Keras never writes that; such a file is not read."
            )
        stored = dataset.dtype
        dtype = STORED_AS.get(stored.str.lstrip("|"), stored.name)
        offset = dataset.id.get_offset()
        if offset is not None and creation.get_nfilters() == 0 and offset + dataset.nbytes <= self.length:

            def read() -> Array:
                return as_native(np.ndarray(dataset_shape, stored, self.bytes, offset), dtype)
        else:
            if math.prod(dataset.shape) and dataset.id.get_storage_size() == 0:
                raise ReadError(
                    f"{self.path}: dataset '{printable(path)}' has a shape {dataset.shape} but no data. "
                    "The file was not written to its end; save the model again."
                )

            def read() -> Array:
                with self.open() as file:
                    return as_native(file[path][()], dtype)

        dataset_shape = tuple(int(size) for size in dataset.shape)
        return Variable(path=path, shape=dataset_shape, dtype=dtype, role=role, read=read)


def as_native(array: Array, dtype: str) -> Array:
    """The array with this machine's byte order, and bfloat16 as a number type."""
    if dtype == "bfloat16":
        import ml_dtypes  # only where bfloat16 occurs: it costs start-up time

        return array.view(ml_dtypes.bfloat16)
    if array.dtype.kind not in READABLE_KINDS:
        raise ReadError(f"An array of type {array.dtype} holds no numbers. Convert other layers with --layer.")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def members(group: h5py.Group, source: Path, depth: int = 0) -> Iterator[tuple[str, h5py.Group | h5py.Dataset]]:
    """Name and object of everything directly in ``group``; links that are not plain are refused, unfollowed."""
    if depth > MAX_DEPTH:
        raise ReadError(f"{source}: groups are nested more than {MAX_DEPTH} deep. Keras never writes that.")
    for name in group:
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            place = f"{group.name.rstrip('/')}/{name}"
            raise ReadError(
                f"{source}: '{printable(place)}' is a link to another place or file. "
                "Keras never writes links; such a file is not read."
            )
        yield name, group[name]


def attribute(owner: h5py.Group, name: str) -> Any:
    """The attribute as ``str``, list of ``str``, or number; None where there is none.

    Fixed-length bytes (h5py 2), variable-length text (h5py 3) and lists that Keras split into ``name0``, ``name1``,
    … (64 kB limit of HDF5) all come out alike.
    """
    if name not in owner.attrs:
        if f"{name}0" not in owner.attrs:
            return None
        parts: list[str] = []
        while f"{name}{len(parts)}" in owner.attrs:
            parts.append(f"{name}{len(parts)}")
        return [text for part in parts for text in attribute(owner, part)]
    kind = h5py.h5a.open(owner.id, name.encode()).get_type().get_class()
    if kind not in (h5py.h5t.STRING, h5py.h5t.INTEGER, h5py.h5t.FLOAT):
        raise ReadError(f"Attribute '{name}' of '{printable(owner.name)}' has no type that Keras writes.")
    return as_text(owner.attrs[name])


def as_text(value: Any) -> Any:
    """Bytes to ``str``, arrays to lists, element by element."""
    if isinstance(value, np.ndarray):
        return [as_text(item) for item in value.tolist()]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
