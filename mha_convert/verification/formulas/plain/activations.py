"""Activations by Keras' names, as Keras computes them.

https://keras.io/api/layers/activations/; selu's constants are those of Klambauer et al., 2017.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....layers.plain.activations import Activation
from ....records.source import Array

SELU_SCALE, SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))``, without overflow."""
    return np.exp(-np.logaddexp(0.0, -x))


def softplus(x: Array) -> Array:
    """``log(1 + exp(x))``, without overflow."""
    return np.logaddexp(0.0, x)


def relu(x: Array, max_value: float | None = None, negative_slope: float = 0.0, threshold: float = 0.0) -> Array:
    """0 up to the threshold, or a slope there; no more than a largest value."""
    kept = (
        np.where(x > threshold, x, negative_slope * (x - threshold))
        if threshold
        else np.where(x > 0, x, negative_slope * x)
    )
    return kept if max_value is None else np.minimum(kept, max_value)


def elu(x: Array, alpha: float = 1.0) -> Array:
    """``alpha (exp(x) - 1)`` below 0."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0)))


def softmax(x: Array, axis: int | list[int] = -1) -> Array:
    """Powers that sum to 1 along one axis, or several together."""
    axes = tuple(axis) if isinstance(axis, list) else axis
    powers = np.exp(x - x.max(axes, keepdims=True))
    return powers / powers.sum(axes, keepdims=True)


def log_softmax(x: Array) -> Array:
    """The logarithm of softmax."""
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def sparsemax(x: Array) -> Array:
    """As every backend of Keras computes it: with the sum of all sums of the support, where the paper has the last.

    https://github.com/keras-team/keras/blob/v3.15.0/keras/src/backend/numpy/nn.py
    """
    largest_first = -np.sort(-x, axis=-1)
    sums = largest_first.cumsum(-1)
    support = largest_first - (sums - 1.0) / np.arange(1, x.shape[-1] + 1) > 0.0
    threshold = (np.where(support, sums, 0.0).sum(-1, keepdims=True) - 1.0) / support.sum(-1, keepdims=True)
    return np.maximum(x - threshold, 0.0)


def gelu(x: Array) -> Array:
    """``x`` times the share of a normal distribution below it: Keras' default is the exact form, not that with tanh."""
    return x * 0.5 * (1.0 + erf(x / math.sqrt(2.0)))


def erf(x: Array) -> Array:
    """The error function."""
    flat = np.fromiter((math.erf(value) for value in x.ravel()), np.float64, x.size)
    return flat.reshape(x.shape)


def hard_sigmoid(x: Array, slope: float | None = None) -> Array:
    """``relu6(x + 3) / 6``; with a slope, that of Keras 2: ``clip(slope x + 0.5, 0, 1)``."""
    return np.clip(x + 3.0, 0.0, 6.0) / 6.0 if slope is None else np.clip(slope * x + 0.5, 0.0, 1.0)


FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "linear": lambda x: x,
    "relu": relu,
    "relu6": lambda x: np.clip(x, 0.0, 6.0),
    "leaky_relu": lambda x, negative_slope=0.2: np.where(x > 0, x, negative_slope * x),
    "elu": elu,
    "selu": lambda x: SELU_SCALE * elu(x, SELU_ALPHA),
    "gelu": gelu,
    "silu": lambda x: x * sigmoid(x),
    "mish": lambda x: x * np.tanh(softplus(x)),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "softplus": softplus,
    "softsign": lambda x: x / (1.0 + np.abs(x)),
    "exponential": np.exp,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "hard_sigmoid": hard_sigmoid,
    "hard_silu": lambda x: x * hard_sigmoid(x),
    "hard_tanh": lambda x: np.clip(x, -1.0, 1.0),
    "hard_shrink": lambda x: np.where(np.abs(x) > 0.5, x, 0.0),
    "soft_shrink": lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0.0),
    "tanh_shrink": lambda x: x - np.tanh(x),
    "celu": elu,  # the same where alpha is 1, which it is in every setting
    "log_sigmoid": lambda x: -softplus(-x),
    "squareplus": lambda x: (x + np.sqrt(x * x + 4.0)) / 2.0,
    "sparse_plus": lambda x: np.where(x >= 1.0, x, np.where(x <= -1.0, 0.0, (x + 1.0) ** 2 / 4.0)),
    "sparse_sigmoid": lambda x: np.where(x >= 1.0, 1.0, np.where(x <= -1.0, 0.0, (x + 1.0) / 2.0)),
    "sparsemax": sparsemax,
}


def activated(activation: Activation | None, x: Array) -> Array:
    """An activation applied."""
    found: Any = activation
    return FUNCTIONS[found.name](x, **found.options)
