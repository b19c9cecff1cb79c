"""What the proof needs to know of each kind of layer: one row for each in ``OF_KIND``.

The driver compares values by name and knows no kind. A kind says which calls are made, what they return by the formula,
how far rounding can move that, and how PyTorch's module and genuine Keras are called.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..records.source import Array
from . import attention_calls, cases
from .formulas import attention as unprojected
from .formulas import layer_normalization
from .formulas import multi_head_attention as formula
from .formulas.multi_head_attention import FLOAT32, FLOAT64
from .genuine_keras import Request
from .mathematics import Mathematics

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
    "LayerNormalization": layer_normalization.MATHEMATICS,
}
