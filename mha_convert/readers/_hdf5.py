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
from itertools import count, takewhile
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np

from ..datatypes import Array, Role, Variable
from ..errors import ReadError, printable
from ..locations import fetch, is_remote, open_binary, size_of
from ._deflated import Deflated

MAGIC = b"\x89HDF\r\n\x1a\n"
STORED_AS = {"V2": "bfloat16"}  # Keras writes bfloat16 as 2 opaque bytes; no other 2-byte opaque type is known.
READABLE_KINDS = "fiub"
MAX_DEPTH = 64


class FileWindow(io.RawIOBase):
    """A part of a file as a file of its own: the HDF5 image inside a zip member; or ``content``, where it is given."""

    def __init__(self, file: IO[bytes] | None, start: int, size: int, content: "bytes | Deflated" = b"") -> None:
        self.file, self.start, self.size, self.content, self.position = file, start, size, content, 0

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
        part = memoryview(buffer)[: max(0, self.size - self.position)]
        if self.file is None:
            content = self.content[self.position : self.position + len(part)]
        else:
            self.file.seek(self.start + self.position)
            content = self.file.read(len(part))
        part[: len(content)] = content
        self.position += len(content)
        return len(content)

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Close the underlying file."""
        if self.file is not None:
            self.file.close()
        super().close()


@dataclass(frozen=True)
class Hdf5Image:
    """Where an HDF5 file lies: a window of ``path``, or the ``content`` of a compressed zip member."""

    path: Path
    start: int = 0
    size: int | None = None
    content: bytes | Deflated | None = None

    @contextmanager
    def open(self) -> Iterator["Hdf5Group"]:
        """The image's root group, open; damage becomes ``ReadError``."""
        try:
            with self.stream() as stream, h5py.File(stream, "r") as file:
                yield Hdf5Group(self, file)
        except ReadError:
            raise
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
            fact = printable(str(error) or type(error).__name__)
            raise ReadError(
                f"{self.path}: the HDF5 data cannot be read: {fact}. "
                "The file is damaged or incomplete; copy or download it again."
            ) from error

    def stream(self) -> FileWindow:
        """The bytes of the image, seekable; a window beyond the file's end is refused."""
        if self.content is not None:
            return FileWindow(None, 0, self.length, self.content)
        size = size_of(self.path)
        if self.start + self.length > size:
            raise ReadError(
                f"{self.path}: its weights would end at byte {self.start + self.length}, but the file has {size}. "
                "The file is damaged; copy or download it again."
            )
        return FileWindow(open_binary(self.path), self.start, self.length)

    @property
    def length(self) -> int:
        """Bytes in the image."""
        if self.content is not None:
            return len(self.content)
        return size_of(self.path) - self.start if self.size is None else self.size

    def part(self, offset: int, size: int) -> Array:
        """``size`` bytes from ``offset`` on, read-only: a view where the image is local, a copy from a store."""
        if self.content is not None:
            return np.frombuffer(self.content[offset : offset + size], np.uint8)
        if is_remote(self.path):
            return fetch(self.path, self.start + offset, size)
        return self.mapped[offset : offset + size]

    @cached_property
    def mapped(self) -> Array:
        """The whole image as bytes, mapped and not loaded."""
        return fetch(self.path, self.start, self.length)


