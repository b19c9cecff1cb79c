"""``.keras`` files: a zip of ``metadata.json``, ``config.json`` and ``model.weights.h5`` (Keras 2.12 and later)."""

import struct
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import IO

from ..datatypes import Checkpoint
from ..errors import ReadError, printable
from ..locations import SMALL, is_remote, open_binary
from ._config import MAX_JSON, Json, parse_json, refuse_architecture
from ._deflated import Deflated
from ._hdf5 import Hdf5Image
from ._v3_layout import read_weights

FORMAT = "keras"
CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
CHUNK = 4 << 20
MAX_RATIO = 1100  # deflate cannot do better than 1032:1
UNCHECKED = "Only parts of the file were fetched, so the zip's checksum of the weights was not verified."
LOCAL_MAGIC = b"PK\x03\x04"
LOCAL_HEADER = struct.Struct("<4s5H3I2H")  # PKWARE APPNOTE 4.3.7


def accepts(head: bytes, path: Path) -> bool:
    """A zip with Keras' ``config.json``."""
    if not head.startswith(b"PK\x03\x04"):
        return False
    try:
        with open_binary(path) as file, zipfile.ZipFile(file) as archive:
            return CONFIG in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def read(path: Path, architecture: Json | None = None) -> Checkpoint:
    """Describe the model; raises ``ReadError`` for a damaged archive, or one without HDF5 weights."""
    refuse_architecture(architecture, path)
    try:
        with open_binary(path) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            if names.count(WEIGHTS) != 1:
                raise ReadError(f"{path}: {missing_weights(names)}")
            if names.count(CONFIG) != 1:
                raise ReadError(f"{path}: holds '{CONFIG}' {names.count(CONFIG)} times, expected once. Save it again.")
            checksum = archive.getinfo(WEIGHTS).CRC
            config = parse_json(small_member(archive, CONFIG, path), path, CONFIG)
            metadata = parse_json(small_member(archive, METADATA, path), path, METADATA) if METADATA in names else {}
            image = weights_image(archive, file, path)
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
        raise ReadError(
            f"{path}: the zip archive cannot be read: {printable(error)}. "
            "The file is damaged; copy or download it again."
        ) from error
    version = metadata.get("keras_version")
    checkpoint = read_weights(
        [image],
        path=path,
        format=FORMAT,
        keras_version=version if isinstance(version, str) else None,
        model=config,
    )
    if (
        is_remote(path) and image.length > SMALL
    ):  # the checksum is of the whole member, and only the ranges that are needed are fetched
        return replace(checkpoint, notes=(*checkpoint.notes, UNCHECKED))
    return replace(checkpoint, check=lambda: check_weights(image, checksum))


def check_weights(image: Hdf5Image, checksum: int) -> None:
    """The weights are the bytes that were zipped; zipfile would check it, a memory map does not."""
    found = 0
    for start in range(0, image.length, CHUNK):
        found = zlib.crc32(image.part(start, min(CHUNK, image.length - start)).data, found)
    if found != checksum:
        raise ReadError(
            f"{image.path}: {WEIGHTS} has checksum {found:08x}, the zip says {checksum:08x}. "
            "The file is damaged; copy or download it again."
        )


def missing_weights(names: list[str]) -> str:
    """Why there is nothing to read, and what to do."""
    if "model.weights.npz" in names:
        return (
            "holds 'model.weights.npz', which needs unpickling, and that could run code. "
            "Save the model again in Keras' default form."
        )
    count = names.count(WEIGHTS)
    return f"holds '{WEIGHTS}' {count} times, expected once. Save the model again with model.save('x.keras')."


def small_member(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    """The content of a JSON member, bounded."""
    size = archive.getinfo(name).file_size
    if size > MAX_JSON:
        raise ReadError(
            f"{path}: {name} is {size} bytes, expected at most {MAX_JSON}. This is not a file that Keras wrote."
        )
    with archive.open(name) as member:
        return member.read(MAX_JSON + 1)


def weights_image(archive: zipfile.ZipFile, file: IO[bytes], path: Path) -> Hdf5Image:
    """Where the HDF5 member lies; a compressed one (a zip made by hand) is inflated where it is read."""
    member = archive.getinfo(WEIGHTS)
    is_encrypted = member.flag_bits & 1
    if member.file_size > MAX_RATIO * max(member.compress_size, 1):
        raise ReadError(
            f"{path}: {WEIGHTS} says that {member.compress_size} bytes inflate to {member.file_size}, more than "
            "a zip can hold. This is not a file that Keras wrote."
        )
    if is_encrypted or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return Hdf5Image(path, content=archive.read(WEIGHTS))
    file.seek(member.header_offset)
    head = file.read(LOCAL_HEADER.size)
    if len(head) < LOCAL_HEADER.size or not head.startswith(LOCAL_MAGIC):
        raise zipfile.BadZipFile(f"no local header of {WEIGHTS} at byte {member.header_offset}")
    header = LOCAL_HEADER.unpack(head)
    start = member.header_offset + LOCAL_HEADER.size + header[-2] + header[-1]
    if member.compress_type == zipfile.ZIP_DEFLATED:
        return Hdf5Image(path, content=Deflated(path, start, member.compress_size, member.file_size))
    return Hdf5Image(path, start, member.file_size)
