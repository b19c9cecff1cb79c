"""Files and folders that are not what they are mistaken for: each is named, with the way on.

Rows of data: how the file begins or what it holds, what it is, what to do.
"""

import codecs
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import IO

from ..files.limits import ARCHIVE, MEMBERS
from ..files.shell import IN_ERRORS, command
from ..files.source import Source
from .probe import Probe

ENOUGH = 512  # bytes of an index of TensorFlow.js
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")


@dataclass(frozen=True)
class Impostor:
    """What a file really is, and what its owner can do."""

    what: str
    next_step: str


SAVE_AGAIN = "Save the model with model.save('x.keras') in the Keras that can load it."
PICKLE = Impostor("a Python pickle, which could run code and is not opened", SAVE_AGAIN)

BY_HEAD: tuple[tuple[bytes, Impostor], ...] = (
    (
        b"versionhttps://git-lfs",
        Impostor("a Git LFS pointer, not the file itself", "Run `git lfs pull` to fetch the file."),
    ),
    (b"\x1f\x8b", Impostor("a gzip archive", "Unpack it (`gunzip` or `tar xzf`) and pass the Keras file inside.")),
    (b"BZh", Impostor("a bzip2 archive", "Unpack it and pass the Keras file inside.")),
    (b"7z\xbc\xaf", Impostor("a 7-Zip archive", "Unpack it and pass the Keras file inside.")),
    (b"Rar!", Impostor("a RAR archive", "Unpack it and pass the Keras file inside.")),
    (b"\x93NUMPY", Impostor("a NumPy array", SAVE_AGAIN)),
    (b"CDF", Impostor("a NetCDF file", SAVE_AGAIN)),
    (b"PK\x05\x06", Impostor("an empty zip archive", SAVE_AGAIN)),
    *((bytes((0x80, protocol)), PICKLE) for protocol in range(2, 6)),
)

WEB_PAGE = Impostor("a web page or XML text", "The download failed; fetch the file itself ('raw' or 'download').")
LOOK_FOR_KERAS = "Look for the Keras file that it was made from."
TFJS = Impostor(
    "a TensorFlow.js layers model",
    "It is not read yet: convert it back with `tensorflowjs_converter --input_format tfjs_layers_model "
    "--output_format keras model.json model.h5`.",
)
TFJS_GRAPH = Impostor("a TensorFlow.js graph model, whose layers are fused", LOOK_FOR_KERAS)
TFJS_INDEX = "model.json"
# What a text begins with or, as a part of JSON, holds; without blanks, and in small letters.
BY_TEXT: tuple[tuple[re.Pattern[str], Impostor], ...] = (
    (re.compile("<"), WEB_PAGE),
    (re.compile(r"\{.*\"format\":\"graph-model\""), TFJS_GRAPH),
    (re.compile(r"\{.*\"(modeltopology|weightsmanifest)\":"), TFJS),
    (
        re.compile(r"\{"),
        Impostor(
            "JSON text: an architecture without weights",
            "Pass the file with the weights (.weights.h5 or .h5), and this one with --config.",
        ),
    ),
)
WEB_PAGES = (b"<!doctype", b"<html", b"<?xml")  # in any encoding
TFLITE_AT, TFLITE_MAGIC = 4, b"TFL3"
TFLITE = Impostor("a TensorFlow Lite model, whose layers are fused", LOOK_FOR_KERAS)

UNPACK = "Unpack it (`{command}`) and pass that file."
# How a member's name ends; {kind} of archive, {member}, and the {command} that unpacks it.
BY_MEMBER: tuple[tuple[str, Impostor], ...] = (
    ("data.pkl", Impostor("a PyTorch file already", "Load it with torch.load(path, weights_only=True).")),
    (".npy", Impostor("a NumPy .npz archive", SAVE_AGAIN)),
    (
        "saved_model.pb",
        Impostor("a {kind} archive of a SavedModel, {member}", "Unpack it (`{command}`) and pass the folder."),
    ),
    (".keras", Impostor("a {kind} archive that holds the .keras file {member}", UNPACK)),
    (".h5", Impostor("a {kind} archive that holds the HDF5 file {member}", UNPACK)),
    (".hdf5", Impostor("a {kind} archive that holds the HDF5 file {member}", UNPACK)),
    (
        ".index",
        Impostor(
            "a {kind} archive that holds the TensorFlow checkpoint {member}",
            "Unpack it (`{command}`) and pass the folder.",
        ),
    ),
    (".zip", Impostor("a zip in a {kind} archive: {member}", UNPACK)),
)

