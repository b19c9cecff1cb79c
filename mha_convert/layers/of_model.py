"""Which kind is each layer of a graph, and where are its arrays? Every array of the file must have a layer.

Attention is found as for every conversion (``survey``); all other kinds are rows of ``plain``, matched by the class and
the settings that the graph has, with or without a place in the file: a layer without arrays need not have one.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..classes import OF_NAME
from ..errors import LayerError, listed, shortened
from ..records.graph import Graph, GraphLayer
from ..records.layer import AttentionLayer, Findings, Layer, PlainLayer, operation
from ..records.source import Checkpoint, Group, Variable, Version
from .companions import FLOATS
from .plain import ROWS
from .settings import compute_dtype, faults, strangers, values

ATTENTION = {"MultiHeadAttention": "MultiHeadAttention", "GroupedQueryAttention": "GroupQueryAttention"}
ATTENTION |= {kind: kind for kind in ATTENTION.values()}
WITHOUT_EFFECT_EVERYWHERE = ("activity_regularizer", "quantization_config", "registered_name", "shared_object_id")
COUNTERS = ("count",)  # whole numbers, on which no output depends
MOST_TOLD = 6
NOT_OF_LAYERS = ("optimizer", "metric", "counter", "copy")


def model_layers(
    graph: Graph, checkpoint: Checkpoint, findings: Findings, operations: Container[str], whole: Graph
) -> dict[GraphLayer, Layer]:
    """Each layer of a graph that is called, with its settings checked and its arrays.

    Args:
        graph: of the model, with the nested ones; its operations have rows, too.
        checkpoint: that it is from.
        findings: from ``survey``.
        operations: that have a rule.
        whole: the graph that this one is a part of, or the same: its layers may have arrays, too.

    Raises:
        LayerError: layers have no kind, a setting is not one of its class, arrays contradict the settings, or some
            array of the file has no layer. Everything of one sort is told at once.
    """
    called = [*called_layers(graph)]
    refuse_without_kind(called, operations)
    groups = Groups(checkpoint)
    attention = {layer.name: layer for layer in findings.layers if isinstance(layer, AttentionLayer)}
    found: dict[GraphLayer, Layer] = {}
    problems: list[str] = []
    for layer in called:
        if layer.is_operation:
            found[layer] = operation(layer.name, layer.class_name)
            continue
        if layer.class_name in ATTENTION:
            projected = next((attention[name] for name in names_of(layer) if name in attention), None)
            if projected is None:
                problems.append(f"layer '{layer.name}' {reason(layer, findings)}")
            else:
                found[layer] = projected
            continue
        item = of_row(layer, groups.of(layer), checkpoint.version)
        if isinstance(item, PlainLayer):
            found[layer] = item
        else:
            problems += [f"layer '{layer.name}' ({layer.class_name}): {fact}" for fact in item]
    if problems:
        raise LayerError(f"{told(problems)}. Port these layers by hand.")
    refuse_left(checkpoint, whole, found, copies(groups, found))
    return found


def called_layers(graph: Graph) -> Iterator[GraphLayer]:
    """Each layer that is called, once, in the order of the calls, those of nested models after the model's own."""
    seen: set[GraphLayer] = set()
    for each in graph.walk():
        for call in each.calls:
            layer = each.layers[call.layer]
            if layer not in seen and layer.graph is None:
                seen.add(layer)
                yield layer


def has_kind(layer: GraphLayer, operations: Container[str]) -> bool:
    """Whether the layer is of a kind that can be converted, or needs none: an input, or a model with its own graph."""
    if layer.is_operation:
        return layer.class_name in operations
    if layer.is_input or (layer.graph is not None and not layer.graph.is_own):
        return True
    return not layer.is_own and layer.class_name in (*ROWS, *ATTENTION)


def refuse_without_kind(called: Sequence[GraphLayer], operations: Container[str]) -> None:
    """All classes that have no kind, with one of the layers of each."""
    missing = [layer for layer in called if not has_kind(layer, operations)]
    if not missing:
        return
    counts = Counter(title(layer) for layer in missing)
    first = {title(layer): layer.name for layer in reversed(missing)}
    facts = [
        f"{name} ('{shortened(first[name], 40)}'{f' and {number - 1} more' if number > 1 else ''})"
        for name, number in counts.items()
    ]
    why = next((words for is_such, words in REASONS if any(map(is_such, missing))), "it has no rule yet")
    raise LayerError(
        f"{len(missing)} of {len(called)} layers cannot be converted: {told(facts)}. Reason: {why}. "
        "To convert the attention alone, use mha-convert convert; mha-convert inspect --graph lists all calls."
    )


