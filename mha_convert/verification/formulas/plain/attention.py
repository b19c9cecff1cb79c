"""Attention between projections, by the formula that proves it alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....records.layer import AttentionLayer
from ....records.source import Array
from ..multi_head_attention import Inputs
from ..multi_head_attention import attention as formula

TIME_AXIS = (1,)


def multi_head(
    layer: AttentionLayer,
    arrays: Mapping[str, Array],
    query: Array,
    value: Array,
    key: Array | None = None,
    attention_mask: Array | None = None,
    return_attention_scores: bool = False,
    use_causal_mask: bool = False,
    without_key: str = "average",
) -> Any:
    """https://keras.io/api/layers/attention_layers/multi_head_attention/"""
    key = value if key is None else key
    axes = tuple(layer.attended_axes or TIME_AXIS)
    attends = None if attention_mask is None else attention_mask.astype(bool)
    flat_query, flat_key, flat_value = (flattened(array, axes) for array in (query, key, value))
    rows, columns = flat_query.shape[1], flat_key.shape[1]
    groups = len(flat_query) // len(query)
    masks = []
    if attends is not None:
        whole = np.broadcast_to(attends.reshape(attends.shape[0], *attends.shape[1:]), (len(query), *attends.shape[1:]))
        masks.append(
            np.repeat(
                np.broadcast_to(whole.reshape(len(query), -1, whole.shape[-1]), (len(query), rows, columns)),
                groups,
                axis=0,
            )
        )
    if use_causal_mask:
        masks.append(np.broadcast_to(np.tril(np.ones((rows, columns), bool)), (len(flat_query), rows, columns)))
    if layer.sliding_window is not None:
        band = np.abs(np.arange(rows)[:, None] - np.arange(columns)) < layer.sliding_window
        masks.append(np.broadcast_to(band, (len(flat_query), rows, columns)))
    merged = np.logical_and.reduce(masks) if masks else None
    result = formula(
        arrays, Inputs(query=flat_query, key=flat_key, value=flat_value, attends=merged, scale=layer.scale)
    )
    output, scores = result.output, result.scores
    if without_key == "zeros" and merged is not None:
        has_key = merged.any(-1, keepdims=True)
        output = np.where(
            has_key.reshape(*has_key.shape, *[1] * (output.ndim - 3)), output, arrays.get("output.bias", 0.0)
        )
        scores = scores * has_key[:, None]
    output, scores = in_keras_axes(output, scores, query, key, axes)
    return (output, scores) if return_attention_scores else output


def flattened(array: Array, axes: tuple[int, ...]) -> Array:
    """``(batch, *axes, features)`` as ``(batch and other axes, attended axes, features)``."""
    others = [axis for axis in range(array.ndim - 1) if axis not in axes]
    length = int(np.prod([array.shape[axis] for axis in axes]))
    return array.transpose(*others, *axes, array.ndim - 1).reshape(-1, length, array.shape[-1])


def in_keras_axes(output: Array, scores: Array, query: Array, key: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Output and scores with the axes that Keras gives them."""
    others = [axis for axis in range(query.ndim - 1) if axis not in axes]
    outer, queries = [query.shape[axis] for axis in others], [query.shape[axis] for axis in axes]
    shaped = output.reshape(*outer, *queries, *output.shape[2:])
    keys = [key.shape[axis] for axis in axes]
    return (
        np.moveaxis(shaped, range(query.ndim - 1), [*others, *axes]),
        scores.reshape(*outer, scores.shape[1], *queries, *keys),
    )


FORMULAS = dict.fromkeys(("MultiHeadAttention", "GroupQueryAttention"), multi_head)
