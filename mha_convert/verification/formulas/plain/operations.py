"""Operations: functions of ``keras.ops`` in NumPy. https://keras.io/api/ops/"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....records.graph import Constant
from ....records.source import Array


def plain(item: Any) -> Any:
    """A constant as its array."""
    return np.asarray(item.array) if isinstance(item, Constant) else item


def elementwise(function: Callable[[Any, Any], Array]) -> Callable[..., Array]:
    """A formula of two arguments, of which one may be a number."""

    def formula(layer: Any, arrays: Mapping[str, Array], x1: Any, x2: Any) -> Array:
        return function(plain(x1), plain(x2))

    return formula


def reduced(function: Callable[..., Array]) -> Callable[..., Array]:
    """A formula over some axes."""

    def formula(layer: Any, arrays: Mapping[str, Array], x: Array, axis: Any = None, keepdims: bool = False) -> Array:
        return function(x, axis=axis, keepdims=keepdims)

    return formula


FORMULAS: Mapping[str, Any] = {
    "ops.add": elementwise(np.add),
    "ops.multiply": elementwise(np.multiply),
    "ops.not_equal": elementwise(np.not_equal),
    "ops.any": reduced(np.any),
}
