"""``.keras`` files: a zip of ``metadata.json``, ``config.json`` and ``model.weights.h5`` (Keras 2.12 and later)."""

import stat
import struct
import zipfile
import zlib
from collections.abc import Collection
from dataclasses import replace
from typing import IO

from ..errors import ReadError, reason
from ..files.limits import way_on
from ..files.locations import SMALL
from ..files.source import Source
from ..records.source import Checkpoint
from .hdf5.deflated import Deflated
from .hdf5.image import Hdf5Image
from .keras3.consistency import refuse_architecture
from .keras3.json_text import Json, parse_json
from .keras3.model_config import checked_model
from .keras3.weights_tree import read_weights
from .probe import DAMAGED_ZIP, ZIP, Probe

FORMAT, TITLE = "keras", ".keras"
SUFFIXES, FOLDERS, BESIDE = (".keras",), (), ""
CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
CHUNK = 4 << 20
UNCHECKED = "Only parts of the file were fetched, so the zip's checksum of the weights was not verified."
ENCRYPTED, LOCAL_METHOD = 1, 3
COPY_AGAIN = "The file is damaged; copy or download it again."
LOCAL_HEADER = struct.Struct("<4s5H3I2H")  # PKWARE APPNOTE 4.3.7


def parts(names: Collection[str]) -> frozenset[str]:
    """None: a ``.keras`` file is a model by itself."""
    return frozenset()


def accepts(probe: Probe) -> bool:
    """A zip with Keras' ``config.json``."""
    return probe.members is not None and CONFIG in probe.members


def read(source: Source, architecture: Json | None = None) -> Checkpoint:
    """Describe the model; raises ``ReadError`` for a damaged archive, or one without HDF5 weights."""
    refuse_architecture(architecture, source)
    try:
        with source.open() as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            if WEIGHTS not in names:
                raise ReadError(f"{source} {missing_weights(names)}")
            for name in (CONFIG, WEIGHTS, METADATA):
                check_member(archive, name, source)
            checksum = archive.getinfo(WEIGHTS).CRC
            config = checked_model(parse_json(small_member(archive, CONFIG, source), source, CONFIG), source)
            metadata = (
                parse_json(small_member(archive, METADATA, source), source, METADATA) if METADATA in names else {}
            )
            image = weights_image(archive, file, source)
    except OSError as error:
        raise ReadError(f"{source} cannot be read: {reason(error)}. Check the disk, or copy it again.") from error
    except (*DAMAGED_ZIP, NotImplementedError, RuntimeError) as error:
        raise ReadError(
            f"{source}: its zip archive is damaged: where a member should begin, there is none. {COPY_AGAIN}"
        ) from error
    version = metadata.get("keras_version")
    checkpoint = read_weights(
        [image],
        source=source,
        format=FORMAT,
        keras_version=version if isinstance(version, str) else None,
        model=config,
    )
    if (
        source.is_remote and image.length > SMALL
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
            f"{image.source}: {WEIGHTS} has checksum {found:08x}, the zip says {checksum:08x}. "
            "The file is damaged; copy or download it again."
        )


def missing_weights(names: list[str]) -> str:
    """Why there is nothing to read, and what to do."""
    if "model.weights.npz" in names:
        return (
            "holds 'model.weights.npz', which needs unpickling, and that could run code. "
            "Save the model again in Keras' default form."
        )
    return f"holds '{WEIGHTS}' 0 times, expected once. Save the model again with model.save('x.keras')."


def check_member(archive: zipfile.ZipFile, name: str, source: Source) -> None:
    """A member that is used is there once (the metadata may be missing), and is stored as a file in a way we read.

    Raises:
        ReadError: other programs might take other bytes for it.
    """
    found = [member for member in archive.infolist() if member.orig_filename.split("\0")[0] == name]
    if len(found) > 1 or (name != METADATA and not found):
        raise ReadError(f"{source} holds '{name}' {len(found)} times, expected once. Save the model again.")
    for member in found:
        if member.flag_bits & ENCRYPTED:
            raise ReadError(f"{source}: {name} is encrypted. Unzip it with its password, and pass the folder.")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise ReadError(f"{source}: {name} is a link to another file, which is not followed. Save the model again.")
        if member.orig_filename != name:
            raise ReadError(f"{source}: {name} is called '{member.orig_filename}'. Keras did not write this.")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            method = zipfile.compressor_names.get(member.compress_type, "unknown")  # type: ignore[attr-defined]
            raise ReadError(
                f"{source}: {name} is compressed with method {member.compress_type} ({method}), expected none or "
                "deflate. Unzip it and pass the folder."
            )


def small_member(archive: zipfile.ZipFile, name: str, source: Source) -> bytes:
    """The content of a JSON member, bounded and checked."""
    member, most = archive.getinfo(name), source.limits.json
    if member.file_size > most:
        next_step = way_on(source.limits)
        raise ReadError(f"{source}: {name} is {member.file_size} bytes of JSON, expected at most {most}. {next_step}.")
    try:
        with archive.open(name) as file:
            content = file.read(member.file_size + 1)
    except DAMAGED_ZIP as error:
        raise ReadError(
            f"{source}: {name} is damaged: it is not where the zip says, or not the {member.file_size} bytes "
            f"(checksum {member.CRC:08x}) that it says. {COPY_AGAIN}"
        ) from error
    if len(content) != member.file_size:
        raise ReadError(f"{source}: {name} has {len(content)} bytes, expected {member.file_size}. {COPY_AGAIN}")
    return content


def weights_image(archive: zipfile.ZipFile, file: IO[bytes], source: Source) -> Hdf5Image:
    """Where the HDF5 member is; a deflated one (a zip made by hand) is inflated where it is read."""
    member = archive.getinfo(WEIGHTS)
    if member.file_size > source.limits.ratio * max(member.compress_size, 1):
        raise ReadError(
            f"{source}: {WEIGHTS} says that {member.compress_size} bytes inflate to {member.file_size}, more than "
            f"a zip can hold. {COPY_AGAIN}"
        )
    file.seek(member.header_offset)
    head = file.read(LOCAL_HEADER.size)
    if len(head) < LOCAL_HEADER.size or not head.startswith(ZIP):
        raise zipfile.BadZipFile
    header = LOCAL_HEADER.unpack(head)
    name = file.read(header[-2])
    if name != WEIGHTS.encode() or header[LOCAL_METHOD] != member.compress_type:
        raise ReadError(f"{source}: {WEIGHTS} has two descriptions in the zip that contradict each other. {COPY_AGAIN}")
    start = member.header_offset + LOCAL_HEADER.size + header[-2] + header[-1]
    if start + member.compress_size > archive.start_dir:
        raise ReadError(
            f"{source}: {WEIGHTS} would end at byte {start + member.compress_size}, in the zip's directory, which "
            f"begins at {archive.start_dir}. {COPY_AGAIN}"
        )
    if member.compress_type == zipfile.ZIP_DEFLATED:
        return Hdf5Image(source, content=Deflated(source, start, member.compress_size, member.file_size))
    if member.file_size != member.compress_size:
        raise ReadError(
            f"{source}: {WEIGHTS} says that it is stored in {member.compress_size} bytes and has {member.file_size}. "
            f"{COPY_AGAIN}"
        )
    return Hdf5Image(source, start, member.file_size)
