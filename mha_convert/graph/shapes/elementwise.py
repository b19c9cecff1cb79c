"""Calls that return what they are given in its own shape: activations and dropout."""

from typing import Any

from ...layers.plain.identities import SPATIAL
from ...records.graph import TensorSpec
from ...records.layer import PlainLayer
from .sizes import ShapeError, sizes, together


def same(layer: PlainLayer, inputs: TensorSpec, training: Any = None) -> TensorSpec:
    """The input's own shape."""
    return inputs


def softmax(layer: PlainLayer, inputs: TensorSpec, mask: TensorSpec | None = None) -> TensorSpec:
    """The input's own shape, which a mask of booleans broadcasts to."""
    if mask is None:
        return inputs
    if mask.dtype != "bool":
        raise ShapeError(f"is called with a mask of {mask.dtype}, which has no rule; masks of booleans have one")
    shape, wanted = sizes(mask), sizes(inputs)
    if len(shape) > len(wanted) or together((1,) * (len(wanted) - len(shape)) + shape, wanted) != wanted:
        raise ShapeError("is called with a mask that does not broadcast to its input")
    return inputs


ACTIVATIONS = ("Activation", "ReLU", "LeakyReLU", "ELU", "Identity")
DROPOUTS = ("Dropout", *SPATIAL, "GaussianDropout", "AlphaDropout", "GaussianNoise", "ActivityRegularization")
SHAPES = {**dict.fromkeys((*ACTIVATIONS, *DROPOUTS), same), "Softmax": softmax}
