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


def multiplied(layer: PlainLayer, arrays: Mapping[str, Array], inputs: tuple[Array, ...], **masks: Array) -> Array:
    """The product; of what is kept where there are masks, and 0 where nothing is."""
    if not masks:
        return reduce(np.multiply, aligned(inputs))
    kept = masks_of(inputs, masks)
    product = np.prod(np.stack(np.broadcast_arrays(*(np.where(keep, x, 1.0) for x, keep in kept))), axis=0)
    return np.where(np.any([keep for _, keep in kept], axis=0), product, 0.0) if len(masks) == len(inputs) else product


def extreme(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """The largest or smallest, of what is kept where there are masks.

    https://github.com/keras-team/keras/blob/v3.15.0/keras/src/layers/merging/base_merge.py:
    each tensor in turn gets the numbers so far where it is masked, and then they get its own where they are.
    """

    def formula(layer: PlainLayer, arrays: Mapping[str, Array], inputs: tuple[Array, ...], **masks: Array) -> Array:
        if not masks:
            return reduce(function, aligned(inputs))
        (result, so_far), *others = masks_of(inputs, masks)
        is_masked = "mask_0" in masks
        for number, (x, keep) in enumerate(others, 1):
            own = np.where(keep, x, result)
            result = function(np.where(so_far, result, own), own)
            is_masked = is_masked and f"mask_{number}" in masks
            so_far = so_far | keep if is_masked else np.ones_like(so_far | keep)
        return result

    return formula


def masks_of(inputs: tuple[Array, ...], masks: Mapping[str, Array]) -> list[tuple[Array, Array]]:
    """Each tensor with what is kept of it ``(batch, length, 1)``: everything where it has no mask."""
    everything = np.ones((*inputs[0].shape[:2], 1), bool)
    given = [masks.get(f"mask_{number}") for number in range(len(inputs))]
    return [(x, everything if keep is None else keep[..., None]) for x, keep in zip(inputs, given, strict=True)]


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
    "Multiply": multiplied,
    "Maximum": extreme(np.maximum),
    "Minimum": extreme(np.minimum),
    "Average": average,
    "Concatenate": concatenate,
    "Dot": dot,
}
