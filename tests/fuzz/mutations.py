"""Seeded mutations of genuine files: the same seed and number make the same mutant, on every machine.

``mutate`` is the entry point. It changes bytes anywhere or in a format's own structures, a zip's members (with correct
checksums, so that the mutation reaches the readers), an HDF5 file's tree, or a model's JSON.
"""

import struct
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from io import BytesIO
from random import Random

import google_crc32c
import h5py

from .hdf5_mutations import mutate_hdf5
from .json_mutations import mutate_json
from .seeds import Seed

HDF5, ZIP = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
SIGNATURES = (b"TREE", b"SNOD", b"HEAP", b"GCOL", b"OHDR", b"FRHP", b"BTHD", b"OCHK")
REACH = 96  # bytes behind a signature
BOUNDARIES = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
FOOTER, TRAILER = 48, 5  # bytes of a checkpoint's index: its end, and what stands behind each block
CONFIG = "config.json"
RESEALED = "block with its checksum"
Places = Sequence[int]


@dataclass(frozen=True)
class Mutant:
    """A changed seed; ``in_place`` where bytes were changed and all others are where they were."""

    seed: Seed
    number: int
    what: str
    files: dict[str, bytes] = field(repr=False)
    in_place: bool = False

    @property
    def name(self) -> str:
        """Enough to make it again."""
        return f"{self.seed.name}#{self.number}"


def mutate(seed: Seed, number: int, others: Sequence[Seed]) -> Mutant:
    """The mutant of that number; ``others`` lend members of their zips."""
    rng = Random(f"{seed.name}#{number}")
    name = rng.choice(sorted(seed.files))
    old = seed.files[name]
    change = rng.choice(changes_for(old, name))
    new, what = change(rng, old, others)
    files = {**seed.files, name: new}
    return Mutant(seed, number, f"{name}: {what}", files, in_place=len(new) == len(old) and what.startswith("bytes"))


def changes_for(content: bytes, name: str) -> list["Change"]:
    """The mutations that make sense of a content."""
    if content.startswith(HDF5):
        return [raw, structure, structure, structure, tree, tree, tree, tree]
    if content.startswith(ZIP):
        return [
            raw,
            structure,
            splice,
            splice,
            inner_json,
            inner_json,
            inner_json,
            inner_weights,
            inner_weights,
            inner_weights,
        ]
    if content[:1] in (b"{", b"["):
        return [raw, text, values, values]
    return [raw, index_block] if name.endswith(".index") else [raw]


def raw(rng: Random, content: bytes, others: Sequence[Seed]) -> tuple[bytes, str]:
    """Bytes anywhere."""
    return mutate_bytes(rng, content, range(len(content)))


def structure(rng: Random, content: bytes, others: Sequence[Seed]) -> tuple[bytes, str]:
    """Bytes of what describes the data."""
    return mutate_bytes(rng, content, structure_places(content), in_place=rng.random() < 0.8)


def tree(rng: Random, content: bytes, others: Sequence[Seed]) -> tuple[bytes, str]:
    """What an HDF5 file says."""
    return mutate_hdf5(rng, content)


def values(rng: Random, content: bytes, others: Sequence[Seed]) -> tuple[bytes, str]:
    """What a JSON document says."""
    return mutate_json(rng, content)


def text(rng: Random, content: bytes, others: Sequence[Seed]) -> tuple[bytes, str]:
    """Characters of a text."""
    new = bytearray(content)
    for _ in range(rng.choice((1, 2, 8))):
        new[rng.randrange(len(new))] = rng.choice(b'{}[]":,0123456789eE.-\\ntf \x00\xff')
    return bytes(new), "bytes: characters of the text"


def mutate_bytes(rng: Random, content: bytes, places: Places, *, in_place: bool | None = None) -> tuple[bytes, str]:
    """One of the mutations of bytes; ``in_place`` asks for one that moves none."""
    if not content or not places:
        return content + b"\0", "bytes: one appended"
    choice = IN_PLACE if in_place or (in_place is None and rng.random() < 0.6) else MOVING
    return rng.choice(choice)(rng, content, places)


def flip_bits(rng: Random, content: bytes, places: Places) -> tuple[bytes, str]:
    """One to eight bits."""
    new = bytearray(content)
    flipped = [rng.choice(places) for _ in range(rng.choice((1, 1, 1, 2, 4, 8)))]
    for place in flipped:
        new[place] ^= 1 << rng.randrange(8)
    return bytes(new), f"bytes: bits flipped at {flipped}"


