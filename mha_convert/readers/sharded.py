"""Sharded weights: ``x.weights.json`` and ``x_00000.weights.h5``, … (``save_weights(max_shard_size=…)``, Keras 3.10).

The index names for each group of variables the shard that holds it: one name in Keras 3.10, a list since 3.11. A group
may be empty in the shard before the one with its data, so all shards are read as one tree.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ..errors import ReadError
from ..files.source import Source
from ..records.source import Checkpoint
from .hdf5.image import Hdf5Image
from .keras3.json_text import Json, json_file, mapping, parse_json
from .keras3.weights_tree import read_weights
from .links import refuse_links_out
from .probe import Probe

FORMAT, TITLE = "sharded", "sharded weights"
INDEX_END = ".weights.json"
SUFFIXES, FOLDERS, BESIDE = (INDEX_END,), (), "{stem}_*.weights.h5"


def parts(names: Collection[str]) -> frozenset[str]:
    """None: the shards are ``weights_hdf5``'s, and the index is the model."""
    return frozenset()


def accepts(probe: Probe) -> bool:
    """The index, or a folder that holds one."""
    if probe.head:
        return b'"weight_map"' in probe.head
    return probe.is_folder and len(probe.source.children(f"*{INDEX_END}")) == 1


def read(source: Source, architecture: Json | None = None) -> Checkpoint:
    """Describe the weights; raises ``ReadError`` for a missing shard, or one that lacks what the index promises."""
    index = source.children(f"*{INDEX_END}")[0] if source.is_folder() else source
    shards = shards_of(index)
    images = [Hdf5Image(shard) for shard in shards]
    checkpoint = read_weights(images, source=source, format=FORMAT, keras_version=None, architecture=architecture)
    check_shards(checkpoint, shards, index)
    return checkpoint


def shards_of(index: Source) -> dict[Source, list[str]]:
    """The shards that an index names, each with the groups that it should hold."""
    places = mapping(parse_json(json_file(index), index, "the index").get("weight_map"))
    found: dict[Source, list[str]] = {}
    for group, names in places.items():
        for name in shard_names(names, index):
            found.setdefault(index.beside(name), []).append(group)
    if not found:
        raise ReadError(f"{index}: its weight_map names no shard. Save the weights again.")
    for shard in found:
        if not shard.is_file():
            raise ReadError(f"{index}: its shard '{shard.name}' is not next to it. Copy all shards into one folder.")
    refuse_links_out(index.folder, *found)
    return dict(sorted(found.items(), key=lambda item: item[0].name))


def check_shards(checkpoint: Checkpoint, shards: Mapping[Source, list[str]], index: Source) -> None:
    """Every group that the index names must have come out of the shards."""
    held = {variable.path.rpartition("/")[0] for variable in checkpoint.variables}
    missing = sorted(group for groups in shards.values() for group in groups if group.strip("/") not in held)
    if missing:
        raise ReadError(
            f"{index} lists '{missing[0]}', which none of its {len(shards)} shards holds. "
            "The shards are not of one save; copy them again."
        )


def shard_names(names: Any, index: Source) -> list[str]:
    """One or several file names next to the index; anything that leads elsewhere is refused."""
    listed = names if isinstance(names, list) else [names]
    for name in listed:
        if not isinstance(name, str) or not name or name in (".", "..") or set(name) & set("/\\\0"):
            raise ReadError(f"{index} names the shard '{name}', expected a file next to it. Save it again.")
    return listed
