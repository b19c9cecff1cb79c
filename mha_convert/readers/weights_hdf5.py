"""``.weights.h5`` files: ``model.save_weights`` of Keras 3 (and 2.12 and later), without configuration."""

from pathlib import Path

from ..datatypes import Checkpoint
from ._hdf5 import MAGIC, Hdf5Image
from ._v3_layout import is_v3, read_weights

FORMAT = "weights.h5"


def accepts(head: bytes, path: Path) -> bool:
    """HDF5 in the v3 layout; the suffix says nothing."""
    if not head.startswith(MAGIC):
        return False
    with Hdf5Image(path).open() as root:
        return is_v3(root)


def read(path: Path) -> Checkpoint:
    """Describe the weights; raises ``ReadError`` for a damaged file."""
    return read_weights([Hdf5Image(path)], path=path, format=FORMAT, keras_version=None, model=None)