def set_bytes(rng: Random, content: bytes, places: Places) -> tuple[bytes, str]:
    """A few bytes become 0, 255 or anything."""
    new, start, size = bytearray(content), rng.choice(places), rng.choice((1, 1, 2, 4, 8, 64))
    filling = rng.choice((b"\0" * size, b"\xff" * size, rng.randbytes(size)))
    new[start : start + size] = filling[: len(content) - start]
    return bytes(new), f"bytes: {size} set at {start}"


def boundary(rng: Random, content: bytes, places: Places) -> tuple[bytes, str]:
    """A number becomes one at the boundary of its type, or one more or less."""
    new, start, size = bytearray(content), rng.choice(places), rng.choice((1, 2, 4, 8))
    part = new[start : start + size]
    old = int.from_bytes(part, "little")
    number = rng.choice((*BOUNDARIES, old + 1, old - 1, old * 2, old + 8, old - 8)) % (1 << (8 * len(part)))
    new[start : start + size] = number.to_bytes(len(part), "little")
    return bytes(new), f"bytes: number {number} of {size} at {start}"


def truncate(rng: Random, content: bytes, places: Places) -> tuple[bytes, str]:
    """The end is missing."""
    size = rng.choice((rng.randrange(len(content)), rng.choice(places), max(len(content) - rng.randrange(1, 100), 0)))
    return content[:size], f"cut to {size}"


