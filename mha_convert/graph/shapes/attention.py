"""Attention: as many positions as the query has."""

from dataclasses import replace
from typing import Any

from ...errors import LayerError, shortened
from ...records.graph import TensorSpec
from ...records.layer import AttentionLayer
from .sizes import ShapeError, sizes

TIME_AXIS, OF_SEQUENCES = (1,), 3


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
    refuse_axes(layer, len(shape), attention_mask is not None, use_causal_mask or layer.sliding_window is not None)
    output = replace(query, shape=(*shape[:-1], *layer.output_shape))
    if not return_attention_scores:
        return output
    axes = layer.attended_axes or (1,)
    others = [size for axis, size in enumerate(shape[:-1]) if axis not in axes]
    scores = (*others, layer.num_heads, *(shape[axis] for axis in axes), *(sizes(key)[axis] for axis in axes))
    return output, replace(query, shape=scores)


def refuse_axes(layer: AttentionLayer, rank: int, has_mask: bool, has_band: bool) -> None:
    """What Keras means by the axes must be known, and by masks over others than the one time axis.

    Raises:
        LayerError: it is not.
    """
    axes = layer.attended_axes
    fact = ""
    if rank != layer.rank and (layer.attention_axes is None or min(layer.attention_axes) < 0):
        fact = f"is called with {rank} axes, and the file does not say over which of them it attends"
    elif axes is None or max(axes) > rank - len(("batch", "features")):
        fact = f"attends over axes {layer.attention_axes} of {rank}, which are not axes between batch and features"
    elif (has_mask and (axes, rank) != (TIME_AXIS, OF_SEQUENCES)) or (has_band and axes != TIME_AXIS):
        fact = f"attends over axes {list(axes)} of {rank} under a mask, which has a rule for one time axis only"
    if fact:
        raise LayerError(f"Layer '{shortened(layer.name, 80)}' ({layer.kind}) {fact}. Port this layer by hand.")


SHAPES = dict.fromkeys(("MultiHeadAttention", "GroupQueryAttention"), multi_head)
