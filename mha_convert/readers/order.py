"""Where the order of a file and the names in it say two things.

Genuine Keras loads weights by position: groups of ``.weights.h5`` by counting through the configuration, layers and
weights of ``.h5`` one after another. We go by the names in the file. In a file as Keras writes it both give the same;
where they do not, no reading is the right one for sure.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter

from ..classes import COMPOSITE, LayerClass, class_of, composite_with, nouns, part_names
from ..errors import ReadError, shortened
from ..records.source import Variable
from .keras3.json_text import Json, mapping
from .keras3.layer_names import assign, by_counting, container_entries
from .keras3.model_config import MODELS, child_layers, layer_config
from .tree import Node

CONTAINERS = ("layers", "_layer_checkpoint_dependencies")  # the latter in Keras 2.12 to 2.14
OWN_KINDS = ("kernel", "bias")
NAMELESS = "a layer without a name"
CHANGED = "The file was changed or put together from two models; save the model again."
LayerPath = tuple[str, ...]


@dataclass(frozen=True)
class Listed:
    """A weight that a layer of ``.h5`` lists; ``offset`` is where its numbers are in the file, if in one piece."""

    layer: str
    weight: str
    variable: Variable
    offset: int | None = None


@dataclass(frozen=True)
class Conflict:
    """One contradiction: ``where`` it stands, what the ``order`` says and what the ``name`` is."""

    where: str
    order: str
    name: str


def refuse_or_tell(conflicts: Sequence[Conflict], source: object, *, is_separate: bool) -> list[str]:
    """A file's own configuration is as true as its names, so it is refused; of a separate one a note tells.

    Args:
        conflicts: where layers would be exchanged.
        source: the file.
        is_separate: whether the configuration was given in a file of its own, and lists layers in its own order.
    """
    if not conflicts:
        return []
    first, more = conflicts[0], len(conflicts) - 1
    order, name = shortened(first.order, 60), shortened(first.name, 60)
    also = f", and so in {more} more places" if more > 1 else ", and so in 1 more place" if more else ""
    if not is_separate:
        raise ReadError(
            f"{source}: its configuration's order says that {first.where} is '{order}', the name in the "
            f"file says '{name}'{also}. Keras loads by order and would use '{name}' as '{order}'. {CHANGED}"
        )
    return [
        f"The configuration lists its layers in another order than the file: {first.where} is '{name}' in "
        f"the file, '{order}' by the order{also}. They are converted by their names; Keras' own load_weights loads by "
        "order and would swap them."
    ]


def labelled_otherwise(root: Node, model: Json) -> Iterator[Conflict]:
    """Groups of a v3 file whose label is another layer's than the one that counting gives, in all nested models.

    Labels are there since Keras 3.6, which counts every layer once. Only groups with variables matter.
    """
    stack = [(root, model, "")]
    while stack:
        node, entry, place = stack.pop()
        if not lists_its_layers(entry):
            continue
        for name in (name for name in CONTAINERS if name in node.children):
            groups = node.children[name].children
            labels = {group: child.label for group, child in groups.items() if child.label}
            weighted = [group for group, child in groups.items() if child.has_variables()]
            named = assign(entry, groups, labels, weighted, ()) if labels else {}
            counted = by_counting(container_entries(entry), groups, set(weighted), ())
            places = {group: f"{place}/{name}/{group}".lstrip("/") for group in weighted}
            for group in (group for group in counted if group in places and group in named):
                if counted[group] is not named[group]:
                    yield Conflict(f"'{places[group]}'", layer_name(counted[group]) or NAMELESS, labels[group])
            stack += [(groups[group], named.get(group, {}), place) for group, place in places.items()]


def lists_its_layers(entry: Json) -> bool:
    """Whether Keras makes the layers of ``entry`` in the order of its list; a class of a user's own may not."""
    return entry.get("class_name") in MODELS or "input_layers" in mapping(entry.get("config"))


def layer_name(entry: Json) -> str:
    """The name of a layer by its entry."""
    return layer_config(entry).name


def listed_otherwise(found: Sequence[Listed], model: Json) -> Iterator[Conflict]:
    """Layers of ``.h5`` that its list has in another order than the configuration.

    Only layers with weights count, as in Keras, and only those that both know by name.
    """
    if not lists_its_layers(model):
        return
    held = list(dict.fromkeys(item.layer for item in found))
    known = [layer_name(entry) for entry in child_layers(model)]
    both = set(held) & set(known)
    by_order = [name for name in known if name in both]
    by_name = [name for name in held if name in both]
    for number, (ours, theirs) in enumerate(zip(by_order, by_name, strict=True), 1):
        if ours != theirs:
            yield Conflict(f"number {number} of the layers with weights in layer_names", ours, theirs)


def nested_otherwise(
    found: Sequence[Listed], owners: Sequence[LayerPath], entries: Mapping[LayerPath, Json]
) -> Iterator[Conflict]:
    """Layers with parts in nested models of ``.h5`` whose weights come in another order than the configuration has.

    Args:
        found: every weight.
        owners: the layers that own it, as the tree has them.
        entries: the configuration's layers, in its order.

    What is trained comes before what is frozen. Layers with more than kernels and biases (adapters, scales) are left
    out: which of their variables are trained, the file does not say.
    """
    order = {place: number for number, place in enumerate(entries)}
    for _, items in groupby(zip(found, owners, strict=True), key=lambda pair: pair[0].layer):
        pairs = [(composite_around(owner, entries), item) for item, owner in items]
        odd = {place for place, item in pairs if kind_of(item) not in OWN_KINDS}
        held = list(dict.fromkeys(place for place, _ in pairs if place and place not in odd))
        by_order = sorted(held, key=order.__getitem__)
        trained_first = sorted(by_order, key=lambda place: is_frozen(place, entries))
        if held not in (by_order, trained_first):
            kinds = nouns(filter(None, (row_at(place, entries) for place in held)))
            yield from (
                Conflict(f"number {number} of the {kinds} in '{held[0][0]}'", "/".join(ours), "/".join(theirs))
                for number, (ours, theirs) in enumerate(zip(trained_first, held, strict=True), 1)
                if ours != theirs
            )


