"""TensorFlow's checkpoint format: ``x.index``, a sorted table of entries, and ``x.data-00000-of-00001``, raw bytes.

The index is a LevelDB table (https://github.com/google/leveldb/blob/main/doc/table_format.md) of ``BundleEntry``
messages by key. TensorFlow's own reader ends the process on some damaged files; this one checks everything that it
follows: offsets, lengths, the checksums (CRC32C) of each block and, when it is read, of each array.
"""

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import ReadError
from ...files.limits import way_on
from ...files.locations import CHUNK
from ...files.source import Source
from ...records.source import Array, Role, Variable
from ..links import refuse_links_out
from .protobuf import parse

INDEX_END = ".index"
FOOTER_SIZE, MAGIC = 48, struct.pack("<Q", 0xDB4775248B80FB57)
TRAILER = struct.Struct("<BI")  # compression and checksum after each block
UNCOMPRESSED = 0
MASK_DELTA = 0xA282EAD8  # LevelDB stores checksums rotated and shifted by this
HEADER_KEY = b""
COPY_AGAIN = "The file is damaged; copy or download it again."
STRING = 7
# tensorflow/core/framework/types.proto; what is not here (variants, resources) is no array of numbers
DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    19: "float16",
    22: "uint32",
    23: "uint64",
}


@dataclass(frozen=True)
class Entry:
    """Where one tensor is."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    is_sliced: bool


@dataclass(frozen=True)
class Bundle:
    """An opened checkpoint; ``prefix`` is its path without ``.index``."""

    prefix: Source
    num_shards: int
    entries: Mapping[str, Entry]

    @cached_property
    def shard_sizes(self) -> dict[int, int]:
        """Bytes in each data file that an entry points to.

        Raises:
            ReadError: one of them is missing.
        """
        used = sorted({entry.shard for entry in self.entries.values()})
        missing = [number for number in used if not self.shard(number).is_file()]
        if not missing:
            refuse_links_out(self.prefix.folder, *map(self.shard, used))
            return {number: self.shard(number).size() for number in used}
        promised = sum(entry.size for entry in self.entries.values())
        names = ", ".join(f"'{self.shard(number).name}'" for number in missing[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        alone = "this is the index of a TensorFlow checkpoint without its data" if missing == used else "it is partial"
        raise ReadError(
            f"{self.prefix}{INDEX_END}: {alone}: {names}{more} not next to it, which should hold {len(self.entries)} "
            f"entries ({promised:,} bytes). Copy all files of the checkpoint into one folder."
        )

    def shard(self, number: int) -> Source:
        """The data file; its name is made here and never read from a file."""
        return self.prefix.beside(f"{self.prefix.name}.data-{number:05d}-of-{self.num_shards:05d}")

    def variable(self, key: str, role: Role = "layer") -> Variable:
        """Describe one array.

        Raises:
            ReadError: its entry contradicts itself or the data file.
        """
        entry, place = self.entries[key], f"{self.prefix}: '{key}'"
        if entry.is_sliced:
            raise ReadError(
                f"{place} is stored in slices (a partitioned variable). Load it where it was trained, and save the "
                "model there as .keras or .weights.h5."
            )
        dtype = DTYPES[entry.dtype]
        expected = math.prod(entry.shape) * itemsize(dtype)
        if entry.size != expected:
            raise ReadError(
                f"{place} holds {entry.size} bytes, expected {expected} for a {dtype} array of shape {entry.shape}. "
                "The index is damaged; copy it again."
            )
        self.check_place(entry, place)

        def read() -> Array:
            content = self.content(entry, place)
            if dtype != "bfloat16":
                return np.ndarray(entry.shape, np.dtype(dtype).newbyteorder("<"), content).astype(dtype, copy=False)
            import ml_dtypes  # only where bfloat16 occurs: it costs start-up time

            return np.ndarray(entry.shape, ml_dtypes.bfloat16, content)

        return Variable(path=key, shape=entry.shape, dtype=dtype, role=role, read=read)

    def check_place(self, entry: Entry, place: str) -> None:
        """The bytes must be inside an existing data file."""
        if entry.offset < 0 or entry.size < 0:
            raise ReadError(
                f"{place} begins at byte {entry.offset} and holds {entry.size}, where nothing can be. "
                "The index is damaged; copy it again."
            )
        end, size = entry.offset + entry.size, self.shard_sizes[entry.shard]
        if end > size:
            raise ReadError(
                f"{place} ends at byte {end} of '{self.shard(entry.shard).name}', which has {size}. "
                "The copy was interrupted; copy it again."
            )

    def content(self, entry: Entry, place: str) -> Array:
        """The bytes of one entry, checked against its checksum."""
        content = self.shard(entry.shard).fetch(entry.offset, entry.size)
        if checksum(content) != entry.checksum:
            raise ReadError(
                f"{place}: its {entry.size} bytes do not have the checksum that the index says. {COPY_AGAIN}"
            )
        return content

    def text(self, key: str) -> bytes:
        """The one string in a string tensor: its length, the lengths' checksum, then its bytes."""
        entry, place = self.entries[key], f"{self.prefix}: '{key}'"
        self.check_place(entry, place)
        content = self.shard(entry.shard).fetch(entry.offset, entry.size).tobytes()
        length, start = varint(content, 0, place)
        # The checksum of strings counts each length as four bytes, whatever it takes in the file.
        if checksum(struct.pack("<I", length & 0xFFFFFFFF) + content[start:]) != entry.checksum:
            raise ReadError(f"{place} does not have the checksum that the index says. {COPY_AGAIN}")
        if start + 4 + length != len(content):
            raise ReadError(f"{place} says {length} bytes, but {len(content)} are stored. {COPY_AGAIN}")
        return content[start + 4 :]