BY_FILE_IN_FOLDER: tuple[tuple[str, Impostor], ...] = (
    (
        "model.weights.h5",
        Impostor(
            "a folder with weights, without the config.json of an unzipped .keras",
            "Pass the file model.weights.h5 in it.",
        ),
    ),
)

CHECKPOINT = Impostor(
    "a part of a TensorFlow checkpoint, damaged or of a save that did not end",
    "Pass the checkpoint's files (x.index, x.data-00000-of-00001), or copy them again.",
)
# How a file is called and begins, where the beginning alone tells little; {stem} is its name before
# the suffix.
BY_NAME: tuple[tuple[re.Pattern[str], bytes, Impostor], ...] = (
    (re.compile(r".+-shard\d+of\d+(\.bin)?"), b"", Impostor("a shard of a TensorFlow.js model", TFJS.next_step)),
    (
        re.compile(r"(?P<stem>.+)\.meta"),
        b"\n",
        Impostor(
            "the graph of a TensorFlow checkpoint",
            "Pass {stem}, the checkpoint next to it: its .index and its .data files.",
        ),
    ),
    (
        re.compile(r".+\.pb"),
        b"\n",
        Impostor("a frozen graph of TensorFlow, whose weights are constants that belong to no layer", LOOK_FOR_KERAS),
    ),
    (
        re.compile(r".+\.pb"),
        b"\x08\x01",
        Impostor("the graph of a SavedModel under another name", "Pass the folder with saved_model.pb and variables/."),
    ),
)
SAVED_MODEL_PARTS = ("saved_model.pb", "keras_metadata.pb", "fingerprint.pb")
SAVED_MODEL_FILE = Impostor("a part of a TensorFlow SavedModel", "Pass the folder with saved_model.pb.")
SAFETENSORS = Impostor("a safetensors file, already in PyTorch's form", "Pass the Keras file that it came from.")
OTHER_HDF5 = Impostor(
    "an HDF5 file, but not one of Keras",
    "It has neither Keras' list of layers nor a group 'vars'; pass the file that model.save or save_weights wrote.",
)
EMPTY = Impostor("empty", "Copy or download it again.")
TEXT = Impostor("a text file", "Pass the file that model.save or save_weights wrote.")
UNKNOWN = Impostor(
    "not in a format that Keras writes",
    "Pass the file that model.save or save_weights wrote (.keras, .h5, .weights.h5).",
)
OTHER_ZIP = Impostor("a zip archive without Keras' config.json", "Pass the .keras file that model.save wrote.")


def recognise(probe: Probe, suffixes: tuple[str, ...]) -> Impostor:
    """What the file or folder is, as well as can be told; ``suffixes`` are those of models in a folder."""
    head, source = probe.head, probe.source
    if probe.is_folder:
        return next(
            (found for name, found in BY_FILE_IN_FOLDER if source.child(name).exists()),
            of_a_browser(source) or a_folder(source, suffixes),
        )
    # By its first bytes, then by its name, then by its text.
    if not head:
        return EMPTY
    if probe.is_zip:
        return in_zip(probe)
    if head.startswith(b"\x89HDF"):
        return OTHER_HDF5
    if head.startswith(COMPRESSED) or head[257:262] == b"ustar":
        return in_tar(source) or known_by_head(head) or UNKNOWN
    if source.name in SAVED_MODEL_PARTS:
        return SAVED_MODEL_FILE
    if source.name == "checkpoint" or source.place.suffix == ".index" or ".data-0" in source.name:
        return CHECKPOINT
    if head[8:9] == b"{" and head[5:8] == b"\0\0\0":
        return SAFETENSORS
    return known_by_head(head) or (TEXT if text_of(head) is not None else known_by_name(head, source.name) or UNKNOWN)


