"""Which layer of ``config.json`` a group of ``model.weights.h5`` belongs to.

Before Keras 3.6 the weights file does not hold the user's layer names: groups are called after the class, with a
counter. The names are found by counting as Keras did when it saved (``saving_lib._save_container_state``).
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ...classes import class_of
from ...records.source import LayerConfig, Version
from .json_text import Json
from .model_config import child_layers, descendants, is_nameless, layer_config

WEIGHTED_LAYERS_COUNT_TWICE = ((2, 12), (2, 14))  # "layer-N" and "layer_with_weights-N" were both enumerated
VISITED_LAYERS_DO_NOT_COUNT = ((2, 14), (3, 0))


def between(version: Version, bounds: tuple[Version, Version]) -> bool:
    """``bounds[0] <= version < bounds[1]``; False for an unknown version."""
    return bool(version) and bounds[0] <= version < bounds[1]


def snake_case(class_name: str) -> str:
    """``LayerNormalization`` as ``layer_normalization``, by the same steps as Keras."""
    name = re.sub(r"\W+", "", class_name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def stem_of(entry: Json) -> str:
    """What the groups of a layer's class are called, before the counter; a public name is not the class's own."""
    config = layer_config(entry)
    row = class_of(config)
    return snake_case(row.name if row else config.class_name)


def is_bare_operation(entry: Json) -> bool:
    """Keras 3 lists ops such as ``NotEqual`` among the layers; they have no group."""
    return str(entry.get("module") or "").startswith("keras.src.ops")


def container_entries(model: Json) -> list[Json]:
    """The layers that Keras counts when it saves ``model``."""
    entries = [entry for entry in child_layers(model) if not is_bare_operation(entry)]
    if str(model.get("class_name", "")).endswith("Sequential"):
        entries = [entry for entry in entries if entry.get("class_name") != "InputLayer"]
    return entries


def assign(
    model: Json, groups: Mapping[str, Any], named: Mapping[str, str], weighted: Iterable[str], version: Version
) -> dict[str, Json]:
    """Config entry of each group in the container of a Functional or Sequential model.

    Args:
        model: the model's own entry.
        groups: the groups in its container.
        named: ``{group: user's layer name}``, written by Keras 3.6 and later; wins where it is there. Entries without
            a name belong to groups of other names, by counting.
        weighted: groups that hold variables.
        version: of the Keras that saved.
    """
    entries = container_entries(model)
    names = Counter(layer_config(entry).name for entry in entries)
    by_name = {layer_config(entry).name: entry for entry in entries if names[layer_config(entry).name] == 1}
    if not named:
        return by_counting(entries, groups, set(weighted), version)
    known = {group: by_name[name] for group, name in named.items() if name in by_name}
    counted = by_counting(entries, groups, set(weighted), version) if any(map(is_nameless, entries)) else {}
    others = {group: entry for group, entry in counted.items() if group in named and group not in known}
    return known | {group: entry for group, entry in others.items() if is_nameless(entry)}


def by_counting(
    entries: list[Json], groups: Mapping[str, Any], weighted: set[str], version: Version
) -> dict[str, Json]:
    """The groups' entries where the file does not name them."""
    twice = between(version, WEIGHTED_LAYERS_COUNT_TWICE)
    if between(version, VISITED_LAYERS_DO_NOT_COUNT):
        entries = countable(without_visited(entries, groups), groups)
    used: Counter[str] = Counter()
    found: dict[str, Json] = {}
    for entry in entries:
        stem = stem_of(entry)
        group = f"{stem}_{used[stem]}" if used[stem] else stem
        used[stem] += 2 if twice and (group in weighted or group not in groups) else 1
        if group in groups:
            found[group] = entry
    return found


def unequal_counts(model: Json, groups: Mapping[str, Any], weighted: Iterable[str]) -> tuple[str, int, int] | None:
    """A class of which the file has another number of layers than the model: its name, the file's and the model's.

    Only where a count decides which layer is which: classes whose layers hold weights.
    """
    entries = without_visited(container_entries(model), groups)
    stems, present = Counter(map(stem_of, entries)), stem_counts(groups)
    for stem in stem_counts(weighted):
        if stems[stem] != present[stem]:
            return stem, present[stem], stems[stem]
    return None


def countable(entries: list[Json], groups: Iterable[str]) -> list[Json]:
    """Entries of those classes that have as many groups as entries.

    Where a layer is an attribute of the model as well, Keras stored it there and counted on without it: which one is
    missing cannot be told, so layers of its class keep the groups' names.
    """
    stems, present = Counter(map(stem_of, entries)), stem_counts(groups)
    return [entry for entry in entries if stems[stem_of(entry)] == present[stem_of(entry)]]


def in_excess(model: Json, groups: Iterable[str], chosen: Iterable[str]) -> list[str]:
    """Those of classes of which the file has more groups than the model has layers."""
    stems, present = Counter(map(stem_of, container_entries(model))), stem_counts(groups)
    return [group for group in chosen if present[stem := re.sub(r"_\d+$", "", group)] > stems[stem]]


def stem_counts(groups: Iterable[str]) -> Counter[str]:
    """Number of groups by what they are called before the counter."""
    return Counter(re.sub(r"_\d+$", "", group) for group in groups)


def identity(config: LayerConfig) -> str:
    """What two entries of one layer have in common."""
    return json.dumps([config.class_name, config.name, dict(config.settings)], sort_keys=True, default=str)


def without_visited(entries: list[Json], groups: Mapping[str, Any]) -> list[Json]:
    """Leave out layers that a nested model shares with this one, where the file has no group for them here.

    A shared layer has one configuration, wherever it is listed.
    """
    stems = Counter(map(stem_of, entries))
    present = stem_counts(groups)
    visited: set[str] = set()
    kept = []
    for entry in entries:
        config = layer_config(entry)
        stem = stem_of(entry)
        shared = identity(config) in visited and present[stem] < stems[stem]
        visited |= {identity(layer_config(child)) for _, child in descendants(entry)}
        if not shared:
            kept.append(entry)
    return kept
