"""Attention without projections, from Keras' mathematics.

https://keras.io/api/layers/attention_layers/attention/
https://keras.io/api/layers/attention_layers/additive_attention/
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....records.layer import PlainLayer
from ....records.source import Array

LOWEST = -1e300  # a row without any key gets the same score for each, as in Keras' float32


def attention(
    layer: PlainLayer,
    arrays: Mapping[str, Array],
    inputs: tuple[Array, ...],
    query_mask: Array | None = None,
    value_mask: Array | None = None,
    return_attention_scores: bool = False,
    use_causal_mask: bool = False,
) -> Any:
    """Each query's average of the values, by a softmax of its scores; a padded query gets zeros."""
    query, value, key = inputs[0], inputs[1], inputs[-1]
    scores = scores_of(layer, arrays, query, key)
    if value_mask is not None:
        scores = np.where(value_mask.astype(bool)[:, None, :], scores, LOWEST)
    if use_causal_mask or layer.settings["causal"]:
        later = np.arange(key.shape[1]) > np.arange(query.shape[1])[:, None]
        scores = np.where(later, LOWEST, scores)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights = powers / powers.sum(-1, keepdims=True)
    output = np.einsum("bts,bsf->btf", weights, value)
    if query_mask is not None:
        output = np.where(query_mask.astype(bool)[:, :, None], output, 0.0)
    return (output, weights) if return_attention_scores else output


def scores_of(layer: PlainLayer, arrays: Mapping[str, Array], query: Array, key: Array) -> Array:
    """``(batch, query length, key length)``."""
    scale = arrays.get("scale", 1.0)
    pairs = query[:, :, None] + key[:, None]
    if layer.kind == "AdditiveAttention":
        return (scale * np.tanh(pairs)).sum(-1)
    if layer.settings["score_mode"] == "concat":
        return arrays["concat_score_weight"] * np.tanh(scale * pairs).sum(-1)
    return np.einsum("btf,bsf->bts", query, key) * scale


FORMULAS = {"Attention": attention, "AdditiveAttention": attention}
