"""Unzipped ``.keras``: a folder of ``metadata.json``, ``config.json`` and ``model.weights.h5``.

Written by ``model.save(folder, zipped=False)`` of Keras 3.4 and later, and by whoever unzips a ``.keras`` file.
"""

from pathlib import Path

from ..datatypes import Checkpoint
from ..errors import ReadError, reason
from ._config import parse_json
from ._hdf5 import Hdf5Image
from ._v3_layout import read_weights
from .keras_zip import CONFIG, MAX_JSON, METADATA, WEIGHTS

FORMAT = "keras-folder"


def accepts(head: bytes, path: Path) -> bool:
    """A folder with Keras' members."""
    return path.is_dir() and (path / CONFIG).is_file() and (path / WEIGHTS).is_file()


def read(path: Path) -> Checkpoint:
    """Describe the model; raises ``ReadError`` for a damaged member."""
    config = parse_json(member(path / CONFIG), path, CONFIG)
    metadata = parse_json(member(path / METADATA), path, METADATA) if (path / METADATA).is_file() else {}
    version = metadata.get("keras_version")
    return read_weights(
        [Hdf5Image(path / WEIGHTS)],
        path=path,
        format=FORMAT,
        keras_version=version if isinstance(version, str) else None,
        model=config,
    )


def member(path: Path) -> bytes:
    """The content of a JSON member, bounded."""
    try:
        size = path.stat().st_size
        if size > MAX_JSON:
            raise ReadError(f"{path}: is {size} bytes, expected at most {MAX_JSON}. Keras did not write this.")
        return path.read_bytes()
    except OSError as error:
        raise ReadError(f"{path}: cannot be read: {reason(error)}. Copy the folder again.") from error
