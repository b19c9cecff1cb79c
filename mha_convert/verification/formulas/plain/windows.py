"""Convolution, pooling, and layers that make a sequence longer or shorter.

https://keras.io/api/layers/convolution_layers/, https://keras.io/api/layers/pooling_layers/,
https://www.tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ....graph.shapes.windows import length_axis
from ....layers.plain.activations import activation_of
from ....records.layer import PlainLayer
from ....records.source import Array
from .activations import activated

NOTHING = (0, 0)


def edges(padding: str, length: int, width: int, stride: int) -> tuple[int, int]:
    """How many steps Keras adds in front and behind.

    ``same`` makes ``ceil(length / stride)`` windows; what they need is shared out, and the odd step is behind.
    """
    if padding == "causal":
        return width - 1, 0
    if padding == "valid":
        return NOTHING
    over = length % stride
    missing = max(width - (over or stride), 0)
    return math.floor(missing / 2), math.ceil(missing / 2)


def windows(x: Array, layer: PlainLayer, width: int, filling: float = 0.0) -> Array:
    """``(batch, windows, channels, width)`` of ``(batch, length, channels)``."""
    stride = layer.settings["strides"]
    ends = edges(layer.settings["padding"], x.shape[1], width, stride)
    whole = np.pad(x, (NOTHING, ends, NOTHING), constant_values=filling)
    return sliding_window_view(whole, width, axis=1)[:, ::stride]


def in_keras_order(formula: Callable[..., Array]) -> Callable[..., Array]:
    """A formula of ``(batch, length, channels)`` for layers whose channels may come first."""

    def of_any_order(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
        if layer.settings["data_format"] == "channels_first":
            return formula(layer, arrays, inputs.swapaxes(1, 2)).swapaxes(1, 2)
        return formula(layer, arrays, inputs)

    return of_any_order


def correlated(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Sum of kernel and window over the window's steps and the channels of the filter's group, and the bias."""
    kernel, groups, rate = arrays["kernel"], layer.settings["groups"], layer.settings["dilation_rate"]
    width, channels, filters = kernel.shape
    seen = windows(inputs, layer, (width - 1) * rate + 1)[..., ::rate]
    batch, count = seen.shape[:2]
    in_groups = seen.reshape(batch, count, groups, channels, width)
    kernels = kernel.reshape(width, channels, groups, filters // groups)
    result: Array = np.einsum("bngcw,wcgf->bngf", in_groups, kernels, optimize=True)
    return result.reshape(batch, count, filters) + arrays.get("bias", 0.0)


def conv1d(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """``activation(convolution + bias)``."""
    activation = activation_of(layer.settings["activation"], layer.version)
    return activated(activation, in_keras_order(correlated)(layer, arrays, inputs))


def largest(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """The largest of each window."""
    return windows(inputs, layer, layer.settings["pool_size"], -np.inf).max(-1)


def averages(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """The mean of each window, without what was added."""
    width = layer.settings["pool_size"]
    count = windows(np.ones_like(inputs), layer, width).sum(-1)
    result: Array = windows(inputs, layer, width).sum(-1) / count
    return result


def global_average(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array, mask: Array | None = None) -> Array:
    """The mean over the length, of what the mask keeps."""
    axis, keepdims = length_axis(layer), layer.settings["keepdims"]
    if mask is None:
        return inputs.mean(axis, keepdims=keepdims)
    kept = mask[:, :, None].astype(np.float64) if axis == 1 else mask[:, None, :].astype(np.float64)
    return (inputs * kept).sum(axis, keepdims=keepdims) / kept.sum(axis, keepdims=keepdims)


def global_maximum(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """The largest over the length."""
    return inputs.max(length_axis(layer), keepdims=layer.settings["keepdims"])


def zero_padding(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Zeros in front and behind."""
    ends = [NOTHING, NOTHING, NOTHING]
    ends[length_axis(layer)] = layer.settings["padding"]
    return np.pad(inputs, ends)


def cropping(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Without some steps at each end."""
    before, after = layer.settings["cropping"]
    return inputs[:, before : inputs.shape[1] - after]


def up_sampling(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Every step several times."""
    return np.repeat(inputs, layer.settings["size"], axis=1)


FORMULAS: Mapping[str, Any] = {
    "Conv1D": conv1d,
    "MaxPooling1D": in_keras_order(largest),
    "AveragePooling1D": in_keras_order(averages),
    "GlobalAveragePooling1D": global_average,
    "GlobalMaxPooling1D": global_maximum,
    "ZeroPadding1D": zero_padding,
    "Cropping1D": cropping,
    "UpSampling1D": up_sampling,
}
