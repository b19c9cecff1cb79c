"""Unzipped ``.keras``: a folder of ``metadata.json``, ``config.json`` and ``model.weights.h5``, whole or in shards.

Written by ``model.save(folder, zipped=False)`` of Keras 3.4 and later, by whoever unzips a ``.keras`` file, and by
KerasHub (and KerasNLP) as a preset, ``save_to_preset(folder)``.
"""

from collections.abc import Collection
from dataclasses import replace

from ..files.locations import store_errors
from ..files.source import Source
from ..records.source import Checkpoint
from .hdf5.image import Hdf5Image
from .keras3.consistency import refuse_architecture
from .keras3.json_text import Json, json_file, parse_json
from .keras3.model_config import checked_model
from .keras3.weights_tree import read_weights
from .keras_zip import CONFIG, METADATA, WEIGHTS
from .links import refuse_links_out
from .probe import Probe
from .sharded import check_shards, shards_of

FORMAT, TITLE = "keras-folder", "unzipped .keras"
PRESET, PRESET_TITLE = "preset", "KerasHub preset"
SHARDS = "model.weights.json"
SUFFIXES, FOLDERS, BESIDE = (), (frozenset({CONFIG, WEIGHTS}), frozenset({CONFIG, SHARDS})), ""
TASK, TASK_WEIGHTS = "task.json", "task.weights.h5"
HUB_VERSIONS = ("keras_hub_version", "keras_nlp_version", "keras_cv_version")


def parts(names: Collection[str]) -> frozenset[str]:
    """The weights next to the configuration."""
    return frozenset({WEIGHTS, SHARDS}) if CONFIG in names else frozenset()


def accepts(probe: Probe) -> bool:
    """A folder with Keras' members."""
    folder = probe.source
    if not probe.is_folder:
        return False
    with store_errors(folder.place):
        return folder.child(CONFIG).is_file() and any(folder.child(name).is_file() for name in (WEIGHTS, SHARDS))


def read(source: Source, architecture: Json | None = None) -> Checkpoint:
    """Describe the model; raises ``ReadError`` for a damaged member."""
    refuse_architecture(architecture, source)
    refuse_links_out(source, *(source.child(name) for name in (CONFIG, METADATA, WEIGHTS, SHARDS, TASK)))
    config = checked_model(parse_json(json_file(source.child(CONFIG)), source, CONFIG), source)
    has_metadata, is_whole = source.child(METADATA).is_file(), source.child(WEIGHTS).is_file()
    has_task = source.child(TASK).is_file()
    metadata = parse_json(json_file(source.child(METADATA)), source, METADATA) if has_metadata else {}
    version = metadata.get("keras_version")
    is_preset = has_task or any(name in metadata for name in HUB_VERSIONS)
    shards = {} if is_whole else shards_of(source.child(SHARDS))
    images = [Hdf5Image(source.child(WEIGHTS))] if is_whole else [Hdf5Image(shard) for shard in shards]
    checkpoint = read_weights(
        images,
        source=source,
        format=PRESET if is_preset else FORMAT,
        keras_version=version if isinstance(version, str) else None,
        model=config,
    )
    if is_preset:
        checkpoint = replace(checkpoint, format_title=PRESET_TITLE)
    if not is_whole:
        check_shards(checkpoint, shards, source.child(SHARDS))
    if source.child(TASK_WEIGHTS).is_file():
        note = (
            f"The layers of the preset's task are in '{TASK_WEIGHTS}', which is not read here; pass that file for them."
        )
        checkpoint = replace(checkpoint, notes=(*checkpoint.notes, note))
    return checkpoint
