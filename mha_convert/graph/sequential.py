"""The calls of a model that is a list of layers: each takes what the one before it returns."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ..records.graph import Call, Graph, GraphLayer, TensorSpec, Value
from .entries import Entry
from .functional import Calls
from .plain import MalformedError, shape_of

INPUT = "InputLayer"


def read(model: Entry, graphs: Mapping[Entry, Graph]) -> tuple[Calls, GraphLayer | None]:
    """The calls of a model, and the layer for its input where the list has none.

    Raises:
        MalformedError: it has no layers, or an input is not the first.
    """
    names = list(model.layers)
    if not names:
        raise MalformedError(f"the Sequential model '{model.name}' has no layers")
    implied = None if model.layers[names[0]].class_name == INPUT else implied_input(model, graphs)
    first, *others = names if implied is None else [implied.name, *names]
    late = next((name for name in others if model.layers[name].class_name == INPUT), None)
    if late is not None:
        raise MalformedError(f"the input '{late}' of a Sequential model is not its first layer")
    found = Calls(inputs=Value(first), outputs=Value(others[-1] if others else first))
    for before, name in zip([first, *others], others, strict=False):
        found.calls[name, 0] = Call(name, 0, (Value(before),))
    return found, implied


def implied_input(model: Entry, graphs: Mapping[Entry, Graph]) -> GraphLayer:
    """An input for a list that begins with another layer, called as Keras 2 calls it."""
    first = next(iter(model.layers.values()))
    name = f"{first.name}_input"
    while name in model.layers:
        name += "_"
    spec = next((spec for spec in input_specs(model, first, graphs) if spec.shape is not None), TensorSpec())
    return GraphLayer(
        name=name,
        class_name=INPUT,
        settings=MappingProxyType({"name": name, "batch_shape": spec.shape, "dtype": spec.dtype}),
    )


def input_specs(model: Entry, first: Entry, graphs: Mapping[Entry, Graph]) -> Iterator[TensorSpec]:
    """Every place where the file may say the shape of the input, the surest first."""
    yield TensorSpec(shape_of(first.settings.get("batch_input_shape")))
    yield TensorSpec(shape_of(model.settings.get("build_input_shape")))
    yield TensorSpec(shape_of(part(model.config, "build_config").get("input_shape")))
    yield TensorSpec(shape_of(part(first.config, "build_config").get("input_shape")))
    nested = graphs.get(first.stands_for)
    if nested is not None and isinstance(nested.inputs, Value):
        yield nested.specs.get(nested.inputs, TensorSpec())


def part(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object in an entry, empty where it is something else."""
    found = config.get(key)
    return found if isinstance(found, dict) else {}
