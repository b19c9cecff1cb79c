"""Sizes that a model takes of its own tensors: ``tf.shape(x)[1]`` as an argument of a later call.

Such an argument becomes a mapping of the tensor and the axis, so that the call reads the size itself; the calls that
made a tensor of it are left out where nothing else takes them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ..records.graph import Call, Graph, Value, leaves

SHAPE, ITEM = "ops.shape", "ops.getitem"
TENSOR, AXIS = "size_of", "axis"


def sizes_in_calls(graph: Graph) -> Graph:
    """The graph, and those nested in it, with sizes read where they are used."""
    layers = {
        name: layer if layer.graph is None else replace(layer, graph=sizes_in_calls(layer.graph))
        for name, layer in graph.layers.items()
    }
    tensors: dict[Value, Value] = {}
    found: dict[Value, Any] = {}
    calls: list[Call] = []
    for call in graph.calls:
        kind = graph.layers[call.layer].class_name
        own = Value(call.layer, call.number)
        if kind == SHAPE and isinstance(call.arguments[0], Value):
            tensors[own] = call.arguments[0]
        elif kind == ITEM and call.arguments[0] in tensors and type(call.keywords.get("key")) is int:
            found[own] = size_of(tensors[call.arguments[0]], call.keywords["key"])
        elif found:
            call = replace(
                call,
                arguments=tuple(replaced(item, found) for item in call.arguments),
                keywords=MappingProxyType({name: replaced(item, found) for name, item in call.keywords.items()}),
            )
        calls.append(call)
    kept = tuple(used(calls, graph, {*tensors, *found}))
    return replace(graph, layers=MappingProxyType(layers), calls=kept)


def size_of(tensor: Value, axis: int) -> Mapping[str, Any]:
    """One size of a tensor, as an argument."""
    return MappingProxyType({TENSOR: tensor, AXIS: axis})


def replaced(tree: Any, found: Mapping[Value, Any]) -> Any:
    """A tree of arguments with the sizes in it."""
    if isinstance(tree, Value):
        return found.get(tree, tree)
    if isinstance(tree, tuple):
        return tuple(replaced(item, found) for item in tree)
    if isinstance(tree, slice):
        return slice(replaced(tree.start, found), replaced(tree.stop, found), replaced(tree.step, found))
    return tree


def used(calls: list[Call], graph: Graph, sizes: set[Value]) -> Iterator[Call]:
    """All calls but those that made sizes which nothing takes any more."""
    wanted = set(leaves(graph.outputs))
    kept = []
    for call in reversed(calls):
        own = Value(call.layer, call.number)
        if own not in sizes or own in wanted:
            kept.append(call)
            wanted.update(call.values)
    return reversed(kept)
