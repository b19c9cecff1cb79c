"""The same numbers in another shape.

https://keras.io/api/layers/reshaping_layers/
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

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


FORMULAS: Mapping[str, Any] = {
    "Flatten": flatten,
    "Reshape": reshape,
    "Permute": permute,
    "RepeatVector": repeat_vector,
}