def composite_around(owner: LayerPath, entries: Mapping[LayerPath, Json]) -> LayerPath | None:
    """The layer of Keras' own that has parts, one of which owns a weight."""
    row = row_at(owner[:-1], entries)
    return owner[:-1] if row and row.parts else None


def row_at(place: LayerPath, entries: Mapping[LayerPath, Json]) -> LayerClass | None:
    """The class of the layer there, where it is Keras' own and has a row."""
    entry = entries.get(place)
    return class_of(layer_config(entry)) if entry else None


def is_frozen(place: LayerPath, entries: Mapping[LayerPath, Json]) -> bool:
    """Whether a layer or a model around it is not trained."""
    above = [place[:end] for end in range(1, len(place) + 1)]
    return any(mapping(entries.get(path, {}).get("config")).get("trainable") is False for path in above)


def kind_of(item: Listed) -> str:
    """``kernel``, ``bias``, … of a weight."""
    return item.weight.rpartition("/")[2].removesuffix(":0")


def exchanged_weights(
    found: Sequence[Listed], owners: Sequence[LayerPath], entries: Mapping[LayerPath, Json], source: object
) -> Iterator[str]:
    """Weights of one layer in ``.h5`` that are listed in another order than Keras makes them.

    Yields:
        A note for each layer where frozen parts explain it (Keras lists what is trained first), and for each that only
        looks like Keras' own, as the file has no configuration.

    Raises:
        ReadError: nothing explains it, or the arrays still are in the file in Keras' order, so the list was changed.
    """
    for layer, kinds in weights_of_layers(found, owners, entries).items():
        exchanged = next((each for items in kinds.values() if (each := first_exchanged(items))), None)
        if exchanged is None or not (entries or has_all_parts(kinds)):
            continue
        by_order, by_name = exchanged
        fact = (
            f"ayer '{shortened('/'.join(layer), 60)}' lists the weights of '{by_name}' where Keras makes those of "
            f"'{by_order}'"
        )
        is_explained = all(map(may_be_frozen, kinds.values())) and not all(map(lie_in_order, kinds.values()))
        if entries and not is_explained:
            raise ReadError(
                f"{source}: l{fact}. Keras loads by order and would use '{by_name}' as '{by_order}', the names "
                f"say otherwise. {CHANGED}"
            )
        yield (
            f"L{fact}, as it does where some of them are frozen or have LoRA adapters. They are converted by their "
            "names; Keras itself loads a .h5 by order, and would swap or refuse them."
        )


@dataclass(frozen=True)
class Numbered:
    """A weight with what it belongs to: its ``number`` among what Keras makes, and its ``name``."""

    number: int
    name: str
    item: Listed


Kinds = dict[Hashable, list[Numbered]]


def weights_of_layers(
    found: Sequence[Listed], owners: Sequence[LayerPath], entries: Mapping[LayerPath, Json]
) -> dict[LayerPath, Kinds]:
    """For each layer the weights that could be taken for one another, in the order of the list.

    Kernels and biases of parts are lists of their own, as quantizing and adapters freeze the kernels and not the
    biases; and so are variables of the layer itself that have different axes.
    """
    layers: dict[LayerPath, Kinds] = {}

    def add(layer: LayerPath, kind: Hashable, names: Sequence[str], name: str, item: Listed) -> None:
        if name in names:
            layers.setdefault(layer, {}).setdefault(kind, []).append(Numbered(names.index(name), name, item))

    for item, owner in zip(found, owners, strict=True):
        kind = kind_of(item)
        around, own = row_at(owner[:-1], entries), row_at(owner, entries)
        if not entries and kind and len(item.variable.shape) > 1:
            around = composite_with(owner[-1])
        add(owner[:-1], kind, [part.name for part in around.parts] if around else (), owner[-1], item)
        axes = {weight.name: weight.axes for weight in own.variables} if own else {}
        add(owner, axes.get(kind), list(axes), kind, item)
    return layers


def has_all_parts(kinds: Kinds) -> bool:
    """Whether the weights are of all parts that every layer of a class has."""
    present = {each.name for items in kinds.values() for each in items}
    return any(present >= set(part_names([row])) for row in COMPOSITE)


def first_exchanged(items: Sequence[Numbered]) -> tuple[str, str] | None:
    """What should be at the first place that has something else, and what is there."""
    in_order = sorted(items, key=attrgetter("number"))
    pairs = ((ours, theirs) for ours, theirs in zip(in_order, items, strict=True) if ours.number != theirs.number)
    return next(((ours.name, theirs.name) for ours, theirs in pairs), None)


def may_be_frozen(items: Sequence[Numbered]) -> bool:
    """Whether it is one ordered list (what is trained), and another one after it (what is frozen)."""
    return sum(second.number < first.number for first, second in pairwise(items)) <= 1


def lie_in_order(items: Sequence[Numbered]) -> bool:
    """Whether the arrays are in the file in the order in which Keras makes them; it writes them as it lists them."""
    offsets = [each.item.offset for each in sorted(items, key=attrgetter("number"))]
    known = [offset for offset in offsets if offset is not None]
    return len(known) == len(offsets) and known == sorted(known)
