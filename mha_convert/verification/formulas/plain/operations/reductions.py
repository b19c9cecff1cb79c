"""Operations over some axes in NumPy. https://keras.io/api/ops/numpy/"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .....records.source import Array
from .arguments import converted, plain


def reduced(function: Callable[..., Any]) -> Callable[..., Array]:
    """A formula over some axes."""

    def formula(layer: Any, arrays: Mapping[str, Array], x: Any, *given: Any, **options: Any) -> Any:
        return function(plain(x), *given, **options)

    return formula


def log_sum(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """``log(sum(exp(x)))``, without overflow."""
    largest = x.max(axis, keepdims=True)
    found = np.log(np.exp(x - largest).sum(axis, keepdims=True)) + largest
    return found if keepdims else found.squeeze(axis)


def norm(x: Array, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """Of vectors, or all numbers of matrices as one vector."""
    if ord == 1:
        return np.abs(x).sum(axis, keepdims=keepdims)
    return np.sqrt(np.square(x).sum(axis, keepdims=keepdims))


def normalized(x: Array, axis: Any = -1, order: int = 2, epsilon: float | None = None) -> Array:
    """Vectors of length 1; the square of the length is no less than the square of epsilon."""
    least = 1e-7 if epsilon is None else epsilon
    if order == 1:
        return x / np.maximum(np.abs(x).sum(axis, keepdims=True), least)
    return x / np.sqrt(np.maximum(np.square(x).sum(axis, keepdims=True), np.square(least)))


def moments(x: Array, axes: Any, keepdims: bool = False, synchronized: bool = False) -> tuple[Array, Array]:
    """Mean and variance."""
    return x.mean(axes, keepdims=keepdims), x.var(axes, keepdims=keepdims)


def top_k(x: Array, k: int, sorted: bool = True) -> tuple[Array, Array]:
    """The largest of the last axis, and their places: of equal ones the first."""
    places = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, places, -1), places


def cumulated(function: Callable[..., Any]) -> Callable[..., Array]:
    """So far, along an axis."""
    return lambda x, axis=None, dtype=None: converted(function(converted(x, dtype), axis), None)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "mean": np.mean,
    "sum": np.sum,
    "std": np.std,
    "var": np.var,
    "max": np.max,
    "min": np.min,
    "amax": np.max,
    "amin": np.min,
    "ptp": lambda x, axis=None, keepdims=False: np.max(x, axis, keepdims=keepdims) - np.min(x, axis, keepdims=keepdims),
    "prod": lambda x, axis=None, keepdims=False, dtype=None: np.prod(converted(x, dtype), axis, keepdims=keepdims),
    "any": np.any,
    "all": np.all,
    "logsumexp": log_sum,
    "count_nonzero": np.count_nonzero,
    "cumsum": cumulated(np.cumsum),
    "cumprod": cumulated(np.cumprod),
    "argmax": np.argmax,
    "argmin": np.argmin,
    "moments": moments,
    "norm": norm,
    "normalize": normalized,
    "sort": np.sort,
    "argsort": lambda x, axis=-1: np.argsort(x, axis, kind="stable"),
    "top_k": top_k,
    "quantile": lambda x, q, axis=None, method="linear", keepdims=False: np.quantile(x, q, axis, keepdims=keepdims),
    "median": np.median,
}
FORMULAS: Mapping[str, Any] = {f"ops.{name}": reduced(function) for name, function in FUNCTIONS.items()}