REASONS: Sequence[tuple[Callable[[GraphLayer], bool], str]] = (
    (lambda layer: layer.is_own, "the file holds the name of a class of somebody's own, and not what it computes"),
    (lambda layer: layer.class_name == "Lambda", "a Lambda is Python code, and no code of a file is run or read"),
)


def title(layer: GraphLayer) -> str:
    """The class in words."""
    return f"operation {layer.class_name}" if layer.is_operation else layer.title


def told(facts: Sequence[str]) -> str:
    """Some facts in one sentence, and how many more there are."""
    more = f"; and {len(facts) - MOST_TOLD} more" if len(facts) > MOST_TOLD else ""
    text = "; ".join(facts[:MOST_TOLD]) + more
    return text[0].upper() + text[1:] if text.startswith("layer ") else text


def names_of(layer: GraphLayer) -> list[str]:
    """What the file may call the layer: by each of the routes that lead to it."""
    return ["/".join(route) for route in layer.routes]


def reason(layer: GraphLayer, findings: Findings) -> str:
    """Why attention was not found."""
    names = names_of(layer)
    item = next((item for item in findings.not_converted if item.name in names), None)
    return f"is not converted: {item.reason}" if item else "is attention, and the file holds no weights of it"


class Groups:
    """The groups of a file by the names that people know; None where two have one."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.by_name: dict[str, Group | None] = {}
        for group in checkpoint.root.walk():
            self.by_name[group.name] = None if group.name in self.by_name else group

    def of(self, layer: GraphLayer) -> Group | None:
        """The layer's place in the file."""
        return next(self.all_of(layer), None)

    def all_of(self, layer: GraphLayer) -> Iterator[Group]:
        """Every place of the layer: ``.h5`` stores one that several models share with each of them."""
        yield from (group for name in names_of(layer) if (group := self.by_name.get(name)) is not None)


def of_row(layer: GraphLayer, group: Group | None, version: Version) -> PlainLayer | list[str]:
    """The layer by the row of its class, or all that speaks against it, in words."""
    settings = as_lists(layer.settings)
    return plain_layer(layer.class_name, layer.name, settings, group, version)


def plain_layer(
    class_name: str, name: str, said: Mapping[str, Any], group: Group | None, version: Version
) -> PlainLayer | list[str]:
    """A layer by its class, settings and place in the file, or all that speaks against it, in words."""
    row = ROWS[class_name]
    without_effect = (*row.without_effect, *WITHOUT_EFFECT_EVERYWHERE)
    problems = [*map(str, faults(row.settings, said)), *strangers(row.settings, without_effect, said)]
    if problems:
        return problems
    settings = row.normalized(values(row.settings, said))
    inside: list[PlainLayer] = []
    for part, its_group in row.inside(settings, group):
        item = of_wrapped(part, its_group, version)
        if not isinstance(item, PlainLayer):
            return item
        inside.append(item)
    known = OF_NAME.get(row.kind)
    roles = [weight.name for weight in known.made(settings)] if known else []
    arrays = arrays_of_parts(inside, row.prefixes) if inside else stored_arrays(roles, group)
    if arrays is None:
        held = ", ".join(f"{shortened(key, 40)} {found.shape}" for key, found in (variables_of(group) or {}).items())
        return [f"it holds {held or 'no variables'}, expected {' and '.join(roles) or 'none'}"]
    layer = PlainLayer(
        name=name,
        kind=row.kind,
        path=group.path if group else name,
        arrays=arrays,
        settings=settings,
        class_name=class_name,
        compute_dtype=compute_dtype(said.get("dtype")),
        version=version,
        inside=tuple(inside),
        doubt=group.doubt if group else None,
    )
    return list(row.faults(layer, group)) or layer


def of_wrapped(part: Mapping[str, Any], group: Group | None, version: Version) -> PlainLayer | list[str]:
    """A layer inside a wrapper, which the wrapper's settings describe."""
    class_name, config = part.get("class_name"), part.get("config")
    if not isinstance(class_name, str) or class_name not in ROWS or not isinstance(config, Mapping):
        return [f"it wraps a layer of class {shortened(repr(class_name), 40)}, which has no rule inside a wrapper"]
    return plain_layer(class_name, str(config.get("name", class_name)), config, group, version)


