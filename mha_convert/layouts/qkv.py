"""Layout ``qkv``: query, key and value stacked in one ``nn.Linear``, the output in another, as timm's ViT reads them.

https://github.com/huggingface/pytorch-image-models/blob/main/timm/layers/attention.py
"""

from ..records.layer import AttentionLayer
from ..records.plan import LayerPlan, ModuleSpec, Rule
from .patterns import (
    KEY,
    KEY_BIAS,
    OUTPUT,
    OUTPUT_BIAS_PIECE,
    QUERY,
    QUERY_BIAS,
    VALUE,
    VALUE_BIAS,
    with_factor,
)
from .refusals import GATED, GROUPED, REORDERED, UNKNOWN_AXES, WINDOWED, Refusal, has_several_widths

NAME = "qkv"
OTHERWISE = "Use --layout linear, which takes any sizes"
CROSS = Refusal(
    has_several_widths,
    "has inputs of widths {layer.query_features}, {layer.key_features} and {layer.value_features}, and one fused "
    "weight takes one input",
    OTHERWISE,
)
TWO_SIZES = Refusal(
    lambda layer: layer.key_dim != layer.value_dim,
    "has key_dim={layer.key_dim} and value_dim={layer.value_dim}, and a fused weight has heads of one size",
    OTHERWISE,
)
OUTPUT_TUPLE = Refusal(
    lambda layer: len(layer.output_shape) != 1,
    "has output_shape={layer.output_shape}, and proj gives one axis",
    OTHERWISE,
)
REFUSALS: tuple[Refusal, ...] = (
    GROUPED,
    GATED,
    WINDOWED,
    *UNKNOWN_AXES,
    REORDERED,
    CROSS,
    TWO_SIZES,
    OUTPUT_TUPLE,
)

RULES = (
    Rule("qkv.weight", (QUERY, KEY, VALUE)),
    Rule("qkv.bias", (QUERY_BIAS, KEY_BIAS, VALUE_BIAS)),
    Rule("proj.weight", (OUTPUT,)),
    Rule("proj.bias", (OUTPUT_BIAS_PIECE,)),
)


def lay_out(layer: AttentionLayer, prefix: str) -> LayerPlan:
    """The layer's rules and module."""
    rules = tuple(rule for rule in RULES if layer.use_bias or not rule.target.endswith("bias"))
    return LayerPlan(
        layer=layer,
        prefix=prefix,
        layout=NAME,
        rules=with_factor(rules, layer.query_factor(layer.key_dim)),
        module=ModuleSpec(
            class_name="FusedMultiheadAttention",
            arguments={
                "num_heads": layer.num_heads,
                "key_dim": layer.key_dim,
                "features": layer.query_features,
                "output_features": layer.output_features,
                "dropout": layer.dropout or 0.0,
                "bias": layer.use_bias,
            },
        ),
    )
