"""The weights layout of ``.keras`` and ``.weights.h5``: ``<container>/<layer>/<attribute>/vars/<i>``.

Written by Keras 2.12 and later (``saving_lib``). A layer's variables are numbered in creation order (0 the kernel,
1 the bias); since Keras 3.6 ``vars`` carries the layer's name in its attribute ``name``.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...classes import COMPOSITE, REQUIRED, nouns
from ...errors import ReadError
from ...files.source import Source
from ...records.source import Checkpoint, Group, LayerConfig, Role, Variable, Version, version_of
from ..hdf5.image import Hdf5Array, Hdf5Group, Hdf5Image
from ..order import CONTAINERS, labelled_otherwise, refuse_or_tell
from ..tree import Node
from .consistency import check_fits, check_holds_required, check_names_all, check_sizes
from .json_text import Json
from .layer_names import (
    VISITED_LAYERS_DO_NOT_COUNT,
    WEIGHTED_LAYERS_COUNT_TWICE,
    assign,
    between,
    in_excess,
    snake_case,
    unequal_counts,
)
from .losses import lost_by_optimizer
from .model_config import child_layers, layer_config, listed_configs

OWN = "vars"  # a layer's own variables
NOT_LAYERS: dict[str, Role] = {"optimizer": "optimizer", "metrics": "metric"}
NAMES_BY_COUNTING = (
    "This file does not hold the layers' names: they are the architecture's, in its order. They are right if it is the "
    "very model that was saved."
)
NESTED_LISTS_ARE_LOST = ((2, 12), (3, 15))


def is_keras_3(architecture: Json) -> bool:
    """Keras 3 writes where a class lives, Keras 2 which version it is."""
    return "module" in architecture


def is_v3(root: Hdf5Group) -> bool:
    """Keras always writes a group ``vars`` at the root."""
    return root.holds("vars")


def read_weights(
    images: Sequence[Hdf5Image],
    *,
    source: Source,
    format: str,
    keras_version: str | None,
    model: Json | None = None,
    architecture: Json | None = None,
) -> Checkpoint:
    """Describe v3 weights, in one image or in several that make one tree.

    Args:
        images: where the weights are.
        source: as the user gave it.
        format: its name.
        keras_version: of the Keras that saved, where known.
        model: its ``config.json``, where there is one.
        architecture: the same from a file of its own, which may be another model's.
    """
    if architecture is not None:
        model = architecture
        written_by = architecture.get("keras_version")
        keras_version = keras_version or (written_by if isinstance(written_by, str) else None)
    version = version_of(keras_version)
    root = Node()
    for image in images:
        with image.open() as file:
            for parts, found in contents(file):
                place(root, parts, found, image)
    others = tuple(
        replace(variable, role=role)
        for name, role in NOT_LAYERS.items()
        for node in root.children.pop(name, Node()).walk()
        for variable in node.variables.values()
    )
    namer = Namer(version, source, is_separate=architecture is not None)
    tree = namer.group(root, "", "", model or {}, outermost=True)
    check_fits(tree, architecture, source)
    may_be_unnamed = between(version, VISITED_LAYERS_DO_NOT_COUNT)
    check_holds_required(tree, model or {}, source, may_be_unnamed=may_be_unnamed)
    check_sizes(tree, source)
    conflicts = list(labelled_otherwise(root, model or {}))
    notes = (
        *refuse_or_tell(conflicts, source, is_separate=architecture is not None),
        *lost_in_nested_lists(tree, version, root),
        *lost_by_optimizer(tree, others),
        *([NAMES_BY_COUNTING] if architecture and not any(node.label for node in root.walk()) else []),
    )
    return Checkpoint(
        path=str(source),
        format=format,
        keras_version=keras_version,
        has_config=model is not None,
        has_layer_names=model is not None or any(node.label for node in root.walk()),
        root=tree,
        others=others,
        notes=notes,
        listed=listed_configs(model or {}),
    )


def contents(root: Hdf5Group) -> Iterator[tuple[list[str], Variable | str | None]]:
    """Every array, and every group's label, with its path split into parts.

    Keras 2.15 on Windows wrote ``layers\\dense`` as one name; the backslash separates, too.
    """
    stack: list[tuple[list[str], Hdf5Group]] = [([], root)]
    while stack:
        parts, group = stack.pop()
        for name, item in group.members():
            path = [*parts, *(part for part in re.split(r"[\\/]", name) if part)]
            if isinstance(item, Hdf5Array):
                yield path, item.variable()
            else:
                stack.append((path, item))
                label = item.attribute("name") if path[-1] == "vars" else None
                yield path, label if isinstance(label, str) else None


def place(root: Node, path: list[str], found: Variable | str | None, image: Hdf5Image) -> None:
    """Put one finding into the tree; ``vars`` belongs to the group that holds it, and holds nothing but arrays."""
    if path.count(OWN) > 1 or (OWN in path[:-1] and not (isinstance(found, Variable) and path[-2] == OWN)):
        raise ReadError(
            f"{image.source}: '{'/'.join(path)}' is in a group '{OWN}', which holds nothing but arrays. "
            "Keras never writes that; it is not read."
        )
    if isinstance(found, Variable):
        variables = root.at(part for part in path[:-1] if part != "vars").variables
        if path[-1] in variables:
            raise ReadError(f"{image.source} holds '{found.path}' a second time. The shards are not of one save.")
        variables[path[-1]] = found
    else:
        node = root.at(part for part in path if part != "vars")
        node.label = found or node.label


def natural(name: str) -> list[Any]:
    """Sort key that puts ``layer_2`` before ``layer_10``."""
    parts = re.split(r"(\d+)", name)  # text and digits in turn; a number may have more digits than int() takes
    return [(len(part.lstrip("0")), part.lstrip("0")) if index % 2 else part for index, part in enumerate(parts)]


@dataclass(frozen=True)
class Namer:
    """Turns nodes into named groups; ``is_separate`` where the JSON is not the file's, and may be another model's."""

    version: Version
    source: object
    is_separate: bool = False

    def group(self, node: Node, path: str, name: str, entry: Json, *, outermost: bool) -> Group:
        """The group at ``path``; ``entry`` is its own JSON (empty where unknown).

        ``outermost`` is True as long as only models (not custom layers) are between it and the file's root.
        """
        children: dict[str, Group] = {}
        for attribute_name in sorted(node.children, key=natural):
            child = node.children[attribute_name]
            place = f"{path}/{attribute_name}".lstrip("/")
            if attribute_name in CONTAINERS:
                children |= self.container(child, place, name, entry, outermost=outermost)
            else:
                full_name = f"{name}/{attribute_name}".lstrip("/")
                children[attribute_name] = self.group(child, place, full_name, {}, outermost=False)
        variables = {key: node.variables[key] for key in sorted(node.variables, key=natural)}
        config: LayerConfig | None = layer_config(entry) if entry else None
        return Group(path=path, name=name, config=config, variables=variables, children=children)

    def container(self, node: Node, path: str, name: str, model: Json, *, outermost: bool) -> dict[str, Group]:
        """The layers of a model (or in an attribute called ``layers``), by a key that no attribute has."""
        # Which entry of the JSON each group is, by its label or by counting.
        labels = {group: child.label for group, child in node.children.items() if child.label}
        weighted = [group for group, child in node.children.items() if child.has_variables()]
        entries = assign(model, node.children, labels, weighted, self.version) if child_layers(model) else {}
        # Whether labels, counts and the JSON agree.
        if child_layers(model):
            check_labels(self.source, labels)
        if self.is_separate and child_layers(model) and not labels:
            check_counting(self.source, model, node, weighted, entries, self.version)
        if not self.is_separate and child_layers(model):
            strange = [group for group in weighted if group not in entries]
            if not labels and between(self.version, VISITED_LAYERS_DO_NOT_COUNT):
                strange = in_excess(model, node.children, strange)
            elif not labels and (unequal := unequal_counts(model, node.children, weighted)):
                stem, ours, theirs = unequal
                raise ReadError(
                    f"{self.source} holds {ours} layers '{stem}', {theirs} in its configuration, so their "
                    "names cannot be determined. The file was changed or put together from two models; "
                    "save the model again."
                )
            check_names_all(model, [labels.get(group, group) for group in strange], self.source)
        # The groups in the order of the JSON's layers, those without an entry last.
        order = {group: position for position, group in enumerate(entries)}
        if labels:
            positions = {id(entry): i for i, entry in enumerate(child_layers(model))}
            order = {group: positions.get(id(entries.get(group)), len(positions)) for group in node.children}
        groups: dict[str, Group] = {}
        for key in sorted(node.children, key=lambda group: (order.get(group, len(order)), natural(group))):
            child, entry = node.children[key], entries.get(key, {})
            own_name = (layer_config(entry).name if entry else "") or self.label(key, child, outermost)
            full_name = f"{name}/{own_name}".lstrip("/")
            inner = outermost and (bool(child_layers(entry)) or (not entry and is_model(child)))
            groups[f"{path}/{key}"] = self.group(child, f"{path}/{key}", full_name, entry, outermost=inner)
        return groups

    @staticmethod
    def label(group_name: str, node: Node, outermost: bool) -> str:
        """The layer's name where the file has it and it says more than a process-wide counter."""
        stem = re.sub(r"_\d+$", "", group_name)
        counted = node.label is not None and re.fullmatch(rf"{re.escape(stem)}(_\d+)?", node.label)
        return node.label if node.label and (outermost or not counted) else group_name


