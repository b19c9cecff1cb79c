"""Masks that are made twice are made once.

Keras 3 writes the operations by which it made masks into the graph, beside the masks that it hands on without a word:
``not_equal(tokens, 0)`` again for each layer that takes one, and the ``logical_or`` of a mask with itself. No value
changes by this; what is left is what one would write.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ..records.graph import Call, Graph, GraphLayer, Value, leaves
from .cuts import needed
from .masks import BOTH, EITHER, PAIRS, STEPS, TOKENS

# Operations with nothing but bits as results: the name under which equal ones are known.
BITS: Mapping[str, str] = {
    "ops.not_equal": "not_equal",
    "ops.logical_or": "or",
    "ops.logical_and": "and",
    EITHER: "or",
    BOTH: "and",
    STEPS: STEPS,
    PAIRS: PAIRS,
}
OF_ONE = ("or", "and")  # with the same twice, they are that


def once(graph: Graph) -> Graph:
    """The graph, and those nested in it, in which no mask is made of the same values a second time."""
    layers = {
        name: layer if layer.graph is None else replace(layer, graph=once(layer.graph))
        for name, layer in graph.layers.items()
    }
    instead: dict[Value, Value] = {}
    known: dict[Any, Value] = {}
    calls = []
    for old in graph.calls:
        call = with_instead(old, instead)
        made = Value(call.layer, call.number)
        key = key_of(call, graph.layers[call.layer])
        if key is not None and key[0] in OF_ONE and len(set(key[1])) == 1:
            instead[made] = key[1][0]
        elif key is not None and key in known:
            instead[made] = known[key]
        else:
            calls.append(call)
            if key is not None:
                known[key] = made
    outputs = changed(graph.outputs, instead)
    made_once = replace(graph, layers=MappingProxyType(layers), calls=tuple(calls), outputs=outputs)
    return replace(made_once, calls=needed(made_once).calls)  # all inputs stay arguments


def key_of(call: Call, layer: GraphLayer) -> tuple[str, tuple[Any, ...]] | None:
    """What two calls share that make the same mask; None for a call that makes none."""
    if not layer.is_operation:
        return None
    if layer.class_name == TOKENS:
        return "not_equal", (next(iter(call.values)), 0)
    name = BITS.get(layer.class_name)
    given = [*call.arguments, *call.keywords.values()]
    if name is None or not all(isinstance(item, Value | int | float) for item in given):
        return None
    if name in OF_ONE:
        return name, tuple(given)
    settings = tuple(sorted((key, str(value)) for key, value in layer.settings.items()))
    names = tuple(call.keywords) if name == PAIRS else ()
    return name, (*given, *names, *settings)


def with_instead(call: Call, instead: Mapping[Value, Value]) -> Call:
    """The call with other values in its arguments."""
    if not any(leaf in instead for leaf in leaves((call.arguments, call.keywords)) if isinstance(leaf, Value)):
        return call
    keywords = MappingProxyType({name: changed(item, instead) for name, item in call.keywords.items()})
    return replace(call, arguments=changed(call.arguments, instead), keywords=keywords)


def changed(tree: Any, instead: Mapping[Value, Value]) -> Any:
    """Arguments with other values in some places."""
    if isinstance(tree, Value):
        return instead.get(tree, tree)
    if isinstance(tree, tuple):
        return tuple(changed(item, instead) for item in tree)
    if isinstance(tree, Mapping):
        return MappingProxyType({key: changed(item, instead) for key, item in tree.items()})
    if isinstance(tree, slice):
        return slice(*(changed(item, instead) for item in (tree.start, tree.stop, tree.step)))
    return tree
