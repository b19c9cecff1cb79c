"""Attention without projections: as many positions as the query has, as many features as the value."""

from typing import Any

from ...records.graph import TensorSpec
from ...records.layer import PlainLayer
from .sizes import ShapeError, of_shape, one, sizes


def attention(
    layer: PlainLayer,
    inputs: tuple[TensorSpec, ...],
    query_mask: TensorSpec | None = None,
    value_mask: TensorSpec | None = None,
    return_attention_scores: bool = False,
    use_causal_mask: bool = False,
    training: Any = None,
) -> TensorSpec | tuple[TensorSpec, TensorSpec]:
    """``(batch, query length, value features)``, and perhaps the weights ``(batch, query length, key length)``."""
    if len(inputs) not in (2, 3):
        raise ShapeError(f"is called with {len(inputs)} tensors, and takes query, value and perhaps key")
    query, value, key = sizes(inputs[0]), sizes(inputs[1]), sizes(inputs[-1])
    if not len(query) == len(value) == len(key) == len(("batch", "length", "features")):
        raise ShapeError(f"is called with tensors of {len(query)}, {len(value)} and {len(key)} axes; a rule is for 3")
    width = one(query[-1], key[-1], "query and key")
    scale = layer.arrays.get("scale")
    if scale is not None and scale.shape and width not in (None, *scale.shape):
        raise ShapeError(f"is called with {width} features, and its scale has {scale.shape[0]}")
    one(value[1], key[1], "the length of value and key")
    output = of_shape(inputs[0], (*query[:-1], value[-1]))
    return (output, of_shape(inputs[0], (*query[:-1], key[1]))) if return_attention_scores else output


SHAPES = {"Attention": attention, "AdditiveAttention": attention}
