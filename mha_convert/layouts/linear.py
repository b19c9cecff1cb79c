"""Layout ``linear``: the projections as ``nn.Linear`` in Keras' own sizes; no number is added.

Every number is moved; a scale that a user gave (``AttentionLayer.scale``) is carried by the query's.
"""

from ..records.layer import AttentionLayer
from ..records.plan import LayerPlan, ModuleSpec, Piece, Rule
from .patterns import (
    BIAS,
    KEY,
    KEY_BIAS,
    OUTPUT,
    OUTPUT_BIAS_PIECE,
    QUERY,
    QUERY_BIAS,
    VALUE,
    VALUE_BIAS,
    WEIGHT,
    with_factor,
)
from .refusals import UNKNOWN_AXES, Refusal

NAME = "linear"
REFUSALS: tuple[Refusal, ...] = UNKNOWN_AXES

RULES = (
    Rule("q_proj.weight", (QUERY,)),
    Rule("q_proj.bias", (QUERY_BIAS,)),
    Rule("k_proj.weight", (KEY,)),
    Rule("k_proj.bias", (KEY_BIAS,)),
    Rule("v_proj.weight", (VALUE,)),
    Rule("v_proj.bias", (VALUE_BIAS,)),
    Rule("gate_proj.weight", (Piece("gate.kernel", WEIGHT),)),
    Rule("gate_proj.bias", (Piece("gate.bias", BIAS),)),
    Rule("out_proj.weight", (OUTPUT,)),
    Rule("out_proj.bias", (OUTPUT_BIAS_PIECE,)),
)


def lay_out(layer: AttentionLayer, prefix: str, *, divides_scores: bool = True) -> LayerPlan:
    """The layer's rules and module; without ``divides_scores`` the query carries Keras' ``1/sqrt(key_dim)``."""
    divisor = layer.key_dim if divides_scores else 1
    return LayerPlan(
        layer=layer,
        prefix=prefix,
        layout=NAME,
        rules=with_factor(tuple(rule for rule in RULES if is_present(rule, layer)), layer.query_factor(divisor)),
        module=module(layer),
    )


def is_present(rule: Rule, layer: AttentionLayer) -> bool:
    """Whether the layer has what the rule moves."""
    has_bias = layer.use_bias or not rule.target.endswith("bias")
    return has_bias and (layer.gate is not None or not rule.target.startswith("gate"))


def module(layer: AttentionLayer) -> ModuleSpec:
    """Our module that calls ``scaled_dot_product_attention``."""
    options = {
        "num_key_value_heads": (layer.num_key_value_heads, layer.num_heads),
        "gate": (layer.gate is not None, False),
        "sliding_window": (layer.sliding_window, None),
        "attention_axes": (list(layer.attended_axes or ()), [1]),
    }
    return ModuleSpec(
        class_name="KerasMultiheadAttention",
        arguments={
            "num_heads": layer.num_heads,
            "key_dim": layer.key_dim,
            "value_dim": layer.value_dim,
            "query_features": layer.query_features,
            "key_features": layer.key_features,
            "value_features": layer.value_features,
            "output_shape": list(layer.output_shape),
            "dropout": layer.dropout or 0.0,
            "bias": layer.use_bias,
        }
        | {name: value for name, (value, usual) in options.items() if value != usual},
    )
