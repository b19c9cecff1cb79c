"""Attention as the proof's driver sees it: calls, values and bounds by name, and requests to genuine Keras."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..records.layer import AttentionLayer, UnprojectedAttention
from ..records.source import Array
from .cases import TIME_AXIS, Case, apart, together
from .formulas.multi_head_attention import FLOAT64, Result
from .genuine_keras import Request
from .pytorch import run

if TYPE_CHECKING:
    from torch import nn

OUTPUT, SCORES, ALONE = "output", "scores", "output without scores"  # the last is another path in PyTorch and in Keras


@dataclass(frozen=True, slots=True, kw_only=True)
class Formulas:
    """One family's formula and its two bounds, for all calls of a layer at once.

    ``keras_roundoff`` is that of genuine Keras' float64 layer between the projections.
    """

    attention: Callable[..., Result]
    rounding_effect: Callable[..., Result]
    arithmetic_effect: Callable[..., Result]
    keras_roundoff: float

    def results(self, arrays: Mapping[str, Array], calls: Sequence[Case]) -> list[dict[str, Array]]:
        """What each call returns, in the axes that Keras gives it."""
        found = apart(self.attention(arrays, together(calls)), calls)
        return [named(case.in_keras_axes(result)) for case, result in zip(calls, found, strict=True)]

    def arithmetic(
        self, arrays: Mapping[str, Array], calls: Sequence[Case], *, of_keras: bool
    ) -> list[dict[str, Array]]:
        """How far each can be off."""
        inside = self.keras_roundoff if of_keras else FLOAT64
        effect = self.arithmetic_effect(arrays, together(calls), inside=inside, outside=FLOAT64)
        return [named(result) for result in apart(effect, calls)]

    def rounding(
        self, arrays: Mapping[str, Array], calls: Sequence[Case], dtypes: Mapping[str, str]
    ) -> list[dict[str, Array]]:
        """How far each can move when these arrays are rounded."""
        return [named(result) for result in apart(self.rounding_effect(arrays, together(calls), dtypes), calls)]


def named(result: Result) -> dict[str, Array]:
    """A call without scores has the same output."""
    return {OUTPUT: result.output, SCORES: result.scores, ALONE: result.output}


def run_values(module: "nn.Module", layer: AttentionLayer | UnprojectedAttention, case: Case) -> dict[str, Array]:
    """The module's output and per-head scores, and its output without scores."""
    result, alone = run(module, case, layer.num_heads)
    return named(result) | {ALONE: alone}


def inputs_of(cases: Sequence[Case]) -> list[dict[str, Array]]:
    """Each call's arrays for genuine Keras."""
    return [
        {name: getattr(case.call, name) for name in ("query", "key", "value")}
        | ({"attends": case.call.attends} if case.call.attends is not None else {})
        | ({"causal": np.array(True)} if case.mask == "causal mask" else {})
        for case in cases
    ]


def weights_request(layer: UnprojectedAttention, cases: Sequence[Case]) -> Request:
    """The layer with its weights in Keras' order; it takes a list, and masks for positions only."""
    return Request(
        class_name=layer.kind,
        settings=layer.sizes,
        weights={"": tuple(layer.arrays)},
        call="list of inputs",
        inputs=inputs_of(cases),
    )


def projections_request(layer: AttentionLayer, cases: Sequence[Case]) -> Request:
    """The layer, and for each projection its ``EinsumDense``."""
    settings: dict[str, Any] = {"use_bias": layer.use_bias}
    if layer.num_key_value_heads == layer.num_heads:
        class_name = "MultiHeadAttention"
        settings |= {"num_heads": layer.num_heads, "key_dim": layer.key_dim, "value_dim": layer.value_dim}
        settings |= {"output_shape": layer.output_shape}
        plain = layer.rank == 3 and layer.attended_axes in (None, TIME_AXIS)
        settings |= {} if plain else {"attention_axes": layer.attended_axes}
    else:
        class_name = "GroupQueryAttention"
        settings |= {"head_dim": layer.key_dim, "num_query_heads": layer.num_heads}
        settings |= {"num_key_value_heads": layer.num_key_value_heads}
    settings |= {"use_gate": True} if layer.gate else {}
    settings |= {"sliding_window": layer.sliding_window} if layer.sliding_window else {}
    parts = {
        f"_{role}_dense": tuple(name for name in layer.arrays if name.startswith(f"{role}."))
        for role in layer.projections
    }
    factor = 1.0 if layer.scale is None else layer.query_factor(layer.key_dim)
    return Request(
        class_name=class_name,
        settings=settings,
        weights=parts,
        call="three inputs",
        inputs=inputs_of(cases),
        factors={name: factor for name in parts["_query_dense"] if factor != 1},
    )