def itemsize(dtype: str) -> int:
    """Bytes of one number."""
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def open_bundle(prefix: Source) -> Bundle:
    """Read the index of a checkpoint.

    Raises:
        ReadError: it is missing, damaged, or of a kind that is not read.
    """
    index = prefix.beside(prefix.name + INDEX_END)
    size, limits = index.size(), index.limits
    if size > limits.index:
        raise ReadError(f"{index} is {size} bytes, expected at most {limits.index} of an index. {way_on(limits)}.")
    table = bounded(Table(index.fetch(0, size).tobytes(), index).rows(), index)
    if HEADER_KEY not in table:
        raise ReadError(f"{index} has no header. The file is damaged; copy or download it again.")
    header = parse("BundleHeader", table.pop(HEADER_KEY), index, "the header")
    if header.num_shards < 1:
        raise ReadError(f"{index} says {header.num_shards} data files, expected 1 at least. Copy it again.")
    if header.num_shards > limits.data_files:
        most = limits.data_files
        raise ReadError(f"{index} says {header.num_shards} data files, expected at most {most}. {way_on(limits)}.")
    if header.endianness:
        raise ReadError(
            f"{index} was written on a big-endian machine, which is not read. Save it again on an ordinary one."
        )
    entries = {}
    for raw, value in table.items():
        key = raw.decode("utf-8", "backslashreplace")
        entries[key] = entry(value, index, key)
        if not 0 <= entries[key].shard < header.num_shards:
            raise ReadError(
                f"{index}: '{key}' is in data file {entries[key].shard} of {header.num_shards}. "
                "The index is damaged; copy it again."
            )
    return Bundle(prefix, header.num_shards, entries)


def bounded(rows: Iterable[tuple[bytes, bytes]], index: Source) -> dict[bytes, bytes]:
    """The rows by their keys, which share their beginnings in the file and may take far more memory than it has bytes.

    Raises:
        ReadError: more rows than a model has variables, or longer keys.
    """
    table: dict[bytes, bytes] = {}
    letters, limits = 0, index.limits
    for key, value in rows:
        table[key] = value
        letters += len(key)
        if len(table) > limits.objects:
            raise ReadError(f"{index} has more than {limits.objects} entries. {way_on(limits)}.")
        if letters > limits.index:
            raise ReadError(f"{index} has names of more than {limits.index} bytes together. {way_on(limits)}.")
    return table


