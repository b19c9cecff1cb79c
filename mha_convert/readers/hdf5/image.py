"""An HDF5 file as readers need it: groups, their attributes, and where arrays are.

Keras' datasets are contiguous and unfiltered, and a ``.keras`` zip stores its HDF5 member uncompressed, so an array
is a view into a memory map of the user's file. The structure, and whatever is stored otherwise, is read by a process
of its own (``hdf5``), which a hostile file may crash without harm, and which can open no file: it is given bytes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import count, takewhile
from typing import Any

import numpy as np

from ...errors import ReadError, reason
from ...files.child.messages import Message
from ...files.child.process import Ended
from ...files.hdf5.process import ask, why_ended
from ...files.limits import Limits, way_on
from ...files.source import Source
from ...records.source import Array, Role, Variable
from .deflated import Deflated

MAGIC = b"\x89HDF\r\n\x1a\n"
STORED_AS = {"|V2": "bfloat16"}  # Keras writes bfloat16 as 2 opaque bytes; no other 2-byte opaque type is known.
STRUCTURE_SPEED = 1 << 20  # bytes in a second: 1500 layers of two small arrays each are 4 MB, and take one second
MOST_STRUCTURE = 64 << 20  # bytes: the rest of a larger file is arrays
NEXT_STEPS = {
    "damaged": "The file is damaged or incomplete; copy or download it again",
    "foreign": "Keras never writes that; it is not read",
    "silent": "Run it again",
}


def refusal(source: Source, refused: Mapping[str, str], subject: str = "") -> ReadError:
    """The error for what is wrong with an object, or with the whole file."""
    place = subject or f"'{refused['place']}'" if refused.get("place") or subject else "its HDF5 data"
    next_step = way_on(source.limits) if refused["kind"] == "limit" else NEXT_STEPS[refused["kind"]]
    return ReadError(f"{source}: {place} {refused['fact']}. {next_step}.")


@dataclass(frozen=True)
class Hdf5Image:
    """Where an HDF5 file is: a window of ``source``, or the ``content`` of a compressed zip member."""

    source: Source
    start: int = 0
    size: int | None = None
    content: Deflated | None = None

    @property
    def limits(self) -> Limits:
        """The most that may be read of it."""
        return self.source.limits

    @contextmanager
    def open(self, depth: int | None = None) -> Iterator["Hdf5Group"]:
        """The image's root group, with all below it, or down to ``depth`` groups; damage is a ``ReadError``."""
        seconds = self.limits.seconds and self.limits.seconds + min(self.length, MOST_STRUCTURE) / STRUCTURE_SPEED
        request = {"do": "tree", "depth": depth or self.limits.depth + 1, "limits": asdict(self.limits)}
        answer = self.ask(request, self.limits.memory, seconds)
        yield Hdf5Group(self, "", answer.words["tree"])

    def array(self, path: str, size: int, work: int) -> bytes:
        """The bytes of an array that is not in one piece; ``work`` bytes are in memory while it is read."""
        seconds = self.limits.seconds and self.limits.seconds + work / self.limits.speed
        memory = self.limits.memory and self.limits.memory + 3 * work
        (content,) = self.ask({"do": "array", "path": path}, memory, seconds).blocks
        if len(content) != size:
            raise refusal(self.source, {"kind": "damaged", "fact": f"gave {len(content)} bytes, expected {size}"}, path)
        return content

    def ask(self, request: Mapping[str, Any], memory: int, seconds: float) -> Message:
        """Ask the process that reads HDF5; its end is an error like any other."""
        subject = f"dataset '{request['path']}'" if "path" in request else ""
        try:
            with self.stream() as source:
                message = {**request, "size": self.length, "memory": memory, "seconds": seconds}
                answer = ask(message, source)
        except Ended as error:
            kind, fact = why_ended(error, seconds)
            raise refusal(self.source, {"kind": kind, "fact": fact}, subject) from error
        except OSError as error:
            raise ReadError(
                f"{self.source} cannot be read: {reason(error)}. Check the disk, or copy it again."
            ) from error
        if answer.words.get("memory"):
            fact = f"takes the HDF5 library more than {memory >> 20} MB to read"
            raise refusal(self.source, {"kind": "limit", "fact": fact}, subject)
        if "refused" in answer.words:
            raise refusal(self.source, answer.words["refused"], subject)
        return answer

    @contextmanager
    def stream(self) -> Iterator[Callable[[int, int], bytes]]:
        """What gives ``size`` bytes from ``start`` on; a window beyond the file's end is refused."""
        if self.content is not None:
            yield lambda start, size: self.content[start : start + size]  # type: ignore[index]
            return
        whole = self.source.size()
        if self.start + self.length > whole:
            raise ReadError(
                f"{self.source}: its weights would end at byte {self.start + self.length}, but the file has {whole}. "
                "The file is damaged; copy or download it again."
            )
        with self.source.open() as file:

            def read(start: int, size: int) -> bytes:
                file.seek(self.start + start)
                content = file.read(size)
                if len(content) < size:
                    raise ReadError(f"{self.source} became shorter while it was read. Wait until it is complete.")
                return content

            yield read

    @property
    def length(self) -> int:
        """Bytes in the image."""
        if self.content is not None:
            return len(self.content)
        return self.source.size() - self.start if self.size is None else self.size

    def part(self, offset: int, size: int) -> Array:
        """``size`` bytes from ``offset`` on, read-only: a view where the image is local, a copy from a store."""
        if self.content is not None:
            return np.frombuffer(self.content[offset : offset + size], np.uint8)
        if self.source.is_remote:
            return self.source.fetch(self.start + offset, size)
        return self.mapped[offset : offset + size]

    @cached_property
    def mapped(self) -> Array:
        """The whole image as bytes, mapped and not loaded."""
        return self.source.fetch(self.start, self.length)


@dataclass(frozen=True)
class Hdf5Group:
    """A group, as much of it as readers need; nothing outside the file is reached through it."""

    image: Hdf5Image
    path: str
    node: Mapping[str, Any]

    @property
    def place(self) -> str:
        """File and group, for messages."""
        return f"{self.image.source}: '/{self.path}'"

    def holds(self, name: str) -> bool:
        """Whether ``name`` is in this group itself, and not a link to elsewhere."""
        return name in self.node["members"] and "link" not in self.node["members"][name]

    def __getitem__(self, name: str) -> "Hdf5Group | Hdf5Array":
        """What is called ``name`` directly in this group; a link to elsewhere is refused, unfollowed."""
        node, path = self.node["members"][name], f"{self.path}/{name}".lstrip("/")
        if "link" in node:
            raise ReadError(
                f"{self.place}: its '{name}' is a link to another place or file. "
                "Keras never writes links; such a file is not read."
            )
        return Hdf5Group(self.image, path, node) if "members" in node else Hdf5Array(self.image, path, node)

    def follow(self, path: str) -> "Hdf5Group | Hdf5Array":
        """What is at ``path``, step by step."""
        item: Hdf5Group | Hdf5Array = self
        for part in path.split("/"):
            if part in ("", ".", "..") or isinstance(item, Hdf5Array) or part not in item.node["members"]:
                raise ReadError(
                    f"{self.place} lists '{path}', which is not in the file. "
                    "The file is damaged or incomplete; copy it or save it again."
                )
            item = item[part]
        return item

    def members(self) -> Iterator[tuple[str, "Hdf5Group | Hdf5Array"]]:
        """Name and object of everything directly in this group."""
        for name in self.node["members"]:
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
        attributes = self.node["attributes"]
        if name in attributes:
            if "refused" in attributes[name]:
                raise refusal(self.image.source, attributes[name]["refused"], f"attribute '{name}' of '/{self.path}'")
            return attributes[name]["value"]
        parts = list(takewhile(attributes.__contains__, (f"{name}{number}" for number in count())))
        values = [self.attribute(part) for part in parts]
        whole = [text for value in values if isinstance(value, list) for text in value]
        return values if not all(isinstance(value, list) for value in values) else whole or None


@dataclass(frozen=True)
class Hdf5Array:
    """An array; ``node`` says how it is stored."""

    image: Hdf5Image
    path: str
    node: Mapping[str, Any]

    def variable(self, role: Role = "layer") -> Variable:
        """Describe it. External and virtual storage is refused: it is data of other files."""
        image, node, path = self.image, self.node, self.path
        place = f"dataset '{path}'"
        if "refused" in node:
            raise refusal(image.source, node["refused"], place)
        shape, size = tuple(node["shape"]), node["size"]
        if not node["numbers"]:
            return Variable(path=path, shape=shape, dtype=node["dtype"], role=role, read=self.no_numbers)
        dtype = STORED_AS.get(node["dtype"]) or np.dtype(node["dtype"]).name

        def read() -> Array:
            if "offset" in node:
                return as_native(np.ndarray(shape, node["dtype"], image.part(node["offset"], size)), dtype)
            return as_native(np.ndarray(shape, node["dtype"], image.array(path, size, node["work"])), dtype)

        return Variable(path=path, shape=shape, dtype=dtype, role=role, read=read)

    def no_numbers(self) -> Array:
        """What is stored is no array of numbers."""
        raise ReadError(
            f"{self.image.source}: dataset '{self.path}' is of type {self.node['dtype']}, "
            "expected numbers. Convert other layers with --layer."
        )


def as_native(array: Array, dtype: str) -> Array:
    """The array with this machine's byte order, and bfloat16 as a number type."""
    if dtype == "bfloat16":
        import ml_dtypes  # only where bfloat16 occurs: it costs start-up time

        return array.view(ml_dtypes.bfloat16)
    return array.astype(array.dtype.newbyteorder("="), copy=False)
