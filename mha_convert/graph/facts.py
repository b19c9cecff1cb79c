"""The shape and dtype of every value of a graph, from those of its inputs; sizes that are free are None."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from ..errors import LayerError, shortened
from ..records.graph import Call, Constant, Graph, GraphLayer, TensorSpec, Value, leaves
from ..records.layer import Layer
from .shapes import SHAPES
from .shapes.sizes import ShapeError

T = TypeVar("T")
WHOLE_NUMBERS = ("int", "uint")


def facts(graph: Graph, layers: Mapping[GraphLayer, Layer]) -> dict[Value, TensorSpec]:
    """What every value of a graph is, its inputs first; nested models have their own.

    Args:
        graph: with its masks explicit.
        layers: its layers.

    Raises:
        LayerError: shapes contradict each other or the arrays, a call has an argument that its layer does not take, or
            an input has no shape in the file.
    """
    found = {value: known(graph, value) for value in leaves(graph.inputs)}
    for call in graph.calls:
        layer = graph.layers[call.layer]
        try:
            returned = of_call(call, layer, layers, found)
        except ShapeError as error:
            raise LayerError(
                f"Layer '{shortened(layer.name, 80)}' ({layer.class_name}) {error}. "
                "The file's configuration and its arrays do not fit each other; save the model again."
            ) from None
        for output, spec in enumerate(leaves(returned)):
            found[Value(call.layer, call.number, output)] = spec
    return found


def known(graph: Graph, value: Value) -> TensorSpec:
    """What the file says of an input."""
    spec = graph.specs.get(value, TensorSpec())
    if spec.shape is None:
        raise LayerError(
            f"Model '{graph.name}': the file holds no shape of its input '{value.layer}'. "
            "Call the model once before it is saved, or give it a keras.Input."
        )
    return spec


def of_call(
    call: Call, layer: GraphLayer, layers: Mapping[GraphLayer, Layer], found: Mapping[Value, TensorSpec]
) -> Any:
    """What one call returns, as Keras nests it."""
    if layer.graph is not None:
        inner = facts(layer.graph, layers)
        return tuple(inner[value] for value in leaves(layer.graph.outputs))
    return applied(SHAPES, layers[layer], call, found.__getitem__)


def applied(
    rules: Mapping[str, Callable[..., Any]], layer: Layer, call: Call, of: Callable[[Value], Any], *more: Any
) -> Any:
    """A rule of the layer's kind, called with the layer (and ``more``) as Keras calls the layer.

    Args:
        rules: by kind; each takes the layer and then what the layer's ``call`` takes.
        layer: that is called.
        call: with which arguments.
        of: what stands for each value.
        more: arguments in front of the call's own.

    Raises:
        LayerError: the call has an argument that the rule does not know.
    """
    rule = rules[layer.kind]
    arguments = tuple(bound(argument, of) for argument in call.arguments)
    keywords = {name: bound(argument, of) for name, argument in call.keywords.items()}
    keywords = {name: value for name, value in keywords.items() if not is_usual(name, value)}
    try:
        inspect.signature(rule).bind(layer, *more, *arguments, **keywords)
    except TypeError as error:
        raise LayerError(
            f"Layer '{shortened(layer.name, 80)}' ({layer.kind}) is called in a way that has no rule: {error}. "
            "Port this layer by hand."
        ) from None
    return rule(layer, *more, *arguments, **keywords)


def is_usual(name: str, value: Any) -> bool:
    """Whether an argument is what it would be without being given: inference, and nothing."""
    return value is None or (name == "training" and value in (False, 0))


def bound(tree: Any, of: Callable[[Value], Any]) -> Any:
    """A tree of arguments with something else in each value's place."""
    if isinstance(tree, Value):
        return of(tree)
    if isinstance(tree, tuple):
        return tuple(bound(item, of) for item in tree)
    if isinstance(tree, Mapping):
        return {key: bound(item, of) for key, item in tree.items()}
    if isinstance(tree, slice):
        return slice(bound(tree.start, of), bound(tree.stop, of), bound(tree.step, of))
    return tree


def constants(call: Call) -> Iterator[Constant]:
    """The arrays that stand in a call."""
    return (leaf for leaf in leaves((call.arguments, call.keywords)) if isinstance(leaf, Constant))


def nested_inputs(call: Call, graph: Graph) -> list[Value]:
    """A call's tensors in the order of the nested model's inputs."""
    given = call.arguments[0] if call.arguments else call.keywords.get("inputs", ())
    if isinstance(given, Mapping) and not isinstance(graph.inputs, Mapping):
        return [given[value.layer] for value in leaves(graph.inputs)]
    return [leaf for leaf in leaves(given if call.arguments[1:] == () else call.arguments) if isinstance(leaf, Value)]