def of_a_browser(folder: Source) -> Impostor | None:
    """What a folder is that TensorFlow.js wrote; None for any other."""
    index = folder.child(TFJS_INDEX)
    if not index.is_file():
        return None
    with index.open() as file:
        found = known_by_head(file.read(ENOUGH))
    return found if found in (TFJS, TFJS_GRAPH) else None


def known_by_name(head: bytes, name: str) -> Impostor | None:
    """By what it is called and how it begins."""
    for pattern, magic, impostor in BY_NAME:
        match = pattern.fullmatch(name)
        if match and head.startswith(magic):
            stem = match.groupdict().get("stem") or ""
            return Impostor(impostor.what, impostor.next_step.format(stem=stem))
    return None


def a_folder(folder: Source, suffixes: tuple[str, ...]) -> Impostor:
    """A folder that is not a model itself, with the models in it."""
    inside = sorted(item.name for item in folder.children() if item.name.lower().endswith(suffixes))
    if not inside:
        return Impostor("a folder without a saved model", "Pass the file or folder that model.save wrote.")
    more = f" and {len(inside) - 4} more" if len(inside) > 4 else ""
    return Impostor(f"a folder that holds {', '.join(inside[:4])}{more}", "Pass one of them.")


def known_by_head(head: bytes) -> Impostor | None:
    """By how the file begins, a text without its blanks."""
    if b"".join(head.split()).lower().startswith(WEB_PAGES):
        return WEB_PAGE
    if head[TFLITE_AT:].startswith(TFLITE_MAGIC):
        return TFLITE
    text = text_of(head)
    if text is not None:
        words = "".join(text.split())
        found = next((known for pattern, known in BY_TEXT if pattern.match(words.lower())), None)
        if found:
            return found
        head = words.encode()
    return next((known for magic, known in BY_HEAD if head.startswith(magic)), None)


def in_zip(probe: Probe) -> Impostor:
    """What a zip without Keras' members holds."""
    if probe.members is None:
        return Impostor("a zip archive that ends too early or is damaged", "Copy or download it again.")
    return in_archive("zip", probe.members, command("unzip", probe.source.name, IN_ERRORS)) or OTHER_ZIP


def in_tar(source: Source) -> Impostor | None:
    """What a tar archive, compressed or not, holds; None where it is none."""
    names: list[str] = []
    with (
        suppress(OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError),
        source.open() as file,
        tarfile.open(fileobj=Bounded(file), mode="r|*") as archive,
    ):
        names += (member.name for member in islice(archive, MEMBERS))
    if not names:
        return None
    unpacked = in_archive("tar", names, command("tar xf", source.name, IN_ERRORS))
    return unpacked or Impostor("a tar archive without a Keras file", "Pass the file that model.save wrote.")


class Bounded(io.RawIOBase):
    """The beginning of a file, for archives that are only looked into."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.left = file, ARCHIVE

    def read(self, size: int = -1) -> bytes:
        """At most what is left of ``ARCHIVE``."""
        content = self.file.read(self.left if size < 0 else min(size, self.left))
        self.left -= len(content)
        return content


def in_archive(kind: str, names: Iterable[str], unpack: str) -> Impostor | None:
    """The first member that says what the archive is for, and the command that takes it out."""
    listed = list(names)
    for ending, impostor in BY_MEMBER:
        member = next((name for name in listed if name.rstrip("/").endswith(ending)), None)
        if member is not None:
            what = impostor.what.format(kind=kind, member=f"'{member}'")
            return Impostor(what, impostor.next_step.format(command=unpack))
    return None


def text_of(head: bytes) -> str | None:
    """The bytes as text in UTF-8, which may end within a letter; None where they are none."""
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError:
        return None
    return text if all(letter.isprintable() or letter.isspace() for letter in text) else None
