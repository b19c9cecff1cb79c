"""``LayerNormalization`` is ``torch.nn.LayerNorm``: the same numbers under the names ``weight`` and ``bias``.

https://docs.pytorch.org/docs/stable/generated/torch.nn.LayerNorm.html
"""

from ..records.layer import PlainLayer
from ..records.plan import LayerPlan, ModuleSpec, Piece, Rule

AS_IT_IS = "... -> ..."
WEIGHT, BIAS = Rule("weight", (Piece("gamma", AS_IT_IS),)), Rule("bias", (Piece("beta", AS_IT_IS),))


def lay_out(layer: PlainLayer, prefix: str) -> LayerPlan:
    """The layer's rules and module; a shift without a scale has a weight of ones."""
    shape = next((variable.shape for variable in layer.arrays.values()), ())
    ones = Rule("weight", (Piece(made="ones", shape=shape),))
    has_scale, has_shift = "gamma" in layer.arrays, "beta" in layer.arrays
    weight = () if not (has_scale or has_shift) else (WEIGHT,) if has_scale else (ones,)
    return LayerPlan(
        layer=layer,
        prefix=prefix,
        rules=(*weight, *((BIAS,) if has_shift else ())),
        module=ModuleSpec(
            class_name="LayerNorm",
            arguments={"normalized_shape": list(shape), "eps": layer.settings["epsilon"]}
            | ({} if has_shift else {"bias": False}),
        ),
    )
