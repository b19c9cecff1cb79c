"""Operations over some axes, which go, are 1, or stay."""

from collections.abc import Callable, Mapping
from typing import Any

from ....records.graph import TensorSpec
from ..dtypes import BITS, FLOAT, WHOLE, as_float, as_number
from ..sizes import Sizes, place, sizes
from .arguments import axes_of, of_dtype, refuse_unless

Dtype = Callable[[str | None], str]


def left(shape: Sizes, axis: Any, keepdims: bool) -> Sizes:
    """What is left of a shape."""
    gone = axes_of(axis, len(shape))
    return tuple(1 if number in gone else size for number, size in enumerate(shape) if keepdims or number not in gone)


def reduced(rule: Dtype) -> Callable[..., TensorSpec]:
    """Some axes go, or are 1."""

    def shape(layer: Any, x: TensorSpec, axis: Any = None, keepdims: bool = False) -> TensorSpec:
        return TensorSpec(left(sizes(x), axis, keepdims), rule(x.dtype))

    return shape


def extreme(layer: Any, x: TensorSpec, axis: Any = None, keepdims: bool = False, initial: Any = None) -> TensorSpec:
    """The largest or the smallest."""
    refuse_unless(initial is None, layer, "has an initial value, which has no rule")
    return TensorSpec(left(sizes(x), axis, keepdims), x.dtype)


def product(layer: Any, x: TensorSpec, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> TensorSpec:
    """The product."""
    return TensorSpec(left(sizes(x), axis, keepdims), dtype or as_number(x.dtype))


def counted(layer: Any, x: TensorSpec, axis: Any = None) -> TensorSpec:
    """How many are not 0."""
    return TensorSpec(left(sizes(x), axis, keepdims=False), WHOLE)


def cumulated(layer: Any, x: TensorSpec, axis: Any = None, dtype: str | None = None) -> TensorSpec:
    """The input's shape; without an axis, all in one."""
    shape = sizes(x)
    if axis is None:
        shape = (None,) if None in shape else (count(shape),)
    else:
        place(axis, len(shape))
    return TensorSpec(shape, dtype or as_number(x.dtype))


def count(shape: Sizes) -> int:
    """How many numbers there are in a shape without free sizes."""
    found = 1
    for size in shape:
        found *= size or 0
    return found


def moments(
    layer: Any, x: TensorSpec, axes: Any, keepdims: bool = False, synchronized: bool = False
) -> tuple[TensorSpec, ...]:
    """Mean and variance."""
    found = TensorSpec(left(sizes(x), axes, keepdims), x.dtype)
    return found, found


def norm(layer: Any, x: TensorSpec, ord: Any = None, axis: Any = None, keepdims: bool = False) -> TensorSpec:
    """The length of vectors."""
    refuse_unless(ord in (None, 1, 2, "fro"), layer, f"has the order {ord!r}, which has no rule")
    is_matrix = isinstance(axis, tuple) and len(axis) == len(("rows", "columns"))
    refuse_unless(not (is_matrix and ord in (1, 2)), layer, f"has the order {ord!r} of matrices, which has no rule")
    refuse_unless(not (axis is None and ord is not None and len(sizes(x)) > 1), layer, "has an order without an axis")
    return TensorSpec(left(sizes(x), axis, keepdims), as_float(x.dtype))


def normalized(layer: Any, x: TensorSpec, axis: Any = -1, order: Any = 2, epsilon: float | None = None) -> TensorSpec:
    """The input's shape."""
    refuse_unless(order in (1, 2), layer, f"has the order {order!r}, which has no rule")
    axes_of(axis, len(sizes(x)))
    return of_dtype(x, as_float(x.dtype))


def sorted_(layer: Any, x: TensorSpec, axis: int = -1) -> TensorSpec:
    """The input's shape."""
    place(axis, len(sizes(x)))
    return x


def order(layer: Any, x: TensorSpec, axis: int = -1) -> TensorSpec:
    """Places along an axis."""
    place(axis, len(sizes(x)))
    return of_dtype(x, WHOLE)


def top_k(layer: Any, x: TensorSpec, k: int, sorted: bool = True) -> tuple[TensorSpec, ...]:
    """The largest of the last axis, and their places."""
    refuse_unless(sorted, layer, "returns the largest in no order, which has no rule")
    shape = (*sizes(x)[:-1], k)
    return TensorSpec(shape, x.dtype), TensorSpec(shape, WHOLE)


def quantile(
    layer: Any, x: TensorSpec, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> TensorSpec:
    """Of one share."""
    is_number = isinstance(q, int | float)
    refuse_unless(is_number and method == "linear", layer, "takes quantiles in a way that has no rule")
    refuse_unless(axis is None or type(axis) is int, layer, "takes quantiles over several axes, which has no rule")
    return TensorSpec(left(sizes(x), axis, keepdims), as_float(x.dtype))


def median(layer: Any, x: TensorSpec, axis: Any = None, keepdims: bool = False) -> TensorSpec:
    """The middle."""
    refuse_unless(axis is None or type(axis) is int, layer, "takes the median over several axes, which has no rule")
    return TensorSpec(left(sizes(x), axis, keepdims), as_float(x.dtype))


def place_of(layer: Any, x: TensorSpec, axis: int | None = None, keepdims: bool = False) -> TensorSpec:
    """Where the largest or the smallest is."""
    return TensorSpec(left(sizes(x), axis, keepdims), WHOLE)


SHAPES: Mapping[str, Callable[..., Any]] = {
    **{f"ops.{name}": reduced(as_float) for name in ("mean", "std", "var", "logsumexp")},
    "ops.sum": reduced(as_number),
    **{f"ops.{name}": reduced(lambda dtype: BITS) for name in ("any", "all")},
    **{f"ops.{name}": reduced(lambda dtype: dtype or FLOAT) for name in ("amax", "amin", "ptp")},
    **{f"ops.{name}": extreme for name in ("max", "min")},
    "ops.prod": product,
    "ops.count_nonzero": counted,
    **{f"ops.{name}": cumulated for name in ("cumsum", "cumprod")},
    **{f"ops.{name}": place_of for name in ("argmax", "argmin")},
    "ops.moments": moments,
    "ops.norm": norm,
    "ops.normalize": normalized,
    "ops.sort": sorted_,
    "ops.argsort": order,
    "ops.top_k": top_k,
    "ops.quantile": quantile,
    "ops.median": median,
}
