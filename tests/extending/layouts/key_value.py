"""Layout ``key-value``: key and value stacked in one ``nn.Linear``, as encoder-decoder models cache them.

An example of docs/extending.md; its module is in ``modules.py``, next to this folder.
"""

from ..records.layer import AttentionLayer
from ..records.plan import LayerPlan, ModuleSpec, Piece, Rule
from .patterns import BIAS, KEY, KEY_BIAS, OUTPUT, OUTPUT_BIAS_PIECE, VALUE, VALUE_BIAS, WEIGHT
from .refusals import GATED, GROUPED, REORDERED, WINDOWED, Refusal

NAME = "key-value"
TWO_WIDTHS = Refusal(
    lambda layer: layer.key_features != layer.value_features,
    "has keys of width {layer.key_features} and values of width {layer.value_features}, and one weight takes one width",
    "Use --layout linear, which takes any sizes",
)
REFUSALS = (GROUPED, GATED, WINDOWED, REORDERED, TWO_WIDTHS)

RULES = (
    Rule("q_proj.weight", (Piece("query.kernel", WEIGHT),)),
    Rule("q_proj.bias", (Piece("query.bias", BIAS),)),
    Rule("kv_proj.weight", (KEY, VALUE)),
    Rule("kv_proj.bias", (KEY_BIAS, VALUE_BIAS)),
    Rule("out_proj.weight", (OUTPUT,)),
    Rule("out_proj.bias", (OUTPUT_BIAS_PIECE,)),
)


def lay_out(layer: AttentionLayer, prefix: str) -> LayerPlan:
    """The layer's rules and module."""
    return LayerPlan(
        layer=layer,
        prefix=prefix,
        layout=NAME,
        rules=tuple(rule for rule in RULES if layer.use_bias or not rule.target.endswith("bias")),
        module=ModuleSpec(
            class_name="KeyValueMultiheadAttention",
            arguments={
                "num_heads": layer.num_heads,
                "key_dim": layer.key_dim,
                "value_dim": layer.value_dim,
                "query_features": layer.query_features,
                "key_features": layer.key_features,
                "output_shape": list(layer.output_shape),
                "dropout": layer.dropout or 0.0,
                "bias": layer.use_bias,
            },
        ),
    )