def check_counting(
    source: object, model: Json, node: Node, weighted: list[str], entries: dict[str, Json], version: Version
) -> None:
    """Names by counting hold only for the very model that was saved, by a Keras that counts so."""
    if unequal := unequal_counts(model, node.children, weighted):
        stem, ours, theirs = unequal
        raise ReadError(
            f"{source} holds {ours} layers '{stem}', {theirs} in the architecture. "
            "It is another model's; pass this model's."
        )
    doubled = assign(model, node.children, {}, weighted, WEIGHTED_LAYERS_COUNT_TWICE[0])
    if not version and not is_keras_3(model) and doubled != entries:
        raise ReadError(
            f"{source}: its groups are numbered, and Keras 2.12 and 2.13 use other numbers than the rest; "
            'the architecture does not say who wrote it. Add "keras_version": "2.15.0" (yours) to the JSON.'
        )


def check_labels(source: object, labels: Mapping[str, str]) -> None:
    """The layers of one model have different names."""
    name, times = next(iter(Counter(labels.values()).most_common(1)), ("", 0))
    if times > 1:
        raise ReadError(
            f"{source} holds {times} layers called '{name}' in one model. The file was changed; save the model again."
        )


def is_model(node: Node) -> bool:
    """Whether a group without JSON looks like a nested model: it has a container of layers."""
    return any(name in CONTAINERS for name in node.children)


