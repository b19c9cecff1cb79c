"""What the proof needs to know of each kind of layer: one row for each in ``OF_KIND``.

The driver compares values by name and knows no kind. A kind says which calls are made, what they return by the formula,
how far rounding can move that, and how PyTorch's module and genuine Keras are called.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..datatypes import Array
from . import attention_calls, cases, formula, layer_normalization, unprojected
from .formula import FLOAT32, FLOAT64
from .genuine_keras import Request

Values = Mapping[str, Array]  # what one call returns, by name


class Call(Protocol):
    """One call: its inputs are the kind's own."""

    @property
    def name(self) -> str:
        """What is told of it: ``"padding mask"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mathematics:
    """What one kind of layer computes.

    Args:
        cases: the calls, for a layer and Keras' arrays in float64.
        formula: what each call returns, in NumPy float64.
        arithmetic: how far that can be off by the rounding of each operation, in float64 or in genuine Keras' own.
        rounding: how far it can move when arrays are rounded once to the dtypes that are given by name.
        run: what a module of PyTorch returns for one call.
        keras_request: how genuine Keras makes the layer and is called.
        telling: the values whose bounds must be small for a comparison to mean anything.
    """

    cases: Callable[[Any, Mapping[str, Array]], Sequence[Any]]
    formula: Callable[[Mapping[str, Array], Sequence[Any]], Sequence[Values]]
    arithmetic: Callable[..., Sequence[Values]]
    rounding: Callable[[Mapping[str, Array], Sequence[Any], Mapping[str, str]], Sequence[Values]]
    run: Callable[[Any, Any, Any], Values]
    keras_request: Callable[[Any, Sequence[Any]], Request]
    telling: tuple[str, ...]


PROJECTED = attention_calls.Formulas(
    attention=formula.attention,
    rounding_effect=formula.rounding_effect,
    arithmetic_effect=formula.arithmetic_effect,
    # Genuine Keras rounds 1/sqrt(key_dim) to float32; where it calls a fused kernel, it casts the heads, too (measured
    # with Keras 3.15.1 on TensorFlow and torch).
    keras_roundoff=FLOAT32,
)
UNPROJECTED = attention_calls.Formulas(
    attention=unprojected.attention,
    rounding_effect=unprojected.rounding_effect,
    arithmetic_effect=unprojected.arithmetic_effect,
    keras_roundoff=FLOAT64,
)


def mathematics(
    formulas: attention_calls.Formulas,
    calls: Callable[[Any, Mapping[str, Array]], Sequence[Any]],
    keras_request: Callable[[Any, Sequence[Any]], Request],
) -> Mathematics:
    """A row for a kind of attention."""
    return Mathematics(
        cases=calls,
        formula=formulas.results,
        arithmetic=formulas.arithmetic,
        rounding=formulas.rounding,
        run=attention_calls.run_values,
        keras_request=keras_request,
        telling=("scores",),
    )


WITH_PROJECTIONS = mathematics(PROJECTED, cases.cases, attention_calls.projections_request)
WITHOUT = mathematics(UNPROJECTED, unprojected.cases, attention_calls.weights_request)
OF_KIND: Mapping[str, Mathematics] = {
    "MultiHeadAttention": WITH_PROJECTIONS,
    "GroupQueryAttention": WITH_PROJECTIONS,
    "Attention": WITHOUT,
    "AdditiveAttention": WITHOUT,
    "LayerNormalization": Mathematics(
        cases=layer_normalization.cases,
        formula=layer_normalization.formula,
        arithmetic=layer_normalization.arithmetic,
        rounding=layer_normalization.rounding,
        run=layer_normalization.run,
        keras_request=layer_normalization.keras_request,
        telling=("output",),
    ),
}
