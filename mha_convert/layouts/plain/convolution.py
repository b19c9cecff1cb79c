"""``nn.Conv1d``.

https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv1d.html
"""

from typing import Any

from ...records.layer import PlainLayer
from ...records.plan import LayerPlan, ModuleSpec, Piece, Rule
from .linear import BIAS

KERNEL = "width channels filters -> filters channels width"


def conv1d(layer: PlainLayer, prefix: str) -> LayerPlan:
    """The module, which pads by itself where that does not depend on the length and is the same at both ends."""
    settings, (width, channels, filters) = layer.settings, layer.arrays["kernel"].shape
    options = {
        "stride": (settings["strides"], 1),
        "padding": (padding(layer), 0),
        "dilation": (settings["dilation_rate"], 1),
        "groups": (settings["groups"], 1),
        "bias": ("bias" in layer.arrays, True),
    }
    arguments: dict[str, Any] = {
        "in_channels": channels * settings["groups"],
        "out_channels": filters,
        "kernel_size": width,
    }
    return LayerPlan(
        layer=layer,
        prefix=prefix,
        rules=(Rule("weight", (Piece("kernel", KERNEL),)), *((BIAS,) if "bias" in layer.arrays else ())),
        module=ModuleSpec(
            class_name="Conv1d",
            arguments=arguments | {name: value for name, (value, usual) in options.items() if value != usual},
        ),
    )


def padding(layer: PlainLayer) -> int:
    """What the module adds at each end; 0 where the line of the call adds something."""
    settings = layer.settings
    added = int((settings["kernel_size"] - 1) * settings["dilation_rate"])
    return added // 2 if settings["padding"] == "same" and settings["strides"] == 1 and added % 2 == 0 else 0


LAY_OUT = {"Conv1D": conv1d}
