"""Layers without projections: the same tensors in every layout, under Keras' own names."""

from ..records.layer import UnprojectedAttention
from ..records.plan import LayerPlan, ModuleSpec, Piece, Rule

AS_IT_IS = "... -> ..."
RULES = (
    Rule("scale", (Piece("scale", AS_IT_IS),)),
    Rule("concat_score_weight", (Piece("concat_score_weight", AS_IT_IS),)),
)


def lay_out(layer: UnprojectedAttention, prefix: str) -> LayerPlan:
    """The layer's rules and module; no layout makes a difference."""
    return LayerPlan(
        layer=layer,
        prefix=prefix,
        rules=tuple(rule for rule in RULES if rule.target in layer.arrays),
        module=module(layer),
    )


def module(layer: UnprojectedAttention) -> ModuleSpec:
    """Our module for the layer's score."""
    if layer.score == "additive":
        return ModuleSpec(
            class_name="AdditiveAttention", arguments={"features": layer.features, "dropout": layer.dropout}
        )
    return ModuleSpec(class_name="DotProductAttention", arguments={**layer.sizes, "dropout": layer.dropout})
