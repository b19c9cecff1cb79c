"""Arguments of operations: tensors, arrays that stand in the graph, and numbers."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from ....errors import LayerError, shortened
from ....records.graph import Constant, TensorSpec
from ..dtypes import BITS, WEAK_FLOAT, WEAK_WHOLE, result_type
from ..sizes import ShapeError, Sizes, place, sizes, together

WEAK = {"b": BITS, "i": WEAK_WHOLE, "u": WEAK_WHOLE, "f": WEAK_FLOAT}  # arrays of Keras 2, which say no dtype


def as_spec(item: Any) -> TensorSpec:
    """A tensor, an array, a number, or nested lists of numbers as a value; numbers are weak."""
    if isinstance(item, TensorSpec):
        return item
    if isinstance(item, Constant):
        return TensorSpec(item.array.shape, item.dtype or WEAK[item.array.dtype.kind])
    if isinstance(item, bool):
        return TensorSpec((), BITS)
    if isinstance(item, int | float):
        return TensorSpec((), WEAK_FLOAT if isinstance(item, float) else WEAK_WHOLE)
    if isinstance(item, tuple) and item:
        parts = [as_spec(part) for part in item]
        return TensorSpec((len(item), *sizes(parts[0])), result_type(part.dtype for part in parts))
    raise ShapeError(f"is called with {shortened(repr(item), 40)} in a tensor's place")


def size_of(item: Any) -> Any:
    """A size that is told, or that of a tensor's axis: None where it is free."""
    if not isinstance(item, Mapping):
        return item
    shape = sizes(item["size_of"])
    return shape[place(item["axis"], len(shape))]


def are_sizes(items: Any) -> bool:
    """Whether all are sizes that are told, or sizes of tensors."""
    return isinstance(items, tuple) and all(type(item) is int or isinstance(item, Mapping) for item in items)


def dtype_of(items: Iterable[Any]) -> str:
    """The dtype of what is made of all of these."""
    return result_type(as_spec(item).dtype for item in items)


def of_dtype(item: TensorSpec, dtype: str) -> TensorSpec:
    """The same shape."""
    return replace(item, dtype=dtype)


def all_together(items: Iterable[Any]) -> Sizes:
    """The shape that all broadcast to."""
    shape: Sizes = ()
    for item in items:
        shape = together(shape, sizes(as_spec(item)))
    return shape


def axes_of(axis: Any, rank: int) -> tuple[int, ...]:
    """Axes counted from the front: all where none is named."""
    if axis is None:
        return tuple(range(rank))
    return tuple(place(one, rank) for one in (axis if isinstance(axis, tuple) else (axis,)))


def refuse(layer: Any, fact: str) -> NoReturn:
    """What an operation has no rule for."""
    raise LayerError(f"Layer '{shortened(layer.name, 80)}' ({layer.kind}) {fact}. Port this layer by hand.")


def refuse_unless(condition: bool, layer: Any, fact: str) -> None:
    """``refuse`` where something does not hold."""
    if not condition:
        refuse(layer, fact)
