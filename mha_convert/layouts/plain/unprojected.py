"""``Attention`` and ``AdditiveAttention``: a module for what their scores learn, or for the dropout of the weights."""

from ...records.layer import PlainLayer
from ...records.plan import LayerPlan, ModuleSpec, Piece, Rule

AS_IT_IS = "... -> ..."


def attention(layer: PlainLayer, prefix: str) -> LayerPlan | None:
    """The smallest module: none for a dot product that is only a dot product."""
    rate = {"dropout": layer.settings["dropout"]} if layer.settings["dropout"] else {}
    form, arguments = score(layer)
    if form is None and not rate:
        return None
    spec = ModuleSpec(class_name=form, arguments=arguments | rate) if form else dropout(layer.settings["dropout"])
    rules = tuple(Rule(name, (Piece(name, AS_IT_IS),)) for name in layer.arrays)
    return LayerPlan(layer=layer, prefix=prefix, rules=rules, module=spec)


def score(layer: PlainLayer) -> tuple[str | None, dict[str, object]]:
    """The class that scores, and its arguments."""
    scale = layer.arrays.get("scale")
    if layer.kind == "AdditiveAttention":
        return "AdditiveScores", {} if scale is None else {"features": scale.shape[0]}
    if layer.settings["score_mode"] == "concat":
        return "ConcatenatedScores", {"use_scale": True} if scale is not None else {}
    return (None if scale is None else "ScaledScores"), {}


def dropout(rate: float) -> ModuleSpec:
    """``nn.Dropout``."""
    return ModuleSpec(class_name="Dropout", arguments={"p": rate})


LAY_OUT = {"Attention": attention, "AdditiveAttention": attention}
