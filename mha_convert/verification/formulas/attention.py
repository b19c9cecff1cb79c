"""Keras' ``Attention`` and ``AdditiveAttention``, written out in NumPy float64, and the calls that prove them.

Luong's score is ``scale * q · k``, or with ``score_mode="concat"`` ``concat_score_weight * Σ tanh(scale * (q + k))``;
Bahdanau's is ``Σ scale_i * tanh(q_i + k_i)``. Softmax over the keys, and the average of the values; scores are divided
by nothing. https://keras.io/api/layers/attention_layers/attention/ and …/additive_attention/

Arrays are under Keras' names: a ``scale`` of rank 1 is Bahdanau's.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...records.layer import UnprojectedAttention
from ...records.source import Array
from ..cases import BATCH, LENGTHS, SEED, WANTED_SCORE, Case, masks
from .multi_head_attention import Inputs, Result, grown, roundoff, softmax

FEATURES, VALUE_FEATURES = 6, 5  # where the layer takes any
KERAS_MASKS = ("no mask", "padding mask", "causal mask")  # the classes take no attention mask


def cases(layer: UnprojectedAttention, arrays: Mapping[str, Array]) -> tuple[Case, ...]:
    """The calls for one layer, with inputs of query and key such that the largest score is near 4, if it can be."""
    random = np.random.default_rng(SEED)
    features = layer.features or FEATURES
    queries, keys = LENGTHS[0]
    query = random.standard_normal((BATCH, queries, features))
    key = random.standard_normal((BATCH, keys, features))
    value = random.standard_normal((BATCH, keys, VALUE_FEATURES))
    factor = balance(arrays, query, key)
    inputs = Inputs(query=query * factor, key=key * factor, value=value)
    given = masks(random, [queries], [keys], None, (1,))
    calls = {name: replace(inputs, attends=given[name]) for name in KERAS_MASKS}
    return tuple(Case(name=name, mask=name, axes=(), call=call, inputs=call) for name, call in calls.items())


def balance(arrays: Mapping[str, Array], query: Array, key: Array) -> float:
    """The power of two by which query and key are multiplied; a tanh is not driven to its ends."""
    is_dot = "concat_score_weight" not in arrays and arrays["scale"].ndim == 0
    powers = [2.0**exponent for exponent in range(-60, 61 if is_dot else 1)]
    largest = [float(np.abs(raw_scores(arrays, query * power, key * power)).max()) for power in powers]
    if not 0 < max(largest) < np.inf:
        return 1.0
    return min(zip(powers, largest, strict=True), key=lambda pair: abs(np.log2(max(pair[1], 1e-300) / WANTED_SCORE)))[0]


def raw_scores(arrays: Mapping[str, Array], query: Array, key: Array) -> Array:
    """``(batch, query_length, key_length)``, not masked."""
    scale = arrays.get("scale", np.ones(()))
    if "concat_score_weight" in arrays:
        scores: Array = arrays["concat_score_weight"] * np.tanh(scale * sums(query, key)).sum(-1)
    elif scale.ndim == 1:
        scores = np.tanh(sums(query, key)) @ scale
    else:
        scores = scale * (query @ key.swapaxes(-2, -1))
    return scores


def sums(query: Array, key: Array) -> Array:
    """Every query with every key: ``(batch, query_length, key_length, features)``."""
    return query[:, :, None] + key[:, None]


def masked(scores: Array, attends: Array | None) -> Array:
    """Blocked keys get minus infinity; the calls here leave each row a key."""
    return scores if attends is None else np.where(attends, scores, -np.inf)


def attention(arrays: Mapping[str, Array], inputs: Inputs) -> Result:
    """Keras' result in float64: output ``(batch, query_length, value_features)``, scores without an axis for heads."""
    scores = np.tile(raw_scores(arrays, inputs.query, inputs.key), (inputs.calls, 1, 1))
    weights = softmax(masked(scores, inputs.attends))
    return Result(output=weights @ np.tile(inputs.value, (inputs.calls, 1, 1)), scores=weights)


def rounding_effect(arrays: Mapping[str, Array], inputs: Inputs, dtypes: Mapping[str, str]) -> Result:
    """How far outputs and scores can move when each weight is rounded once to a dtype; a bound, as in ``formula``."""
    moved = {name: roundoff(np.abs(array), dtypes.get(name)) for name, array in arrays.items()}
    scale, scale_moved = arrays.get("scale", np.ones(())), moved.get("scale", np.zeros(()))
    if "concat_score_weight" in arrays:
        weight, weight_moved = np.abs(arrays["concat_score_weight"]), moved["concat_score_weight"]
        pairs = sums(inputs.query, inputs.key)
        # tanh has a slope of at most 1, and no two of its values are more than 2 apart
        shift = weight_moved * np.abs(np.tanh(scale * pairs).sum(-1))
        shift = shift + (weight + weight_moved) * np.minimum(scale_moved * np.abs(pairs), 2.0).sum(-1)
    elif scale.ndim == 1:
        shift = np.abs(np.tanh(sums(inputs.query, inputs.key))) @ scale_moved
    else:
        shift = scale_moved * np.abs(inputs.query @ inputs.key.swapaxes(-2, -1))
    return effect(arrays, inputs, shift, 0.0)


def arithmetic_effect(arrays: Mapping[str, Array], inputs: Inputs, *, inside: float, outside: float) -> Result:
    """How far a result can be off by the rounding of each operation; the textbook bound, as in ``formula``.

    Args:
        arrays: Keras' weights in float64.
        inputs: of the call.
        inside: unit roundoff ``u`` of every operation.
        outside: of the projections, which these layers do not have.
    """
    features, scale = inputs.query.shape[-1], np.abs(arrays.get("scale", np.ones(())))
    if "concat_score_weight" in arrays:
        argument = scale * np.abs(sums(inputs.query, inputs.key))
        terms = (features + 8) * np.tanh(argument) + 3 * argument
        shift = np.abs(arrays["concat_score_weight"]) * terms.sum(-1) * inside
    elif scale.ndim == 1:
        argument = np.abs(sums(inputs.query, inputs.key))
        shift = ((features + 8) * np.tanh(argument) + 2 * argument) @ scale * inside
    else:
        shift = (features + 4) * scale * (np.abs(inputs.query) @ np.abs(inputs.key).swapaxes(-2, -1)) * inside
    return effect(arrays, inputs, shift, inside)


def effect(arrays: Mapping[str, Array], inputs: Inputs, shift: Array, roundoff_of_sums: float) -> Result:
    """What scores that move by at most ``shift`` do to weights and output, with the rounding of the sums over keys."""
    weights = attention(arrays, inputs).scores
    largest = masked(np.tile(shift, (inputs.calls, 1, 1)), inputs.attends).max(-1, keepdims=True)
    keys = inputs.key.shape[1]
    weight_shift = grown(weights, largest) + weights * (keys + 4) * roundoff_of_sums
    values = np.tile(np.abs(inputs.value), (inputs.calls, 1, 1))
    output = (weight_shift + weights * (keys + 2) * roundoff_of_sums) @ values
    return Result(output=output, scores=weight_shift)
