"""Layout ``encoder``: the keys of ``self_attn`` in ``torch.nn.TransformerEncoderLayer``, for that module's weights.

Its attention is ``nn.MultiheadAttention`` over one input: heads are padded as in layout ``padded``, and nothing is put
around them. The target is loaded with ``strict=False``, as the encoder layer also has norms and linear layers.

https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerEncoderLayer.html
"""

from ..records.layer import AttentionLayer
from ..records.plan import LayerPlan
from . import mha
from .refusals import REORDERED, Refusal, has_several_widths

NAME = "encoder"
SELF_ATTENTION = "self_attn."
OTHERWISE = "Use --layout mha, which takes any sizes"
CROSS = Refusal(
    has_several_widths,
    "has inputs of widths {layer.query_features}, {layer.key_features} and {layer.value_features}, and self-attention "
    "has one input",
    OTHERWISE,
)
OTHER_OUTPUT = Refusal(
    lambda layer: layer.output_shape != (layer.query_features,),
    "has output_shape={layer.output_shape} for a query of width {layer.query_features}, and d_model is both",
    OTHERWISE,
)
OTHER_HEADS = Refusal(
    lambda layer: mha.width_of_heads(layer) is None,
    "has {layer.num_heads} heads of key_dim={layer.key_dim} and value_dim={layer.value_dim}, and the heads of an "
    "encoder layer share its width {layer.query_features} evenly",
    OTHERWISE,
)
REFUSALS: tuple[Refusal, ...] = (*mha.REFUSALS, REORDERED, CROSS, OTHER_OUTPUT, OTHER_HEADS)


def lay_out(layer: AttentionLayer, prefix: str) -> LayerPlan:
    """The layer's rules and module."""
    placed = mha.place(layer, mha.width_of_heads(layer))
    return mha.laid_out(layer, prefix + SELF_ATTENTION, placed, layout=NAME)
