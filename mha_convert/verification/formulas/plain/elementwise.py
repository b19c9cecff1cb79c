"""Activations, what is an identity at inference, and normalization of features."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....layers.plain.activations import OF_LAYERS
from ....layers.plain.identities import SPATIAL
from ....records.layer import PlainLayer
from ....records.source import Array
from .activations import activated


def activation(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """An activation as a layer."""
    return activated(OF_LAYERS[layer.kind](layer.settings, layer.version), inputs)


def identity(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """The input itself."""
    return inputs


def layer_normalization(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Mean 0 and variance 1 over some axes, then gamma and beta.

    https://keras.io/api/layers/normalization_layers/layer_normalization/
    """
    axes = tuple(axis % inputs.ndim for axis in layer.settings["axis"])
    shape = [size if axis in axes else 1 for axis, size in enumerate(inputs.shape)]
    centred = inputs - inputs.mean(axes, keepdims=True)
    variance = np.square(centred).mean(axes, keepdims=True)
    divided: Array = (inputs if layer.settings["rms_scaling"] else centred) / np.sqrt(
        variance + layer.settings["epsilon"]
    )
    if "gamma" in arrays:
        divided = divided * arrays["gamma"].reshape(shape)
    return divided if layer.settings["rms_scaling"] or "beta" not in arrays else divided + arrays["beta"].reshape(shape)


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
    **dict.fromkeys(IDENTITIES, identity),
    "LayerNormalization": layer_normalization,
}
