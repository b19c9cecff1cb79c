"""``.weights.h5`` files: ``model.save_weights`` of Keras 3 (and 2.12 and later).

They hold no configuration; that may come from a JSON next to them.
"""

import re
from collections.abc import Collection

from ..errors import ReadError
from ..files.source import Source
from ..records.source import Checkpoint
from .hdf5.image import Hdf5Image
from .keras3.json_text import Json
from .keras3.weights_tree import is_v3, read_weights
from .probe import Probe
from .sharded import INDEX_END

FORMAT, TITLE = "weights.h5", ".weights.h5"
SUFFIXES, FOLDERS, BESIDE = (".weights.h5",), (), ""
SHARD = re.compile(r"(.+)_\d{5}\.weights\.h5")


def parts(names: Collection[str]) -> frozenset[str]:
    """Shards whose index is next to them."""
    shards = (SHARD.fullmatch(name) for name in names)
    return frozenset(shard[0] for shard in shards if shard and shard[1] + INDEX_END in names)


def accepts(probe: Probe) -> bool:
    """HDF5 in the v3 layout, or a shard of it; the suffix says nothing."""
    return probe.root is not None and (is_v3(probe.root) or index_of_shard(probe.source) is not None)


def index_of_shard(source: Source) -> Source | None:
    """The index next to the file that it is one shard of."""
    shard = SHARD.fullmatch(source.name)
    index = source.beside(shard[1] + INDEX_END) if shard else None
    return index if index and index.is_file() else None


def read(source: Source, architecture: Json | None = None) -> Checkpoint:
    """Describe the weights; raises ``ReadError`` for a damaged file, and for one shard of several."""
    if index := index_of_shard(source):
        raise ReadError(
            f"{source} is one shard of '{index.name}' next to it, and holds a part of the weights. "
            "Pass that file, or the folder."
        )
    return read_weights(
        [Hdf5Image(source)], source=source, format=FORMAT, keras_version=None, architecture=architecture
    )
