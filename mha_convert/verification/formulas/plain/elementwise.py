"""Activations, and what is an identity at inference."""

from collections.abc import Mapping
from typing import Any

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
}
