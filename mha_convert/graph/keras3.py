"""Calls as Keras 3 writes them: ``{"args": [...], "kwargs": {...}}``, in which tensors are marked objects."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..records.graph import Call, TensorSpec, Value
from .plain import MalformedError, plain, shape_of

TENSOR = "__keras_tensor__"


def accepts(node: Any) -> bool:
    """Whether a call is written in this form."""
    return isinstance(node, dict) and node.keys() == {"args", "kwargs"} and isinstance(node["kwargs"], dict)


def read(node: Any, layer: str, number: int, class_name: str) -> tuple[Call, dict[Value, TensorSpec]]:
    """One call, and what it says of the tensors that it takes."""
    specs: dict[Value, TensorSpec] = {}

    def tensor(data: Any) -> Value | None:
        if not isinstance(data, dict) or data.get("class_name") != TENSOR:
            return None
        value, spec = tensor_of(data)
        if specs.setdefault(value, spec) != spec:
            raise MalformedError(f"one call has two shapes for the output of layer '{value.layer}'")
        return value

    arguments = plain(node["args"], tensor)
    if not isinstance(arguments, tuple):
        raise MalformedError("the positional arguments of a call are not a list")
    keywords = MappingProxyType({name: plain(data, tensor) for name, data in node["kwargs"].items()})
    return Call(layer, number, arguments, keywords), specs


def tensor_of(data: Mapping[str, Any]) -> tuple[Value, TensorSpec]:
    """The value that a marked object stands for, with its shape and dtype."""
    config = data.get("config")
    config = config if isinstance(config, dict) else {}
    history = plain(config.get("keras_history"))
    if not (
        isinstance(history, tuple)
        and len(history) == 3
        and isinstance(history[0], str)
        and all(type(index) is int for index in history[1:])
    ):
        raise MalformedError("a tensor in the arguments of a call is not the output of any layer")
    dtype = config.get("dtype")
    return Value(*history), TensorSpec(shape_of(config.get("shape")), dtype if isinstance(dtype, str) else None)
