"""Functions of TensorFlow that ``keras.ops`` has not."""

from collections.abc import Callable, Mapping
from typing import Any

from ....records.graph import TensorSpec
from ..dtypes import BITS, FLOAT, WHOLE
from ..sizes import of_shape, sizes
from .arguments import all_together, are_sizes, as_spec, axes_of, dtype_of, refuse_unless, size_of
from .arrangement import diagonal, take
from .products import matmul
from .reductions import left


def squared_difference(layer: Any, x1: Any, x2: Any) -> TensorSpec:
    """Both broadcast."""
    return TensorSpec(all_together((x1, x2)), dtype_of((x1, x2)))


def counted(layer: Any, x: TensorSpec, axis: Any = None, keepdims: bool = False) -> TensorSpec:
    """How many are not 0."""
    return TensorSpec(left(sizes(x), axis, keepdims), WHOLE)


def l2_normalize(layer: Any, x: TensorSpec, axis: Any = None, epsilon: float = 1e-12) -> TensorSpec:
    """The input's shape."""
    axes_of(axis, len(sizes(x)))
    return x


def silu(layer: Any, x: TensorSpec, beta: Any = 1.0) -> TensorSpec:
    """The input's shape."""
    refuse_unless(isinstance(beta, int | float), layer, "has a slope that is computed")
    return x


def turned(item: Any, is_turned: bool) -> TensorSpec:
    """The last two axes change places."""
    spec = as_spec(item)
    shape = sizes(spec)
    return of_shape(spec, (*shape[:-2], *shape[:-3:-1])) if is_turned else spec


def product(layer: Any, x1: Any, x2: Any, transpose_a: bool = False, transpose_b: bool = False) -> TensorSpec:
    """Of matrices, which may be turned before."""
    found: TensorSpec = matmul(layer, turned(x1, transpose_a), turned(x2, transpose_b))
    return found


def trace(layer: Any, x: TensorSpec) -> TensorSpec:
    """Of the last two axes."""
    return of_shape(x, sizes(diagonal(layer, x, 0, -2, -1))[:-1])


def matrix_transpose(layer: Any, x: TensorSpec) -> TensorSpec:
    """The last two axes change places."""
    return turned(x, is_turned=True)


def band_part(layer: Any, x: TensorSpec, num_lower: Any, num_upper: Any) -> TensorSpec:
    """The input's shape."""
    are_known = all(type(number) is int for number in (num_lower, num_upper))
    refuse_unless(are_known, layer, "keeps as many diagonals as a tensor says, which has no rule")
    return x


def gather(layer: Any, x: Any, indices: Any, axis: int = 0) -> TensorSpec:
    """The axis is replaced by those of the places."""
    return take(layer, x, indices, axis)


def total(layer: Any, inputs: tuple[TensorSpec, ...]) -> TensorSpec:
    """All of one shape."""
    return TensorSpec(all_together(inputs), inputs[0].dtype or FLOAT)


def counted_up(layer: Any, start: Any, limit: Any = None, delta: Any = 1) -> TensorSpec:
    """Whole numbers, or others, in steps."""
    first, last = (0, start) if limit is None else (start, limit)
    refuse_unless(are_sizes((first, last, delta)), layer, "counts up to a tensor, which has no rule")
    bounds = [size_of(item) for item in (first, last, delta)]
    return TensorSpec((None if None in bounds else len(range(*bounds)),), WHOLE)


def full(layer: Any, dims: Any, value: Any) -> TensorSpec:
    """One number everywhere."""
    refuse_unless(are_sizes(dims), layer, "takes a shape that is computed, which has no rule")
    refuse_unless(isinstance(value, int | float), layer, "fills with a tensor, which has no rule")
    return TensorSpec(tuple(map(size_of, dims)), dtype_of((value,)))


def sequence_mask(layer: Any, lengths: TensorSpec, maxlen: Any = None, dtype: str = BITS) -> TensorSpec:
    """A new axis: True below each length."""
    refuse_unless(are_sizes((maxlen,)), layer, "has no largest length, which has no rule")
    return TensorSpec((*sizes(lengths), size_of(maxlen)), dtype)


SHAPES: Mapping[str, Callable[..., Any]] = {
    "ops.tf.squared_difference": squared_difference,
    "ops.tf.count_nonzero": counted,
    "ops.tf.l2_normalize": l2_normalize,
    "ops.tf.silu": silu,
    "ops.tf.matmul": product,
    "ops.tf.trace": trace,
    "ops.tf.matrix_transpose": matrix_transpose,
    "ops.tf.band_part": band_part,
    "ops.tf.gather": gather,
    "ops.tf.add_n": total,
    "ops.tf.range": counted_up,
    "ops.tf.fill": full,
    "ops.tf.sequence_mask": sequence_mask,
}
