"""Activations, and what is an identity at inference."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....layers.plain.activations import OF_LAYERS
from ....layers.plain.identities import SPATIAL
from ....records.layer import PlainLayer
from ....records.source import Array
from .activations import activated

ZEROS_WHERE_MASKED = (3, 10)


def activation(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """An activation as a layer."""
    return activated(OF_LAYERS[layer.kind](layer.settings, layer.version), inputs)


def softmax(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array, mask: Array | None = None) -> Array:
    """Of scores; those that a mask leaves out are -1e9, and from Keras 3.10 on their results are 0 in any case."""
    if mask is None:
        return activation(layer, arrays, inputs)
    results = activation(layer, arrays, np.where(mask, inputs, -1e9))
    return results * mask if layer.version >= ZEROS_WHERE_MASKED else results


def identity(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """The input itself."""
    return inputs


IDENTITIES = (
    "Identity",
    "Dropout",
    *SPATIAL,
    "GaussianDropout",
    "AlphaDropout",
    "GaussianNoise",
    "ActivityRegularization",
)
FORMULAS: Mapping[str, Any] = {
    **dict.fromkeys(OF_LAYERS, activation),
    "Softmax": softmax,
    **dict.fromkeys(IDENTITIES, identity),
}