@dataclass(frozen=True)
class Hdf5Group:
    """An open group, as much of it as readers need; nothing outside the file is reached through it."""

    image: Hdf5Image
    group: h5py.Group

    @property
    def place(self) -> str:
        """File and group, for messages."""
        return f"{self.image.path}: '{printable(self.group.name)}'"

    def holds(self, name: str) -> bool:
        """Whether ``name`` is in this group itself, and not a link to elsewhere."""
        links = self.group.id.links
        encoded = name.encode("utf-8", "surrogateescape")
        return bool(links.exists(encoded) and links.get_info(encoded).type == h5py.h5l.TYPE_HARD)

    def __getitem__(self, name: str) -> "Hdf5Group | Hdf5Array":
        """What is called ``name`` directly in this group; a link to elsewhere is refused, unfollowed."""
        if not self.holds(name):
            raise ReadError(
                f"{self.place}: its '{printable(name)}' is a link to another place or file. "
                "Keras never writes links; such a file is not read."
            )
        item = self.group[name]
        return Hdf5Array(self.image, item) if isinstance(item, h5py.Dataset) else Hdf5Group(self.image, item)

    def follow(self, path: str) -> "Hdf5Group | Hdf5Array":
        """What is at ``path``, step by step."""
        item: Hdf5Group | Hdf5Array = self
        for part in path.split("/"):
            if part in ("", ".", "..") or isinstance(item, Hdf5Array) or part not in item.group:
                raise ReadError(
                    f"{self.place}: lists '{printable(path)}', which is not in the file. "
                    "The file is damaged or incomplete; copy it or save it again."
                )
            item = item[part]
        return item

    def members(self) -> Iterator[tuple[str, "Hdf5Group | Hdf5Array"]]:
        """Name and object of everything directly in this group."""
        if self.group.name.count("/") > MAX_DEPTH:
            raise ReadError(f"{self.place}: is nested more than {MAX_DEPTH} deep. Keras never writes that.")
        for name in self.group:
            yield name, self[name]

    def arrays(self) -> Iterator["Hdf5Array"]:
        """Every array at and below this group."""
        stack = [self]
        while stack:
            for _, item in stack.pop().members():
                if isinstance(item, Hdf5Array):
                    yield item
                else:
                    stack.append(item)

    def attribute(self, name: str) -> Any:
        """The attribute as ``str``, list of ``str``, or number; None where there is none.

        Fixed-length bytes (h5py 2), variable-length text (h5py 3) and lists that Keras split into ``name0``,
        ``name1``, … (64 kB limit of HDF5) all come out alike.
        """
        attributes = self.group.attrs
        if name in attributes:
            kind = h5py.h5a.open(self.group.id, name.encode()).get_type().get_class()
            if kind not in (h5py.h5t.STRING, h5py.h5t.INTEGER, h5py.h5t.FLOAT):
                raise ReadError(f"{self.place}: attribute '{name}' has no type that Keras writes. The file is damaged.")
            return as_text(attributes[name])
        parts = list(takewhile(attributes.__contains__, (f"{name}{number}" for number in count())))
        return [text for part in parts for text in self.attribute(part)] or None


@dataclass(frozen=True)
class Hdf5Array:
    """An open dataset."""

    image: Hdf5Image
    dataset: h5py.Dataset

    def variable(self, role: Role = "layer") -> Variable:
        """Describe it. External and virtual storage is refused: it is data of other files."""
        dataset, image = self.dataset, self.image
        path, shape = dataset.name.lstrip("/"), tuple(int(size) for size in dataset.shape)
        place = f"{image.path}: dataset '{printable(path)}'"
        creation = dataset.id.get_create_plist()
        if creation.get_layout() == h5py.h5d.VIRTUAL or creation.get_external_count():
            raise ReadError(f"{place}: keeps its numbers in another file. Keras never writes that; it is not read.")
        stored, offset, size = dataset.dtype, dataset.id.get_offset(), dataset.nbytes
        dtype = STORED_AS.get(stored.str.lstrip("|"), stored.name)
        if offset is not None and creation.get_nfilters() == 0 and offset + size <= image.length:

            def read() -> Array:
                return as_native(np.ndarray(shape, stored, image.part(offset, size)), dtype, place)
        else:
            if math.prod(shape) and dataset.id.get_storage_size() == 0:
                raise ReadError(
                    f"{place}: has a shape {shape} but no data. "
                    "The file was not written to its end; save the model again."
                )

            def read() -> Array:
                with image.open() as root:
                    return as_native(root.group[path][()], dtype, place)

        return Variable(path=path, shape=shape, dtype=dtype, role=role, read=read)


def as_native(array: Array, dtype: str, place: str) -> Array:
    """The array with this machine's byte order, and bfloat16 as a number type."""
    if dtype == "bfloat16":
        import ml_dtypes  # only where bfloat16 occurs: it costs start-up time

        return array.view(ml_dtypes.bfloat16)
    if array.dtype.kind not in READABLE_KINDS:
        raise ReadError(f"{place}: is of type {array.dtype}, expected numbers. Convert other layers with --layer.")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def as_text(value: Any) -> Any:
    """Bytes to ``str``, arrays to lists, element by element."""
    if isinstance(value, np.ndarray):
        return [as_text(item) for item in value.tolist()]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
