"""Sharded weights: ``x.weights.json`` and ``x_00000.weights.h5``, … (``save_weights(max_shard_size=…)``, Keras 3.10).

The index names for each group of variables the shard that holds it: one name in Keras 3.10, a list since 3.11. A group
may stand empty in the shard before the one with its data, so all shards are read as one tree.
"""

from pathlib import Path
from typing import Any

from ..datatypes import Checkpoint
from ..errors import ReadError, printable
from ._config import mapping, parse_json
from ._hdf5 import Hdf5Image
from ._v3_layout import read_weights
from .keras_folder import member

FORMAT = "sharded"
INDEX_END = ".weights.json"


def accepts(head: bytes, path: Path) -> bool:
    """The index, or a folder that holds one."""
    return b'"weight_map"' in head or (path.is_dir() and len(list(path.glob(f"*{INDEX_END}"))) == 1)


def read(path: Path) -> Checkpoint:
    """Describe the weights; raises ``ReadError`` for a missing shard, or one that lacks what the index promises."""
    index = next(path.glob(f"*{INDEX_END}")) if path.is_dir() else path
    places = mapping(parse_json(member(index), index, "the index").get("weight_map"))
    shards = {group: shard_names(names, index) for group, names in places.items()}
    images = [Hdf5Image(shard(index, name)) for name in sorted({name for names in shards.values() for name in names})]
    if not images:
        raise ReadError(f"{index}: its weight_map names no shard. Save the weights again.")
    checkpoint = read_weights(images, path=path, format=FORMAT, keras_version=None, model=None)
    held = {variable.path.rpartition("/")[0] for variable in checkpoint.variables}
    missing = sorted(group for group in shards if group.strip("/") not in held)
    if missing:
        raise ReadError(
            f"{index}: lists '{printable(missing[0])}', which none of its {len(images)} shards holds. "
            "The shards are not of one save; copy them again."
        )
    return checkpoint


def shard_names(names: Any, index: Path) -> list[str]:
    """One or several file names beside the index; anything that leads elsewhere is refused."""
    listed = names if isinstance(names, list) else [names]
    for name in listed:
        if not isinstance(name, str) or not name or name in (".", "..") or set(name) & set("/\\\0"):
            raise ReadError(f"{index}: names the shard '{printable(name)}', expected a file beside it. Save it again.")
    return listed


def shard(index: Path, name: str) -> Path:
    """The shard's path."""
    path = index.with_name(name)
    if not path.is_file():
        raise ReadError(f"{index}: its shard '{printable(name)}' is not beside it. Copy all shards into one folder.")
    return path
