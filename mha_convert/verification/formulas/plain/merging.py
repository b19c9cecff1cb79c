"""Layers that make one tensor of several; tensors of different rank are aligned at the batch.

https://keras.io/api/layers/merging_layers/
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from ....records.layer import PlainLayer
from ....records.source import Array

SMALLEST_SQUARE = 1e-12  # what Dot(normalize=True) divides by at the least, squared


def merged(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """A formula that joins the tensors one after the other."""

    def formula(layer: PlainLayer, arrays: Mapping[str, Array], inputs: tuple[Array, ...]) -> Array:
        return reduce(function, aligned(inputs))

    return formula


def aligned(inputs: tuple[Array, ...]) -> list[Array]:
    """All with the rank of the largest: new axes are behind the batch."""
    rank = max(array.ndim for array in inputs)
    return [array.reshape(*array.shape[:1], *[1] * (rank - array.ndim), *array.shape[1:]) for array in inputs]


def average(layer: PlainLayer, arrays: Mapping[str, Array], inputs: tuple[Array, ...]) -> Array:
    """The mean of the tensors."""
    return reduce(np.add, aligned(inputs)) / len(inputs)


def concatenate(layer: PlainLayer, arrays: Mapping[str, Array], inputs: tuple[Array, ...]) -> Array:
    """One behind the other."""
    return np.concatenate(inputs, layer.settings["axis"])


def dot(layer: PlainLayer, arrays: Mapping[str, Array], inputs: tuple[Array, ...]) -> Array:
    """The sum of products along an axis of each, for each sample."""
    first, second = inputs
    axes = layer.settings["axes"]
    a, b = axes if isinstance(axes, list) else (axes, axes)
    a, b = a % first.ndim, b % second.ndim
    if layer.settings["normalize"]:
        first, second = normalized(first, a), normalized(second, b)
    result = np.stack([np.tensordot(x, y, (a - 1, b - 1)) for x, y in zip(first, second, strict=True)])
    return result if result.ndim > 1 else result[:, None]


def normalized(array: Array, axis: int) -> Array:
    """Vectors of length 1."""
    squares = np.square(array).sum(axis, keepdims=True)
    return array / np.sqrt(np.maximum(squares, SMALLEST_SQUARE))


FORMULAS: Mapping[str, Any] = {
    "Add": merged(np.add),
    "Subtract": merged(np.subtract),
    "Multiply": merged(np.multiply),
    "Maximum": merged(np.maximum),
    "Minimum": merged(np.minimum),
    "Average": average,
    "Concatenate": concatenate,
    "Dot": dot,
}
