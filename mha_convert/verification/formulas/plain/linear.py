"""Dense, EinsumDense and Embedding."""

from collections.abc import Mapping

import numpy as np

from ....layers.plain.activations import activation_of
from ....records.layer import PlainLayer
from ....records.source import Array
from .activations import activated


def dense(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """``activation(x kernel + bias)``. https://keras.io/api/layers/core_layers/dense/"""
    result = inputs @ arrays["kernel"] + arrays.get("bias", 0.0)
    return activated(activation_of(layer.settings["activation"], layer.version), result)


def einsum_dense(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """``activation(einsum(equation, x, kernel) + bias)``. https://keras.io/api/layers/core_layers/einsum_dense/"""
    result: Array = np.einsum(layer.settings["equation"], inputs, arrays["kernel"], optimize=True)
    result = result + arrays.get("bias", 0.0)
    return activated(activation_of(layer.settings["activation"], layer.version), result)


def embedding(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Rows of the table. https://keras.io/api/layers/core_layers/embedding/"""
    return arrays["embeddings"][inputs.astype(np.int64)]


FORMULAS = {"Dense": dense, "EinsumDense": einsum_dense, "Embedding": embedding}
