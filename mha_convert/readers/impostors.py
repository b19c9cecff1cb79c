"""Files and folders that are not what they are taken for: each is named, with the way on.

Rows of data: how the file begins or what it holds, what it is, what to do.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Impostor:
    """What a file really is, and what its owner can do."""

    what: str
    next_step: str


RESAVE_SAVED_MODEL = "SavedModel is not read yet; load it where it was made and save it as .keras or .weights.h5."
RESAVE_CHECKPOINT = "Checkpoints are not read yet; load the weights where they were made and save them as .weights.h5."
SAVE_AGAIN = "Save the model with model.save('x.keras') in the Keras that can load it."
PICKLE = Impostor("a Python pickle, which could run code and is not opened", SAVE_AGAIN)

BY_HEAD: tuple[tuple[bytes, Impostor], ...] = (
    (
        b"versionhttps://git-lfs",
        Impostor("a Git LFS pointer, not the file itself", "Run `git lfs pull` to fetch the file."),
    ),
    (b"<", Impostor("a web page or XML text", "The download failed; fetch the file itself ('raw' or 'download').")),
    (b"\x1f\x8b", Impostor("a gzip archive", "Unpack it (`gunzip` or `tar xzf`) and give the Keras file inside.")),
    (b"BZh", Impostor("a bzip2 archive", "Unpack it and give the Keras file inside.")),
    (b"7z\xbc\xaf", Impostor("a 7-Zip archive", "Unpack it and give the Keras file inside.")),
    (b"Rar!", Impostor("a RAR archive", "Unpack it and give the Keras file inside.")),
    (b"\x93NUMPY", Impostor("a NumPy array", SAVE_AGAIN)),
    (b"CDF", Impostor("a NetCDF file", SAVE_AGAIN)),
    (b"PK\x05\x06", Impostor("an empty zip archive", SAVE_AGAIN)),
    *((bytes((0x80, protocol)), PICKLE) for protocol in range(2, 6)),
    (
        b"{",
        Impostor(
            "JSON text: an architecture without weights",
            "Give the file that holds the weights (.weights.h5 or .h5).",
        ),
    ),
)

BY_MEMBER: tuple[tuple[str, Impostor], ...] = (
    ("data.pkl", Impostor("a PyTorch file already", "Load it with torch.load(path, weights_only=True).")),
    (".npy", Impostor("a NumPy .npz archive", SAVE_AGAIN)),
    (
        "saved_model.pb",
        Impostor(
            "a zip of a TensorFlow SavedModel",
            RESAVE_SAVED_MODEL,
        ),
    ),
    (".keras", Impostor("a zip that holds a .keras file", "Unpack it and give the .keras file inside.")),
    (".h5", Impostor("a zip that holds an HDF5 file", "Unpack it and give the .h5 file inside.")),
    (".zip", Impostor("a zip in a zip", "Unpack it and give the Keras file inside.")),
)

BY_FILE_IN_FOLDER: tuple[tuple[str, Impostor], ...] = (
    (
        "saved_model.pb",
        Impostor(
            "a TensorFlow SavedModel",
            RESAVE_SAVED_MODEL,
        ),
    ),
    (
        "model.weights.h5",
        Impostor(
            "a folder with weights, without the config.json of an unzipped .keras",
            "Give the file model.weights.h5 in it.",
        ),
    ),
    (
        "checkpoint",
        Impostor(
            "a folder of TensorFlow checkpoints",
            RESAVE_CHECKPOINT,
        ),
    ),
)

CHECKPOINT = Impostor(
    "part of a TensorFlow checkpoint",
    RESAVE_CHECKPOINT,
)
SAVED_MODEL_FILE = Impostor(
    "part of a TensorFlow SavedModel",
    RESAVE_SAVED_MODEL,
)
SAFETENSORS = Impostor("a safetensors file, already in PyTorch's form", "Give the Keras file that it came from.")
OTHER_HDF5 = Impostor(
    "an HDF5 file, but not one of Keras",
    "It has neither Keras' list of layers nor a group 'vars'; give the file that model.save or save_weights wrote.",
)
EMPTY = Impostor("empty", "Copy or download it again.")
TEXT = Impostor("a text file", "Give the file that model.save or save_weights wrote.")
UNKNOWN = Impostor(
    "of no format that Keras writes", "Give the file that model.save or save_weights wrote (.keras, .h5, .weights.h5)."
)
OTHER_ZIP = Impostor("a zip archive without Keras' config.json", "Give the .keras file that model.save wrote.")


def recognise(head: bytes, path: Path) -> Impostor:
    """What the file or folder is, as well as can be told."""
    if path.is_dir():
        return next(
            (found for name, found in BY_FILE_IN_FOLDER if (path / name).exists()),
            Impostor("a folder", "Give one file."),
        )
    if not head:
        return EMPTY
    if head.startswith(b"PK\x03\x04"):
        return in_zip(path)
    if head.startswith(b"\x89HDF"):
        return OTHER_HDF5
    if path.name in ("saved_model.pb", "keras_metadata.pb"):
        return SAVED_MODEL_FILE
    if path.name == "checkpoint" or path.suffix == ".index" or ".data-0" in path.name:
        return CHECKPOINT
    if head[8:9] == b"{" and head[5:8] == b"\0\0\0":
        return SAFETENSORS
    dense = b"".join(head.split())
    known = next((found for magic, found in BY_HEAD if head.startswith(magic) or dense.startswith(magic)), None)
    return known or (TEXT if is_text(head) else UNKNOWN)


def in_zip(path: Path) -> Impostor:
    """What a zip without Keras' members holds."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return Impostor("a zip archive that ends too early or is damaged", "Copy or download it again.")
    found = (impostor for ending, impostor in BY_MEMBER if any(name.endswith(ending) for name in names))
    return next(found, OTHER_ZIP)


def is_text(head: bytes) -> bool:
    """Whether the bytes read as UTF-8 text."""
    try:
        return head[:-4].decode("utf-8").isprintable() or (b"\n" in head and b"\0" not in head)
    except UnicodeDecodeError:
        return False
