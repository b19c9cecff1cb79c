"""Calls that return what they are given in its own shape: activations and dropout."""

from typing import Any

from ...layers.plain.identities import SPATIAL
from ...records.graph import TensorSpec
from ...records.layer import PlainLayer


def same(layer: PlainLayer, inputs: TensorSpec, training: Any = None) -> TensorSpec:
    """The input's own shape."""
    return inputs


ACTIVATIONS = ("Activation", "ReLU", "LeakyReLU", "ELU", "Softmax", "Identity")
DROPOUTS = ("Dropout", *SPATIAL, "GaussianDropout", "AlphaDropout", "GaussianNoise", "ActivityRegularization")
SHAPES = dict.fromkeys((*ACTIVATIONS, *DROPOUTS), same)
