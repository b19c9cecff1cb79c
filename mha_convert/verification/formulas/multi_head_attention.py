"""The Keras layer, written out in NumPy float64. Shares no code with the conversion.

``keras.layers.MultiHeadAttention``: each input is projected, ``q = query · Wq + bq``; scores are
``q · k / sqrt(key_dim)``, masked, and turned into weights by softmax; their average of the projected values is
projected out. https://keras.io/api/layers/attention_layers/multi_head_attention/

``GroupQueryAttention``: one key and value head serves several query heads, in order. A gate multiplies the average by
``sigmoid(query · Wg + bg)``. https://keras.io/api/layers/attention_layers/group_query_attention/
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ...records.source import Array

# Bits of the significand (with the leading one) and the exponent of the smallest normal number, by IEEE 754.
FORMATS = {"float64": (53, -1022), "float32": (24, -126), "float16": (11, -14), "bfloat16": (8, -126)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Inputs of one call: ``(batch, length, features)`` each, and who may attend to whom.

    ``attends`` is ``(batch, query_length, key_length)``, True where the query may attend, or None. ``calls`` is the
    number of calls with these same inputs: ``attends`` and the results then have one batch after the other. Scores
    are multiplied by ``scale``; by ``1/sqrt(key_dim)`` for None.
    """

    query: Array
    key: Array
    value: Array
    attends: Array | None = None
    calls: int = 1
    scale: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """``output (batch, query_length, *output_shape)``, ``scores (batch, heads, query_length, key_length)``."""

    output: Array
    scores: Array


def attention(arrays: Mapping[str, Array], inputs: Inputs) -> Result:
    """Keras' result in float64.

    Args:
        arrays: Keras' own arrays by ``"query.kernel"``, …, ``"output.bias"``, in float64.
        inputs: of one call.
    """
    query, key, value = projected(arrays, inputs)
    weights = softmax(masked(raw_scores(query, key, inputs.scale), inputs.attends))
    context = np.einsum("bhts,bshv->bthv", weights, value, optimize=True) * gate(arrays, inputs)
    output = np.einsum("bthv,hv...->bt...", context, arrays["output.kernel"], optimize=True)
    return Result(output=output + arrays.get("output.bias", 0.0), scores=weights)


def projected(arrays: Mapping[str, Array], inputs: Inputs) -> tuple[Array, Array, Array]:
    """Query, key and value heads ``(batch, length, heads, head_dim)``, one of each for every query head."""
    query, key, value = (
        linear(arrays, role, features, inputs.calls)
        for role, features in (("query", inputs.query), ("key", inputs.key), ("value", inputs.value))
    )
    groups = query.shape[2] // key.shape[2]
    return query, np.repeat(key, groups, axis=2), np.repeat(value, groups, axis=2)


def linear(arrays: Mapping[str, Array], role: str, features: Array, calls: int) -> Array:
    """``(batch, length, heads, head_dim)``; the same batch again for each call."""
    heads: Array = np.einsum("btf,fhd->bthd", features, arrays[f"{role}.kernel"], optimize=True)
    return np.tile(heads + arrays.get(f"{role}.bias", 0.0), (calls, 1, 1, 1))


def gate(arrays: Mapping[str, Array], inputs: Inputs) -> Array | float:
    """What each head's average is multiplied by: ``(batch, query_length, heads, value_dim)``, or 1 without a gate."""
    if "gate.kernel" not in arrays:
        return 1.0
    opened: Array = np.exp(-np.logaddexp(0.0, -linear(arrays, "gate", inputs.query, inputs.calls)))
    return opened


def gate_shift(arrays: Mapping[str, Array], shift: Array | float) -> Array | float:
    """How far the gate moves when its argument moves by ``shift``: a sigmoid's slope is at most 1/4."""
    return np.minimum(np.asarray(shift) / 4, 1.0) if "gate.kernel" in arrays else 0.0


def raw_scores(query: Array, key: Array, scale: float | None) -> Array:
    """``(batch, heads, query_length, key_length)``, scaled and not masked."""
    scores: Array = np.einsum("bthd,bshd->bhts", query, key, optimize=True)
    return scores / np.sqrt(query.shape[-1]) if scale is None else scores * scale


def masked(scores: Array, attends: Array | None) -> Array:
    """Blocked keys get minus infinity; a row without any key gets equal scores, as adding -1e9 does in Keras."""
    if attends is None:
        return scores
    blocked = np.where(attends[:, None], scores, -np.inf)
    has_key = np.any(attends, axis=-1, keepdims=True)[:, None]
    return np.where(has_key, blocked, 0.0)


def softmax(scores: Array) -> Array:
    """Softmax over the last axis."""
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights: Array = powers / powers.sum(-1, keepdims=True)
    return weights


def holds_exactly(source: str, target: str) -> bool:
    """Whether every number of one dtype is a number of the other."""
    (bits, low), (target_bits, target_low) = FORMATS[source], FORMATS[target]
    return bits <= target_bits and low >= target_low


