"""The order in which one reads a model: a branch is finished before the next one begins.

Keras orders calls by their distance from the outputs, which mixes the lines of branches that are as long.
"""

from dataclasses import replace
from types import MappingProxyType

from ..records.graph import Call, Graph, leaves


def in_reading_order(graph: Graph) -> Graph:
    """The same calls, each right after those that it needs, the first argument's first; nested graphs, too."""
    layers = {
        name: layer if layer.graph is None else replace(layer, graph=in_reading_order(layer.graph))
        for name, layer in graph.layers.items()
    }
    by_key = {(call.layer, call.number): call for call in graph.calls}
    done: dict[tuple[str, int], Call] = {}
    stack = [((value.layer, value.call), False) for value in reversed([*leaves(graph.outputs)])]
    while stack:
        key, is_ready = stack.pop()
        if key not in by_key or key in done:
            continue
        if is_ready:
            done[key] = by_key[key]
            continue
        stack.append((key, True))
        stack += [((value.layer, value.call), False) for value in reversed(by_key[key].values)]
    return replace(graph, layers=MappingProxyType(layers), calls=tuple(done.values()))
