"""Products of matrices, and of axes with letters, in NumPy. https://keras.io/api/ops/numpy/"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .....records.source import Array
from .arguments import plain


def product(function: Callable[..., Any]) -> Callable[..., Array]:
    """A formula of several arrays, and options."""

    def formula(layer: Any, arrays: Mapping[str, Array], *given: Any, **options: Any) -> Array:
        return function(*map(plain, given), **{name: plain(value) for name, value in options.items()})

    return formula


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "matmul": np.matmul,
    "dot": np.dot,
    "inner": np.inner,
    "outer": np.outer,
    "tensordot": lambda x1, x2, axes=2: np.tensordot(x1, x2, axes),
    "einsum": lambda *operands, subscripts: np.einsum(subscripts, *operands),
}
FORMULAS: Mapping[str, Any] = {f"ops.{name}": product(function) for name, function in FUNCTIONS.items()}
