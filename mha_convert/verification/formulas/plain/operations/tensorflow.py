"""Functions of TensorFlow that ``keras.ops`` has not, in NumPy. https://www.tensorflow.org/api_docs/python/tf"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from .....records.source import Array
from ..activations import sigmoid
from .arguments import converted, plain


def formula_of(function: Callable[..., Any]) -> Callable[..., Array]:
    """A formula of arrays and options."""

    def formula(layer: Any, arrays: Mapping[str, Array], *given: Any, **options: Any) -> Array:
        return function(*map(plain, given), **{name: plain(value) for name, value in options.items()})

    return formula


def product(x1: Array, x2: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    """Of matrices, which may be turned before."""
    first = np.swapaxes(x1, -1, -2) if transpose_a else x1
    second = np.swapaxes(x2, -1, -2) if transpose_b else x2
    return first @ second


def band_part(x: Array, num_lower: int, num_upper: int) -> Array:
    """Zeros where a place is too far from the diagonal."""
    rows, columns = np.indices(x.shape[-2:])
    is_kept = ((num_lower < 0) | (rows - columns <= num_lower)) & ((num_upper < 0) | (columns - rows <= num_upper))
    return np.where(is_kept, x, 0)


def l2_normalize(x: Array, axis: Any = None, epsilon: float = 1e-12) -> Array:
    """``x / sqrt(max(sum(x^2), epsilon))``."""
    return x / np.sqrt(np.maximum(np.square(x).sum(axis, keepdims=True), epsilon))


def sequence_mask(lengths: Array, maxlen: int, dtype: str = "bool") -> Array:
    """True below each length."""
    return converted(np.arange(maxlen) < lengths[..., None], dtype)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "squared_difference": lambda x1, x2: np.square(np.subtract(x1, x2)),
    "count_nonzero": lambda x, axis=None, keepdims=False: np.count_nonzero(x, axis, keepdims=keepdims),
    "l2_normalize": l2_normalize,
    "silu": lambda x, beta=1.0: x * sigmoid(beta * x),
    "matmul": product,
    "trace": lambda x: np.trace(x, axis1=-2, axis2=-1),
    "matrix_transpose": lambda x: np.swapaxes(x, -1, -2),
    "band_part": band_part,
    "gather": lambda x, indices, axis=0: np.take(x, np.asarray(indices), axis),
    "range": lambda start, limit=None, delta=1: (
        np.arange(0, start, delta) if limit is None else np.arange(start, limit, delta)
    ),
    "fill": lambda dims, value: np.full(dims, value),
    "sequence_mask": sequence_mask,
    "add_n": lambda inputs: reduce(np.add, inputs),
}
FORMULAS: Mapping[str, Any] = {f"ops.tf.{name}": formula_of(function) for name, function in FUNCTIONS.items()}