def rounding_effect(arrays: Mapping[str, Array], inputs: Inputs, dtypes: Mapping[str, str]) -> Result:
    """How far outputs and scores can move when each array is rounded once to a dtype.

    A bound, not an estimate: a number ``w`` moves by at most ``u |w| + t`` (unit roundoff ``u = 2^-bits``, half the
    smallest subnormal ``t``), and the largest effect is followed through every step. Scores that move by at most ``d``
    in a row change each attention weight by at most the factor ``exp(2 d)``.

    Args:
        arrays: Keras' arrays in float64.
        inputs: of the call.
        dtypes: of the rounded arrays only, by the same names.
    """
    size = {name: np.abs(array) for name, array in arrays.items()}
    moved = {name: roundoff(size[name], dtypes.get(name)) for name in arrays}
    heads = projected(arrays, inputs)
    near = {role: np.abs(array) for role, array in zip(("query", "key", "value"), heads, strict=True)}
    far = dict(zip(near, projected(moved, absolute(inputs)), strict=True))
    cross = (near["query"], far["key"]), (far["query"], near["key"]), (far["query"], far["key"])
    shift = np.sum([raw_scores(a, b, inputs.scale) for a, b in cross], axis=0)
    weights = softmax(masked(raw_scores(heads[0], heads[1], inputs.scale), inputs.attends))
    largest = masked(shift, inputs.attends).max(-1, keepdims=True)
    weight_shift = grown(weights, largest)
    context = np.einsum("bhts,bshv->bthv", weights, near["value"])
    context_shift = np.einsum("bhts,bshv->bthv", weight_shift, near["value"] + far["value"])
    context_shift += np.einsum("bhts,bshv->bthv", weights, far["value"])
    opened = gate(arrays, inputs)
    opened_shift = gate_shift(
        arrays, linear(moved, "gate", np.abs(inputs.query), inputs.calls) if "gate.kernel" in moved else 0.0
    )
    context, context_shift = context * opened, context_shift * (opened + opened_shift) + context * opened_shift
    kernel, kernel_shift = size["output.kernel"], moved["output.kernel"]
    output = np.einsum("bthv,hv...->bt...", context_shift, kernel + kernel_shift, optimize=True)
    output += np.einsum("bthv,hv...->bt...", context, kernel_shift, optimize=True)
    return Result(output=output + moved.get("output.bias", 0.0), scores=weight_shift)


def grown(weights: Array, largest: Array) -> Array:
    """How far weights move when scores of their row move by at most ``largest``; none moves by more than 1."""
    return np.minimum(weights * np.expm1(np.minimum(2 * largest, 700.0)), 1.0)


def arithmetic_effect(arrays: Mapping[str, Array], inputs: Inputs, *, inside: float, outside: float) -> Result:
    """How far a result can be off by the rounding of each operation; the textbook bound.

    A sum of ``n`` products is off by at most ``(n + 2) u`` of the sum of their sizes.

    Args:
        arrays: Keras' arrays in float64.
        inputs: of the call.
        inside: unit roundoff ``u`` of what happens between the projections.
        outside: of the projections.
    """
    size = {name: np.abs(array) for name, array in arrays.items()}
    query, key, value = projected(arrays, inputs)
    largest_heads = dict(zip(("query", "key", "value"), projected(size, absolute(inputs)), strict=True))
    near = {role: np.abs(array) for role, array in zip(largest_heads, (query, key, value), strict=True)}
    far = {role: array * (arrays[f"{role}.kernel"].shape[0] + 3) * outside for role, array in largest_heads.items()}
    key_length, key_dim = key.shape[1], query.shape[-1]
    scores = partial(raw_scores, scale=inputs.scale)
    weights = softmax(masked(scores(query, key), inputs.attends))
    shift = scores(near["query"], near["key"]) * (key_dim + 4) * inside
    shift = shift + scores(near["query"], far["key"]) + scores(far["query"], near["key"] + far["key"])
    largest = masked(shift, inputs.attends).max(-1, keepdims=True)
    weight_shift = grown(weights, largest) + weights * (key_length + 4) * inside
    moved = np.einsum(
        "bhts,bshv->bthv", weight_shift + weights * (key_length + 2) * inside, near["value"] + far["value"]
    )
    moved += np.einsum("bhts,bshv->bthv", weights, far["value"])
    context = np.einsum("bhts,bshv->bthv", weights, near["value"])
    if "gate.kernel" in arrays:
        argument = (
            linear(size, "gate", np.abs(inputs.query), inputs.calls) * (arrays["gate.kernel"].shape[0] + 3) * outside
        )
        opened, opened_shift = gate(arrays, inputs), gate_shift(arrays, argument) + 4 * outside
        context, moved = context * opened, moved * (opened + opened_shift) + context * opened_shift
    terms = query.shape[2] * value.shape[-1] + 3
    output = np.einsum("bthv,hv...->bt...", moved + context * terms * outside, size["output.kernel"], optimize=True)
    return Result(output=output + size.get("output.bias", 0.0) * terms * outside, scores=weight_shift)


FLOAT32, FLOAT64 = 2.0**-24, 2.0**-53


def roundoff(size: Array, dtype: str | None) -> Array:
    """How far numbers of these sizes move when rounded once; 0 for None."""
    if dtype is None:
        return np.zeros_like(size)
    bits, low = FORMATS[dtype]
    return size * 2.0**-bits + (2.0 ** (low - bits) if low > -1000 else 0.0)


def absolute(inputs: Inputs) -> Inputs:
    """The inputs' sizes."""
    return replace(inputs, query=np.abs(inputs.query), key=np.abs(inputs.key), value=np.abs(inputs.value))