def append(rng: Random, content: bytes, places: Places) -> tuple[bytes, str]:
    """Something stands behind the end."""
    more = rng.choice((b"\0", rng.randbytes(100), b"\0" * 5000, content[: len(content) // 2]))
    return content + more, f"{len(more)} appended"


def insert(rng: Random, content: bytes, places: Places) -> tuple[bytes, str]:
    """Something stands in between."""
    start, size = rng.choice(places), rng.choice((1, 4, 8, 100))
    return content[:start] + rng.randbytes(size) + content[start:], f"{size} inserted at {start}"


def delete(rng: Random, content: bytes, places: Places) -> tuple[bytes, str]:
    """Something is missing in between."""
    start, size = rng.choice(places), rng.choice((1, 4, 8, 100))
    return content[:start] + content[start + size :], f"{size} deleted at {start}"


def duplicate(rng: Random, content: bytes, places: Places) -> tuple[bytes, str]:
    """A range is written over another one."""
    size, (start, other) = rng.choice((4, 8, 64, 500)), (rng.choice(places), rng.choice(places))
    part = content[start : start + size]
    return (content[:other] + part + content[other + len(part) :])[
        : len(content)
    ], f"bytes: {size} of {start} at {other}"


def swap(rng: Random, content: bytes, places: Places) -> tuple[bytes, str]:
    """Two ranges exchange their places."""
    size, (one, other) = rng.choice((1, 4, 8, 64)), sorted((rng.choice(places), rng.choice(places)))
    if other + size > len(content) or one + size > other:
        return flip_bits(rng, content, places)
    middle = content[one + size : other]
    new = content[:one] + content[other : other + size] + middle + content[one : one + size] + content[other + size :]
    return new, f"bytes: {size} of {one} and {other} exchanged"


ByteMutation = Callable[[Random, bytes, Places], tuple[bytes, str]]
IN_PLACE: tuple[ByteMutation, ...] = (flip_bits, flip_bits, set_bytes, boundary, duplicate, swap)
MOVING: tuple[ByteMutation, ...] = (truncate, append, insert, delete)


@lru_cache(maxsize=64)
def structure_places(content: bytes) -> Places:
    """Positions of a zip's headers, or of an HDF5 file's structures; all of them for anything else."""
    if content.startswith(HDF5):
        return hdf5_structure(content)
    if content.startswith(ZIP):
        with zipfile.ZipFile(BytesIO(content)) as archive:
            heads = [member.header_offset for member in archive.infolist()]
            return [*(head + i for head in heads for i in range(46)), *range(archive.start_dir, len(content))]
    return range(len(content))


def hdf5_structure(content: bytes) -> Places:
    """What lies in no array; what follows a signature counts more."""
    arrays: set[int] = set()

    def note(_: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset) and item.id.get_offset() is not None:
            arrays.update(range(item.id.get_offset(), item.id.get_offset() + item.nbytes))

    with h5py.File(BytesIO(content), "r") as file:
        file.visititems(note)
    near = []
    for signature in SIGNATURES:
        start = content.find(signature)
        while start >= 0:
            near += range(start, min(start + REACH, len(content)))
            start = content.find(signature, start + 1)
    rest = [place for place in range(len(content)) if place not in arrays and content[place]]
    return [*rest, *near]


@dataclass(frozen=True)
class Member:
    """One member of a zip that is put together again."""

    name: str
    content: bytes
    method: int = zipfile.ZIP_STORED


def members_of(content: bytes) -> list[Member]:
    """All members of a zip."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        return [Member(member.filename, archive.read(member)) for member in archive.infolist()]


def zipped(members: Sequence[Member], comment: bytes = b"") -> bytes:
    """A zip of the members, with the right checksums and no time of day."""
    memory = BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        archive.comment = comment
        for member in members:
            info = zipfile.ZipInfo(member.name)
            info.compress_type = member.method
            archive.NameToInfo.pop(member.name, None)  # no warning of a name that is there twice
            archive.writestr(info, member.content)
    return memory.getvalue()


def splice(rng: Random, content: bytes, others: Sequence[Seed]) -> tuple[bytes, str]:
    """Members exchanged with another file's, doubled, renamed, packed, reordered, deleted."""
    members = members_of(content)
    number = rng.randrange(len(members))
    chosen = members[number]
    zips = [seed.files[seed.main] for seed in others if seed.files.get(seed.main, b"").startswith(ZIP)]
    action = rng.choice(("exchange", "exchange", "double", "rename", "pack", "comment", "reorder", "delete", "several"))
    comment = b""
    if action == "exchange" and zips:
        theirs = {member.name: member for member in members_of(rng.choice(zips))}
        members[number] = theirs.get(chosen.name, chosen)
    elif action == "double":
        members.append(replace(chosen, content=rng.choice((chosen.content, b"{}"))))
    elif action == "rename":
        members[number] = replace(
            chosen, name=rng.choice((f"./{chosen.name}", chosen.name.upper(), "x", chosen.name + "\\"))
        )
    elif action == "pack":
        method = rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
        members[number] = replace(chosen, method=method)
    elif action == "comment":
        comment = rng.randbytes(rng.choice((1, 50, 60000)))
    elif action == "reorder":
        rng.shuffle(members)
    elif action == "delete":
        del members[number]
    else:
        members = [replace(member, method=zipfile.ZIP_DEFLATED) for member in members]
        rng.shuffle(members)
    return zipped(members, comment), f"zip: {action} {chosen.name}"


def inner_json(rng: Random, content: bytes, others: Sequence[Seed]) -> tuple[bytes, str]:
    """The JSON in a zip, its checksum right."""
    return inside(rng, content, ".json", rng.choice((values, values, values, text)), others)


def inner_weights(rng: Random, content: bytes, others: Sequence[Seed]) -> tuple[bytes, str]:
    """The weights in a zip, their checksum right."""
    return inside(rng, content, ".h5", rng.choice((structure, structure, tree, tree, tree, raw)), others)


def inside(rng: Random, content: bytes, ending: str, change: "Change", others: Sequence[Seed]) -> tuple[bytes, str]:
    """Change a member of a zip; now and then it is packed, too."""
    members = members_of(content)
    numbers = [number for number, member in enumerate(members) if member.name.endswith(ending)]
    numbers = [number for number in numbers if members[number].name == CONFIG] * (rng.random() < 0.8) or numbers
    if not numbers:
        return raw(rng, content, others)
    number = rng.choice(numbers)
    new, what = change(rng, members[number].content, others)
    method = zipfile.ZIP_DEFLATED if rng.random() < 0.1 else zipfile.ZIP_STORED
    members[number] = replace(members[number], content=new, method=method)
    return zipped(members), f"{members[number].name} in the zip: {what}"


def index_block(rng: Random, content: bytes, others: Sequence[Seed]) -> tuple[bytes, str]:
    """The first block of a checkpoint's index, its checksum right."""
    end = meta_offset(content) - TRAILER
    block, what = mutate_bytes(rng, content[:end], range(end), in_place=True)
    checked = block + content[end : end + 1]
    checksum = google_crc32c.value(checked)
    masked = ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return checked + struct.pack("<I", masked) + content[end + TRAILER :], f"{RESEALED}: {what}"


def meta_offset(content: bytes) -> int:
    """Where the second block begins: the first number in the footer."""
    number = shift = 0
    for byte in content[-FOOTER:]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return number


Change = Callable[[Random, bytes, Sequence[Seed]], tuple[bytes, str]]