def entry(content: bytes, index: Source, key: str) -> Entry:
    """One row of the index."""
    message: Any = parse("BundleEntry", content, index, f"the entry of '{key}'")
    shape = tuple(dim.size for dim in message.shape.dim)
    if any(size < 0 for size in shape):
        raise ReadError(f"{index}: '{key}' has the shape {shape}. The index is damaged; copy it again.")
    return Entry(
        message.dtype,
        shape,
        message.shard_id,
        message.offset,
        message.size,
        unmasked(message.crc32c),
        bool(message.slices),
    )


def has_index(prefix: Source) -> bool:
    """Whether ``prefix`` is what a checkpoint's files begin with."""
    return bool(prefix.name) and prefix.beside(prefix.name + INDEX_END).is_file()


def is_table(source: Source) -> bool:
    """Whether the file ends as an index does."""
    if not source.is_file() or (size := source.size()) < FOOTER_SIZE:
        return False
    return source.fetch(size - len(MAGIC), len(MAGIC)).tobytes() == MAGIC


@dataclass(frozen=True)
class Table:
    """A LevelDB table in memory."""

    data: bytes
    source: Source

    def damaged(self, fact: str) -> ReadError:
        """The error for a damaged index."""
        return ReadError(f"{self.source}: {fact}. The index is damaged or incomplete; copy or download it again.")

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Every key with its value."""
        if len(self.data) < FOOTER_SIZE or not self.data.endswith(MAGIC):
            raise self.damaged("it does not end as the index of a TensorFlow checkpoint does")
        footer = self.data[-FOOTER_SIZE:]
        _, at = self.handle(footer, 0)  # of the block of filters, which TensorFlow does not write
        index, _ = self.handle(footer, at)
        for _, place in self.pairs(self.block(index)):
            yield from self.pairs(self.block(self.handle(place, 0)[0]))

    def handle(self, data: bytes, at: int) -> tuple[tuple[int, int], int]:
        """Offset and size of a block, and where they end."""
        offset, at = varint(data, at, str(self.source))
        size, at = varint(data, at, str(self.source))
        return (offset, size), at

    def block(self, handle: tuple[int, int]) -> bytes:
        """The content of a block."""
        offset, size = handle
        end = offset + size
        if end + TRAILER.size > len(self.data) - FOOTER_SIZE:
            raise self.damaged(f"a block would end at byte {end} of {len(self.data)}")
        compression, stored = TRAILER.unpack_from(self.data, end)
        if compression != UNCOMPRESSED:
            raise self.damaged(f"a block is compressed (kind {compression}), which TensorFlow's checkpoints never are")
        if checksum(self.data[offset : end + 1]) != unmasked(stored):
            raise self.damaged(f"the checksum of the block at byte {offset} is wrong")
        return self.data[offset:end]

    def pairs(self, block: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of a block; a key shares its beginning with the one before."""
        restarts = struct.unpack_from("<I", block, len(block) - 4)[0] if len(block) >= 4 else -1
        limit = len(block) - 4 * (restarts + 1)
        if restarts < 0 or limit < 0:
            raise self.damaged(f"a block of {len(block)} bytes says that it has {restarts} restart points")
        at, key = 0, b""
        while at < limit:
            shared, at = varint(block, at, str(self.source))
            added, at = varint(block, at, str(self.source))
            length, at = varint(block, at, str(self.source))
            if shared > len(key) or at + added + length > limit:
                raise self.damaged("a key or value runs over the end of its block")
            key = key[:shared] + block[at : at + added]
            yield key, block[at + added : at + added + length]
            at += added + length


def varint(data: bytes, at: int, place: str) -> tuple[int, int]:
    """A number in protobuf's variable length, of at most 64 bits, and where it ends."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ReadError(f"{place}: a number runs over the end. The file is damaged; copy or download it again.")


def checksum(data: bytes | Array) -> int:
    """CRC32C (Castagnoli), in pieces so that a mapped file is not copied whole."""
    import google_crc32c  # only where a checkpoint is read

    found = 0
    for start in range(0, len(data), CHUNK):
        part = data[start : start + CHUNK]
        found = google_crc32c.extend(found, part if isinstance(part, bytes) else part.tobytes())
    return int(found)


def unmasked(stored: int) -> int:
    """A checksum as it was before LevelDB's masking."""
    rotated = (stored - MASK_DELTA) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF
