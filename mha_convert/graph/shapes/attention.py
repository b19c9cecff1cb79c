"""Attention: as many positions as the query has."""

from dataclasses import replace
from typing import Any

from ...records.graph import TensorSpec
from ...records.layer import AttentionLayer
from .sizes import ShapeError, sizes


def multi_head(
    layer: AttentionLayer,
    query: TensorSpec,
    value: TensorSpec,
    key: TensorSpec | None = None,
    attention_mask: TensorSpec | None = None,
    return_attention_scores: bool = False,
    training: Any = None,
    use_causal_mask: bool = False,
    without_key: str = "average",
) -> TensorSpec | tuple[TensorSpec, TensorSpec]:
    """``(batch, *query axes, *output_shape)``, and perhaps the scores."""
    key = key or value
    inputs = (("query", query, layer.query_features), ("key", key, layer.key_features))
    for role, spec, features in (*inputs, ("value", value, layer.value_features)):
        width = sizes(spec)[-1]
        if width not in (None, features):
            raise ShapeError(f"is called with a {role} of {width} features, and its kernel takes {features}")
    shape = sizes(query)
    output = replace(query, shape=(*shape[:-1], *layer.output_shape))
    if not return_attention_scores:
        return output
    axes = layer.attended_axes or (1,)
    others = [size for axis, size in enumerate(shape[:-1]) if axis not in axes]
    scores = (*others, layer.num_heads, *(shape[axis] for axis in axes), *(sizes(key)[axis] for axis in axes))
    return output, replace(query, shape=scores)


SHAPES = dict.fromkeys(("MultiHeadAttention", "GroupQueryAttention"), multi_head)
