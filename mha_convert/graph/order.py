"""In which order are the calls made? That of Keras, which sorts by the distance from the outputs."""

from collections.abc import Iterable, Mapping, Sequence

from .plain import MalformedError

Key = tuple[str, int]  # layer, and number of the call


def in_order(outputs: Iterable[Key], parents: Mapping[Key, Sequence[Key]]) -> tuple[list[Key], list[Key]]:
    """The calls that outputs depend on, in the order in which Keras makes them; and those that none depends on.

    Args:
        outputs: the calls that make the model's outputs, in their order.
        parents: every call, in the order of the file, with those whose outputs it takes, in the order of its
            arguments. What is no key of it is an input.

    Raises:
        MalformedError: a call depends on its own output.
    """
    finished: dict[Key, bool] = {}
    alive = visited(outputs, parents, finished)
    visited(parents, parents, finished)  # calls that no output depends on may not be a cycle either
    living = set(alive)
    return by_depth(alive, parents), [key for key in parents if key not in living]


def visited(starts: Iterable[Key], parents: Mapping[Key, Sequence[Key]], finished: dict[Key, bool]) -> list[Key]:
    """What is met first, depth first, parents before children (``_build_map`` of Keras, without its recursion)."""
    found: list[Key] = []
    for start in starts:
        stack = [(start, 0)]
        while stack:
            key, number = stack.pop()
            if key not in parents or (number == 0 and finished.get(key)):
                continue
            if number == 0 and key in finished:
                raise MalformedError(f"the output of layer '{key[0]}' depends on itself")
            finished[key] = False
            if number < len(parents[key]):
                stack += [(key, number + 1), (parents[key][number], 0)]
            else:
                finished[key] = True
                found.append(key)
    return found


def by_depth(calls: Sequence[Key], parents: Mapping[Key, Sequence[Key]]) -> list[Key]:
    """Sorted by how far each is from the outputs, the farthest first (``map_graph`` of Keras)."""
    depths: dict[Key, int] = {}
    of_layer: dict[str, int] = {}
    for key in reversed(calls):
        depth = max(depths.get(key, 0), of_layer.get(key[0], 0))
        of_layer[key[0]] = depths[key] = depth
        for parent in parents[key]:
            if parent in parents:
                depths[parent] = max(depth + 1, depths.get(parent, 0))
    return sorted(depths, key=lambda key: -depths[key])
