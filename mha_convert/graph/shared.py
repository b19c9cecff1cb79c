"""Which entries are one layer? A model may share a layer, or a whole model, with one inside it.

Every model lists it, with the same class, name and settings; that alone proves nothing, as two encoders made by one
function look the same. Keras 2.5 and later, and ``.keras`` files, give objects that they write several times a number
(Keras 3 not the first time). A ``.h5`` of Keras 3 has no such numbers, but then it holds the arrays once for each
model: they decide.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ..records.source import Checkpoint, Group
from .entries import GRAPH_KEYS, Entry
from .plain import DEEPEST, MalformedError

NUMBER = "shared_object_id"
FEW = 10  # layers that are alike, whose arrays are compared
MOST = 100  # layers that are alike, among which one without a number is looked for
PARTS = ("class_name", "registered_name", "module")


def find_shared(entries: Sequence[Entry], checkpoint: Checkpoint) -> None:
    """Let each entry stand for the first one of the same layer.

    Args:
        entries: of all layers, those of a model after it.
        checkpoint: whose arrays decide where the configuration does not.
    """
    if sum(entry.is_model for entry in entries) < 2:
        return
    digests = digests_of(entries)
    alike: dict[int, Alike] = {}
    stored = groups_of(checkpoint)
    parents = {child: entry for entry in entries for child in entry.layers.values()}
    for entry in entries[1:]:
        known = alike.setdefault(digests[entry], Alike())
        found = same_place(entry, parents) or known.by_number(entry) or same_arrays(entry, known.layers, stored)
        entry.stands_for = found or entry
        known.add(entry)


@dataclass(slots=True)
class Alike:
    """What was met so far of one name, class and settings: layers that are not the same, and their numbers."""

    layers: dict[Entry, Any] = field(default_factory=dict)
    numbered: dict[Any, Entry] = field(default_factory=dict)

    def by_number(self, entry: Entry) -> Entry | None:
        """The one that is written with the entry's number, or else the only one that has none yet."""
        number = entry.config.get(NUMBER)
        if type(number) is not int:
            return None
        if number in self.numbered:
            return self.numbered[number]
        without = [layer for layer, known in self.layers.items() if known is None] if len(self.layers) < MOST else []
        return without[0] if len(without) == 1 else None

    def add(self, entry: Entry) -> None:
        """Remember the layer of an entry, and the number that it is written with."""
        number = entry.config.get(NUMBER)
        self.layers.setdefault(entry.stands_for, None)
        if type(number) is int and self.layers[entry.stands_for] is None:
            self.layers[entry.stands_for] = number
            self.numbered[number] = entry.stands_for


def same_place(entry: Entry, parents: Mapping[Entry, Entry]) -> Entry | None:
    """The layer of this name in the model that the entry's own model stands for."""
    model = parents[entry]
    return model.stands_for.layers[entry.name].stands_for if model.stands_for is not model else None


def same_arrays(entry: Entry, known: Iterable[Entry], stored: Mapping[str, Group | None]) -> Entry | None:
    """The one whose arrays are those of the entry, byte for byte, in a file that keeps them for each model."""
    group = stored.get("/".join(entry.route))
    if group is None:
        return None
    return next((other for other in islice(known, FEW) if is_copy(group, stored.get("/".join(other.route)))), None)


def groups_of(checkpoint: Checkpoint) -> Mapping[str, Group | None]:
    """The groups of a file that repeats shared layers, by name; None where two have one name."""
    if not checkpoint.repeats_shared_layers:
        return {}
    found: dict[str, Group | None] = {}
    for group in checkpoint.root.walk():
        found[group.name] = None if group.name in found else group
    return found


def is_copy(group: Group, other: Group | None) -> bool:
    """Whether two groups hold the same arrays, and any."""
    if other is None:
        return False
    ours, theirs = ([v for part in each.walk() for v in part.variables.values()] for each in (group, other))
    same_form = [(v.shape, v.dtype) for v in ours] == [(v.shape, v.dtype) for v in theirs]
    return (
        bool(ours)
        and same_form
        and all(a.read().tobytes() == b.read().tobytes() for a, b in zip(ours, theirs, strict=True))
    )


def digests_of(entries: Sequence[Entry]) -> dict[Entry, int]:
    """A number for each entry: the same for entries with one class, name, settings and, of models, layers and calls."""
    numbers: dict[str, int] = {}
    found: dict[Entry, int] = {}
    for entry in reversed(entries):  # layers before their models
        inside = [[found[child], without_numbers(child.config.get("inbound_nodes"))] for child in entry.layers.values()]
        settings = {key: value for key, value in entry.settings.items() if not entry.is_model or key != GRAPH_KEYS[0]}
        facts = [entry.name, *(entry.config.get(part) for part in PARTS), without_numbers(settings), inside]
        found[entry] = numbers.setdefault(json.dumps(facts, sort_keys=True, default=str), len(numbers))
    return found


def without_numbers(data: Any, depth: int = 0) -> Any:
    """``data`` without the numbers of shared objects."""
    if depth > DEEPEST:
        raise MalformedError(f"settings or arguments are nested more than {DEEPEST} deep")
    if isinstance(data, dict):
        return {key: without_numbers(part, depth + 1) for key, part in data.items() if key != NUMBER}
    return [without_numbers(part, depth + 1) for part in data] if isinstance(data, list | tuple) else data
