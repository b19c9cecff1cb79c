"""The same numbers in another shape, and global pooling over one axis.

https://keras.io/api/layers/reshaping_layers/, https://keras.io/api/layers/pooling_layers/
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....graph.shapes.reshaping import pooled_axis
from ....records.layer import PlainLayer
from ....records.source import Array


def flatten(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Everything but the batch in one axis; channels that come first are moved to the end before."""
    if layer.settings["data_format"] == "channels_first" and inputs.ndim > 1:
        inputs = np.moveaxis(inputs, 1, -1)
    return inputs.reshape(len(inputs), -1)


def reshape(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """The new shape."""
    return inputs.reshape(len(inputs), *layer.settings["target_shape"])


def permute(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Axes in another order."""
    return inputs.transpose(0, *layer.settings["dims"])


def repeat_vector(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """A new axis behind the batch."""
    return np.repeat(inputs[:, None], layer.settings["n"], axis=1)


def global_average(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array, mask: Array | None = None) -> Array:
    """The mean over the length, of what the mask keeps."""
    axis, keepdims = pooled_axis(layer), layer.settings["keepdims"]
    if mask is None:
        return inputs.mean(axis, keepdims=keepdims)
    kept = mask[:, :, None].astype(np.float64) if axis == 1 else mask[:, None, :].astype(np.float64)
    return (inputs * kept).sum(axis, keepdims=keepdims) / kept.sum(axis, keepdims=keepdims)


def global_maximum(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """The largest over the length."""
    return inputs.max(pooled_axis(layer), keepdims=layer.settings["keepdims"])


FORMULAS: Mapping[str, Any] = {
    "Flatten": flatten,
    "Reshape": reshape,
    "Permute": permute,
    "RepeatVector": repeat_vector,
    "GlobalAveragePooling1D": global_average,
    "GlobalMaxPooling1D": global_maximum,
}
