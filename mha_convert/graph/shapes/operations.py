"""Operations: functions of ``keras.ops``. Arguments may be numbers, too."""

from dataclasses import replace
from typing import Any

from ...records.graph import Constant, TensorSpec
from .sizes import place, sizes, together


def as_spec(item: Any) -> TensorSpec:
    """A tensor, a constant or a number as a value."""
    if isinstance(item, TensorSpec):
        return item
    return TensorSpec(item.array.shape, item.dtype) if isinstance(item, Constant) else TensorSpec(())


def elementwise(layer: Any, x1: Any, x2: Any) -> TensorSpec:
    """Both broadcast."""
    first, second = as_spec(x1), as_spec(x2)
    return replace(first if sizes(first) else second, shape=together(sizes(first), sizes(second)))


def compared(layer: Any, x1: Any, x2: Any) -> TensorSpec:
    """True or false of both broadcast."""
    return replace(elementwise(layer, x1, x2), dtype="bool")


def reduced_to_bits(layer: Any, x: TensorSpec, axis: Any = None, keepdims: bool = False) -> TensorSpec:
    """True or false over some axes."""
    return replace(reduced(layer, x, axis, keepdims), dtype="bool")


def reduced(layer: Any, x: TensorSpec, axis: Any = None, keepdims: bool = False) -> TensorSpec:
    """Some axes go, or are 1."""
    shape = sizes(x)
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    places = {place(one, len(shape)) for one in axes}
    kept = [1 if number in places else size for number, size in enumerate(shape) if keepdims or number not in places]
    return replace(x, shape=tuple(kept))


SHAPES = {
    "ops.add": elementwise,
    "ops.multiply": elementwise,
    "ops.not_equal": compared,
    "ops.any": reduced_to_bits,
}
