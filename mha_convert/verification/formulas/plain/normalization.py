"""Normalizations, from Keras' mathematics.

https://keras.io/api/layers/normalization_layers/
https://keras.io/api/layers/preprocessing_layers/numerical/normalization/
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....records.layer import PlainLayer
from ....records.source import Array

SMALLEST_DEVIATION = 1e-7  # what Normalization divides by at the least: keras.backend.epsilon()
BOUND_OF_LENGTHS, BOUND_OF_SQUARES = 1e-12, 1e-12  # UnitNormalization since Keras 3.6, and before
BOUNDS_LENGTHS = (3, 6)


def along(array: Array, axes: list[int], rank: int) -> Array:
    """An array over some axes, ready to be broadcast with all."""
    shape = [1] * rank
    for axis, size in zip(axes, array.shape, strict=True):
        shape[axis] = size
    return array.reshape(shape)


def axes_of(layer: PlainLayer, rank: int) -> list[int]:
    """The axes that the layer names, from the front."""
    given = layer.settings["axis"]
    return [axis % rank for axis in (given if isinstance(given, list) else [given])]


def shifted(layer: PlainLayer, arrays: Mapping[str, Array], result: Array) -> Array:
    """Multiplied by gamma, plus beta, each if the layer has it."""
    axes = axes_of(layer, result.ndim)
    if "gamma" in arrays:
        result = result * along(arrays["gamma"], axes, result.ndim)
    return result + along(arrays["beta"], axes, result.ndim) if "beta" in arrays else result


def layer_normalization(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Mean 0 and variance 1 over some axes, then gamma and beta; with ``rms_scaling`` the mean is not subtracted."""
    axes = tuple(axes_of(layer, inputs.ndim))
    centred = inputs - inputs.mean(axes, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(axes, keepdims=True) + layer.settings["epsilon"])
    return shifted(layer, arrays, (inputs if layer.settings["rms_scaling"] else centred) / deviation)


def rms_normalization(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Mean square 1, then the scale."""
    axes = tuple(axes_of(layer, inputs.ndim))
    squares = np.square(inputs).mean(axes, keepdims=True)
    result: Array = inputs / np.sqrt(squares + layer.settings["epsilon"]) * arrays["scale"]
    return result


def batch_normalization(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Of statistics that training kept."""
    axes = axes_of(layer, inputs.ndim)
    mean, variance = (along(arrays[name], axes, inputs.ndim) for name in ("moving_mean", "moving_variance"))
    return shifted(layer, arrays, (inputs - mean) / np.sqrt(variance + layer.settings["epsilon"]))


def group_normalization(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Each sample's channels in groups, each with mean 0 and variance 1 over channels and positions."""
    (axis,) = axes_of(layer, inputs.ndim)
    moved = np.moveaxis(inputs, axis, 1)
    count = moved.shape[1] if layer.settings["groups"] == -1 else layer.settings["groups"]
    groups = moved.reshape(len(moved), count, -1)
    centred = groups - groups.mean(-1, keepdims=True)
    variance = np.square(centred).mean(-1, keepdims=True)
    divided = (centred / np.sqrt(variance + layer.settings["epsilon"])).reshape(moved.shape)
    return shifted(layer, arrays, np.moveaxis(divided, 1, axis))


def unit_normalization(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Vectors of length 1."""
    squares = np.square(inputs).sum(tuple(axes_of(layer, inputs.ndim)), keepdims=True)
    if layer.version >= BOUNDS_LENGTHS:
        return inputs / np.maximum(np.sqrt(squares), BOUND_OF_LENGTHS)
    return inputs / np.sqrt(np.maximum(squares, BOUND_OF_SQUARES))


def rescaling(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """``scale x + offset``; Keras has lists of numbers in float32, single ones as they are."""
    scale, offset = (constant(layer.settings[name]) for name in ("scale", "offset"))
    result: Array = inputs * scale + offset
    return result


def constant(value: Any) -> Any:
    """A number of the settings, or a list, which is rounded to float32."""
    return np.asarray(value, np.float32).astype(np.float64) if isinstance(value, list) else float(value)


def normalization(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Of statistics that ``adapt`` kept, or that the user gave, which are float32; or back from these."""
    kept = sorted(axes_of(layer, inputs.ndim)) if layer.settings["axis"] else []
    mean, variance = (statistic(layer, arrays, name, kept, inputs.ndim) for name in ("mean", "variance"))
    deviation = np.maximum(np.sqrt(variance), SMALLEST_DEVIATION)
    result: Array = inputs * deviation + mean if layer.settings["invert"] else (inputs - mean) / deviation
    return result


def statistic(layer: PlainLayer, arrays: Mapping[str, Array], name: str, kept: list[int], rank: int) -> Array:
    """The mean or the variance, along the axes that are kept: a setting of fewer axes is aligned at their end."""
    given = layer.settings[name]
    array = arrays[name] if given is None else np.asarray(given, np.float32).astype(np.float64)
    return along(array, kept[len(kept) - array.ndim :], rank)


def masking(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array, mask: Array | None = None) -> Array:
    """Steps that hold nothing but the mask's value are 0; the mask is a value of the graph where one is needed."""
    masked = np.all(inputs == layer.settings["mask_value"], axis=-1) if mask is None else ~mask
    return np.where(masked[..., None], 0.0, inputs)


FORMULAS: Mapping[str, Any] = {
    "LayerNormalization": layer_normalization,
    "RMSNormalization": rms_normalization,
    "BatchNormalization": batch_normalization,
    "GroupNormalization": group_normalization,
    "UnitNormalization": unit_normalization,
    "Rescaling": rescaling,
    "Normalization": normalization,
    "Masking": masking,
}