def lost_in_nested_lists(tree: Group, version: Version, root: Node) -> Iterator[str]:
    """What Keras before 3.15 left out of the file: layers in lists of lists inside a custom layer."""
    custom = sorted({group.config.title for group in tree.walk() if group.config and may_hold_lists(group)})
    if not custom or not between(version, NESTED_LISTS_ARE_LOST):
        return
    missing = [name for row in REQUIRED for name in skipped(snake_case(row.name), root)]
    trace = (
        f"the automatic names in this file skip {', '.join(missing[:5])}" if missing else "such a file does not show it"
    )
    yield (
        f"Custom classes ({', '.join(custom)}): Keras before 3.15 does not save layers that sit in lists of lists "
        f"inside a custom layer; {trace}. Compare the number of {nouns(REQUIRED)} with your model's."
    )


def skipped(stem: str, root: Node) -> list[str]:
    """Names of a class that Keras' counter made and that the file does not hold, below the highest that it does."""
    found = [re.fullmatch(rf"{stem}(?:_(\d+))?", node.label or "") for node in root.walk()]
    numbers = {int(match[1] or 0) for match in found if match}
    return [f"{stem}_{number}" if number else stem for number in sorted(set(range(max(numbers, default=0))) - numbers)]


def may_hold_lists(group: Group) -> bool:
    """A custom class that does not itself have the parts of one of Keras' own."""
    config = group.config
    is_custom = config is not None and (config.is_own or config.registered_name is not None)
    known = tuple(row.known_attribute for row in COMPOSITE)
    return is_custom and not any(name.endswith(known) for name in group.children)
