"""Keras' ``LayerNormalization``, written out in NumPy float64, and the calls that prove it.

``(x - mean) / sqrt(variance + epsilon) * gamma + beta``, with the mean and the (biased) variance of the normalized
axes. https://keras.io/api/layers/normalization_layers/layer_normalization/
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...records.layer import PlainLayer
from ...records.source import Array
from ..genuine_keras import Request
from ..mathematics import Mathematics
from .multi_head_attention import FLOAT32, FLOAT64, roundoff

if TYPE_CHECKING:
    from torch import nn

SEED = 20261
BATCH, LENGTH = 2, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One input ``(batch, length, *normalized axes)``, and the layer's epsilon."""

    name: str
    inputs: Array
    epsilon: float

    @property
    def axes(self) -> tuple[int, ...]:
        """Those that are normalized."""
        return tuple(range(2, self.inputs.ndim))


def cases(layer: PlainLayer, arrays: Mapping[str, Array]) -> tuple[Call, ...]:
    """Ordinary inputs, and some with a variance near epsilon, which then makes half of the result."""
    random = np.random.default_rng(SEED)
    epsilon = float(layer.settings["epsilon"])
    inputs = random.standard_normal((BATCH, LENGTH, *next(iter(arrays.values())).shape)) + 0.5
    return (
        Call(name="ordinary inputs", inputs=inputs, epsilon=epsilon),
        Call(name="a variance near epsilon", inputs=inputs * np.sqrt(epsilon), epsilon=epsilon),
    )


def normalized(call: Call) -> Array:
    """Mean 0, and variance 1 less the part of epsilon."""
    centred = call.inputs - call.inputs.mean(call.axes, keepdims=True)
    variance = np.square(centred).mean(call.axes, keepdims=True)
    result: Array = centred / np.sqrt(variance + call.epsilon)
    return result


def formula(arrays: Mapping[str, Array], calls: Sequence[Call]) -> list[dict[str, Array]]:
    """The output of each call."""
    return [{"output": normalized(call) * arrays.get("gamma", 1.0) + arrays.get("beta", 0.0)} for call in calls]


def arithmetic(arrays: Mapping[str, Array], calls: Sequence[Call], *, of_keras: bool) -> list[dict[str, Array]]:
    """How far each output can be off by the rounding of each operation; the textbook bound.

    A mean of ``n`` numbers is off by at most ``(n + 2) u`` of their mean size. Genuine Keras on TensorFlow has its
    epsilon in float32.
    """
    return [{"output": arithmetic_effect(arrays, call, FLOAT32 if of_keras else 0.0)} for call in calls]


def arithmetic_effect(arrays: Mapping[str, Array], call: Call, of_epsilon: float) -> Array:
    """The bound for one call."""
    count = int(np.prod([call.inputs.shape[axis] for axis in call.axes]))
    sums = (count + 2) * FLOAT64
    centred = np.abs(call.inputs - call.inputs.mean(call.axes, keepdims=True))
    of_centred = sums * np.abs(call.inputs).mean(call.axes, keepdims=True) + FLOAT64 * centred
    variance = np.square(centred).mean(call.axes, keepdims=True)
    of_variance = np.mean(2 * centred * of_centred + of_centred**2, call.axes, keepdims=True) + 2 * sums * variance
    whole = variance + call.epsilon
    of_root = (of_variance + of_epsilon * call.epsilon) / whole + 4 * FLOAT64  # relative; half of it at the most
    scale, shift = np.abs(arrays.get("gamma", np.ones(()))), np.abs(arrays.get("beta", np.zeros(())))
    result: Array = (of_centred + centred * of_root) / np.sqrt(whole) * scale + 3 * FLOAT64 * (
        centred / np.sqrt(whole) * scale + shift
    )
    return result


def rounding(arrays: Mapping[str, Array], calls: Sequence[Call], dtypes: Mapping[str, str]) -> list[dict[str, Array]]:
    """How far each output can move when gamma and beta are rounded once to a dtype."""
    moved = {name: roundoff(np.abs(array), dtypes.get(name)) for name, array in arrays.items()}
    return [{"output": np.abs(normalized(call)) * moved.get("gamma", 0.0) + moved.get("beta", 0.0)} for call in calls]


def run(module: "nn.Module", layer: PlainLayer, call: Call) -> dict[str, Array]:
    """The module's output."""
    import torch

    with torch.no_grad():
        return {"output": module(torch.from_numpy(call.inputs)).numpy()}


def keras_request(layer: PlainLayer, calls: Sequence[Call]) -> Request:
    """The layer, whose axes are the last ones."""
    settings: dict[str, Any] = {name: layer.settings[name] for name in ("epsilon", "center", "scale")}
    settings["axis"] = list(range(-len(layer.settings["axis"]), 0))
    return Request(
        class_name=layer.kind,
        settings=settings,
        weights={"": tuple(layer.arrays)},
        call="one input",
        inputs=[{"inputs": call.inputs} for call in calls],
    )


MATHEMATICS = Mathematics(
    cases=cases,
    formula=formula,
    arithmetic=arithmetic,
    rounding=rounding,
    run=run,
    keras_request=keras_request,
    telling=("output",),
)
