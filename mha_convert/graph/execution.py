"""The order in which Keras 3 runs the calls of a graph, which matters where a layer changes what it is given.

By their distance from the outputs, the farthest first, as ``keras.src.ops.function.map_graph`` has it; a shared layer
is as far away as any of its later calls.
"""

from collections.abc import Iterator

from ..records.graph import Call, Graph

Key = tuple[str, int]


def in_execution_order(graph: Graph) -> list[Call]:
    """The graph's calls, which are in reading order, as Keras runs them."""
    by_key: dict[Key, Call] = {(call.layer, call.number): call for call in graph.calls}
    depths: dict[Key, int] = {}  # in the order in which Keras meets them, which decides between equals
    of_layers: dict[str, int] = {}
    for key, call in reversed(by_key.items()):
        depth = max(depths.get(key, 0), of_layers.get(call.layer, 0))
        depths[key] = of_layers[call.layer] = depth
        for parent in parents(call):
            if parent in by_key:
                depths[parent] = max(depth + 1, depths.get(parent, 0))
    return [by_key[key] for key in sorted(depths, key=lambda key: -depths[key])]


def parents(call: Call) -> Iterator[Key]:
    """The calls that make a call's arguments."""
    return ((value.layer, value.call) for value in call.values)
