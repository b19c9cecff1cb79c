"""A part of a model: up to a layer, or without the activation that ends it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from ..errors import LayerError, listed, shortened
from ..layers.plain.activations import KERAS_3, OF_LAYERS, activation_of
from ..records.graph import Call, Graph, GraphLayer, Value, leaves
from ..records.layer import Layer, PlainLayer

ENDS = frozenset(("softmax", "sigmoid", "log_softmax"))
OPERATIONS = frozenset(f"ops.{name}" for name in ENDS)
MOST_TOLD = 8


def until(graph: Graph, name: str) -> Graph:
    """The graph whose output is what a layer returns in its last call; inputs that it does not need are left out.

    Raises:
        LayerError: the model does not call such a layer.
    """
    calls = [call for call in graph.calls if call.layer == name]
    if not calls:
        known = listed(dict.fromkeys(call.layer for call in graph.calls), MOST_TOLD)
        raise LayerError(f"The model does not call a layer '{shortened(name, 80)}'. Its layers are: {known}.")
    layer = graph.layers[name]
    number = calls[-1].number
    count = 1 if layer.graph is None else len(list(leaves(layer.graph.outputs)))
    outputs = tuple(Value(name, number, output) for output in range(count))
    return needed(replace(graph, outputs=outputs[0] if count == 1 else outputs))


def needed(graph: Graph) -> Graph:
    """The calls and inputs that the outputs depend on."""
    wanted = {(value.layer, value.call) for value in leaves(graph.outputs)}
    kept: list[Call] = []
    for call in reversed(graph.calls):
        if (call.layer, call.number) in wanted:
            kept.append(call)
            wanted.update((value.layer, value.call) for value in call.values)
    return replace(graph, calls=tuple(reversed(kept)), inputs=used_inputs(graph.inputs, wanted))


def used_inputs(tree: Any, wanted: set[tuple[str, int]]) -> Any:
    """The tree of inputs without those that nothing needs."""
    if isinstance(tree, Value):
        return tree if (tree.layer, tree.call) in wanted else ()
    if isinstance(tree, Mapping):
        kept = {key: used_inputs(item, wanted) for key, item in tree.items()}
        return {key: item for key, item in kept.items() if item != ()}
    parts = tuple(part for item in tree if (part := used_inputs(item, wanted)) != ())
    return parts[0] if len(parts) == 1 and len(tree) > 1 else parts


def logits(graph: Graph, layers: Mapping[GraphLayer, Layer]) -> tuple[Graph, dict[GraphLayer, Layer]]:
    """The graph and its layers without a last softmax or sigmoid, as PyTorch's losses want it.

    Raises:
        LayerError: no output of the model ends in one.
    """
    changed: dict[GraphLayer, Layer] = dict(layers)
    instead: dict[Value, Value] = {}
    found = 0
    for value in leaves(graph.outputs):
        layer = graph.layers[value.layer]
        item = layers.get(layer)
        if item is None:
            continue
        call = next(call for call in graph.calls if (call.layer, call.number) == (value.layer, value.call))
        if is_activation(item):
            instead[value] = call.values[0]
        elif ends(item) and sum(other.layer == value.layer for other in graph.calls) == 1:
            changed[layer] = replace(cast("PlainLayer", item), settings={**item.settings, "activation": None})
        else:
            continue
        found += 1
    if not found:
        raise LayerError(
            "No output of the model ends in a softmax or sigmoid of its own. Leave --logits (logits=) out."
        )
    return needed(replace(graph, outputs=replaced(graph.outputs, instead))), changed


def is_activation(item: Layer) -> bool:
    """Whether a layer is a softmax or sigmoid and nothing else."""
    if item.kind in OPERATIONS:
        return True
    activation = OF_LAYERS[item.kind](item.settings, KERAS_3) if item.kind in OF_LAYERS else None
    return activation is not None and activation.name in ENDS


def ends(item: Layer) -> bool:
    """Whether a layer applies a softmax or sigmoid to its result."""
    activation = activation_of(item.settings.get("activation")) if "activation" in item.settings else None
    return activation is not None and activation.name in ENDS and not item.kind.startswith("ops.")


def replaced(tree: Any, instead: Mapping[Value, Value]) -> Any:
    """A tree with other values in some places."""
    if isinstance(tree, Value):
        return instead.get(tree, tree)
    if isinstance(tree, Mapping):
        return {key: replaced(item, instead) for key, item in tree.items()}
    return tuple(replaced(item, instead) for item in tree)
