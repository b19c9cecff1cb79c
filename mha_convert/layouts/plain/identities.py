"""Dropout: modules without numbers, which do something in training only.

https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout.html
"""

from ...records.layer import PlainLayer
from ...records.plan import LayerPlan, ModuleSpec


def dropout(layer: PlainLayer, prefix: str) -> LayerPlan:
    """``nn.Dropout`` with Keras' rate."""
    return without_numbers(layer, prefix, "Dropout")


def alpha_dropout(layer: PlainLayer, prefix: str) -> LayerPlan:
    """``nn.AlphaDropout`` with Keras' rate."""
    return without_numbers(layer, prefix, "AlphaDropout")


def without_numbers(layer: PlainLayer, prefix: str, class_name: str) -> LayerPlan:
    """A module that stores nothing."""
    spec = ModuleSpec(class_name=class_name, arguments={"p": layer.settings["rate"]})
    return LayerPlan(layer=layer, prefix=prefix, rules=(), module=spec)


LAY_OUT = {"Dropout": dropout, "AlphaDropout": alpha_dropout}