def arrays_of_parts(inside: Sequence[PlainLayer], prefixes: Sequence[str]) -> dict[str, Variable]:
    """The variables of the layers in a wrapper, each under its layer's prefix."""
    return {
        f"{prefix}{role}": variable
        for part, prefix in zip(inside, prefixes, strict=True)
        for role, variable in part.arrays.items()
    }


def stored_arrays(roles: Sequence[str], group: Group | None) -> dict[str, Variable] | None:
    """The variables of a group by Keras' names; None where it holds others."""
    variables = variables_of(group)
    for stored in (roles, [str(number) for number in range(len(roles))]):
        if set(stored) == set(variables):
            found = {role: variables[place] for role, place in zip(roles, stored, strict=True)}
            are_numbers = all(variable.dtype in FLOATS or role in COUNTERS for role, variable in found.items())
            return found if are_numbers else None
    return None


def variables_of(group: Group | None) -> Mapping[str, Variable]:
    """The variables of a layer, or of the only part of it that has some: a cell, or what a wrapper wraps."""
    if group is None:
        return {}
    parts = [part for part in group.walk() if part.variables and not is_seed(part)]
    return (
        parts[0].variables
        if len(parts) == 1
        else {f"{part.path}/{key}": found for part in parts for key, found in part.variables.items()}
    )


def is_seed(part: Group) -> bool:
    """Whether it is the random state of a dropout, which the v3 layout stores."""
    return part.path.rpartition("/")[2].startswith("seed_generator")


def as_lists(data: Any) -> Any:
    """Plain data as JSON has it: tuples are lists."""
    if isinstance(data, Mapping):
        return {key: as_lists(value) for key, value in data.items()}
    return [as_lists(value) for value in data] if isinstance(data, tuple | list) else data


def copies(groups: Groups, found: Mapping[GraphLayer, Layer]) -> set[str]:
    """The arrays of layers that the file stores once more, by their paths.

    Raises:
        LayerError: two copies of one array differ.
    """
    paths = set()
    for layer in found:
        places = [*groups.all_of(layer)]
        for group in places[1:]:
            kept = dict(placed(places[0]))
            for place, variable in placed(group):
                original = kept.get(place)
                if original is None:
                    continue
                if variable.shape != original.shape or not np.array_equal(variable.read(), original.read()):
                    raise LayerError(
                        f"Layer '{shortened(layer.name, 80)}' is stored more than once, and {original.path} and "
                        f"{variable.path} differ. Which of them Keras used cannot be told; save the model again."
                    )
                paths.add(variable.path)
    return paths


def placed(group: Group) -> Iterator[tuple[str, Variable]]:
    """The arrays of a layer, by their places in its group."""
    for part in group.walk():
        for name, variable in part.variables.items():
            yield f"{part.path.removeprefix(group.path)}/{name}", variable


def refuse_left(
    checkpoint: Checkpoint, graph: Graph, found: Mapping[GraphLayer, Layer], copied: Container[str]
) -> None:
    """Every array of the file belongs to a layer that is converted, or to one that no output depends on."""
    taken = {
        variable.path for layer in found.values() for item in with_parts(layer) for variable in item.stored_variables
    }
    unused = {name for layer in idle(graph, found) for name in names_of(layer)}
    left = [
        f"{variable.path} {variable.shape}"
        for group in checkpoint.root.walk()
        if not is_seed(group) and not any(group.name == name or group.name.startswith(f"{name}/") for name in unused)
        for variable in group.variables.values()
        if variable.path not in taken and variable.path not in copied and variable.role not in NOT_OF_LAYERS
    ]
    if left:
        raise LayerError(
            f"{len(left)} arrays of the file belong to no layer of its graph: {listed(left, MOST_TOLD)}. "
            "The configuration is another model's, or the file was changed; save the model again."
        )


def with_parts(layer: Layer) -> Iterator[Layer]:
    """A layer, and those inside it."""
    yield layer
    for part in layer.inside if isinstance(layer, PlainLayer) else ():
        yield from with_parts(part)


def idle(graph: Graph, found: Mapping[GraphLayer, Layer]) -> Iterator[GraphLayer]:
    """Layers of a graph, and of those nested in it, that no output depends on."""
    for each in graph.walk():
        yield from (layer for layer in each.layers.values() if layer.graph is None and layer not in found)
