"""The graph of a model as its file says it: which layer is called with what, in the order in which Keras does so.

Everything in these records is immutable: what was a list or a tuple in Keras is a tuple, what was a dict a read-only
mapping. Arguments are such data with leaves of six more kinds: ``Value``, ``Constant``, ``slice``, ``Ellipsis``,
``bytes``, and numbers, texts and None as they are.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .face import Face
from .source import Array

MASKS = ("mask", "_mask")  # how the names of the arguments end that a layer takes masks by


@dataclass(frozen=True, slots=True, repr=False)
class Value(Face):
    """A tensor: one output of one call of a layer of the same graph, all counted from 0.

    The outputs of a nested model are counted in the order of ``leaves(graph.outputs)``.
    """

    layer: str
    call: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(Face):
    """An array that stands in the graph itself; ``dtype`` is None where the file does not say it (Keras 2)."""

    array: Array
    dtype: str | None


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What the file says of a value: its shape, batch first, None where a size is free; and its dtype."""

    shape: tuple[int | None, ...] | None = None
    dtype: str | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GraphLayer(Face):
    """One layer or operation. Two are equal where they are one object, in however many models it lies.

    Args:
        name: in the model that lists it first.
        class_name: without the package that it was registered in.
        registered_name: ``package>Class``; None for Keras' own.
        module: where the class lives; None where the file does not say.
        is_own: whether somebody wrote the class, and not Keras.
        is_operation: of ``keras.ops``, or a function of TensorFlow: it has neither weights nor a mask of its own.
        settings: what ``get_config()`` returned, without the layers of a model.
        build: what the layer was built with (``build_config``).
        graph: of a nested model.
        routes: the names that lead to it from the root, in the order of the file; several for a layer that a model
            shares with one inside it.
    """

    name: str
    class_name: str
    registered_name: str | None = None
    module: str | None = None
    is_own: bool = False
    is_operation: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    build: Mapping[str, Any] = field(default_factory=dict)
    graph: "Graph | None" = None
    routes: tuple[tuple[str, ...], ...] = ()

    @property
    def is_input(self) -> bool:
        """Whether it is where a model's input enters: it is never called, and its only value is that input."""
        return self.class_name == "InputLayer" and not self.is_own

    @property
    def title(self) -> str:
        """The class as people should see it: ``package>Class`` or ``module.Class`` where it is not Keras' own."""
        place = f"{self.module}." if self.is_own and self.module else ""
        return self.registered_name or f"{place}{self.class_name}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Face):
    """One call of a layer: ``number`` counts the calls of this layer in this graph from 0."""

    layer: str
    number: int
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> tuple[Value, ...]:
        """The tensors that it is called with, in Keras' order: positional first, then keywords by name."""
        return tuple(leaf for leaf in leaves((self.arguments, self.keywords)) if isinstance(leaf, Value))

    @property
    def masks(self) -> Mapping[str, Any]:
        """The masks that it is given explicitly, by argument."""
        return {
            name: value for name, value in self.keywords.items() if name.endswith(MASKS) and value not in (None, False)
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Graph(Face):
    """A Functional or Sequential model.

    Args:
        name: of the model.
        class_name: ``Functional``, ``Sequential``, ``Model``, or a class of somebody's own with a graph.
        is_own: whether it is such a class: its own code may compute more than the graph.
        layers: by name, in the order of the file, inputs included.
        calls: in the order in which Keras makes them; inputs are not called.
        dead: calls that no output depends on, in the order of the file.
        inputs: the tree of values as the user has to pass them: one ``Value``, a tuple, or a mapping.
        outputs: the tree of values as Keras returns them.
        specs: what the file says of values.
        keras_version: of the Keras that wrote it.
    """

    name: str
    class_name: str
    is_own: bool = False
    layers: Mapping[str, GraphLayer]
    calls: tuple[Call, ...]
    dead: tuple[Call, ...] = ()
    inputs: Any
    outputs: Any
    specs: Mapping[Value, TensorSpec] = field(default_factory=dict)
    keras_version: str | None = None

    def walk(self) -> Iterator["Graph"]:
        """This graph and the nested ones, each once, in the order of the file."""
        seen: dict[int, Graph] = {}
        stack = [self]
        while stack:
            graph = stack.pop()
            if id(graph) not in seen:
                seen[id(graph)] = graph
                yield graph
                stack += reversed([layer.graph for layer in graph.layers.values() if layer.graph is not None])


def leaves(tree: Any) -> Iterator[Any]:
    """What is no tuple and no mapping, in the order of Keras' ``tree.flatten``: mappings by their sorted keys.

    A tensor may stand in a slice.
    """
    stack = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, tuple):
            stack.extend(reversed(item))
        elif isinstance(item, Mapping):
            stack.extend(item[key] for key in sorted(item, reverse=True))
        elif isinstance(item, slice):
            stack.extend((item.step, item.stop, item.start))
        else:
            yield item
