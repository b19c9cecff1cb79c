"""Arrays that stand in the graph itself: a buffer each, stored with the weights."""

import numpy as np

from ...records.graph import Constant
from ...records.layer import PlainLayer
from ...records.plan import LayerPlan, ModuleSpec, Piece, Rule
from ...records.source import Variable

KIND = "constant"


def buffer(constant: Constant, key: str) -> LayerPlan:
    """The array under ``key``, as it is; whole numbers are stored as floats where Keras computes with such."""
    array = np.asarray(constant.array)
    floats = array if array.dtype.kind == "f" else array.astype(np.float32)
    variable = Variable(path=key, shape=floats.shape, dtype=str(floats.dtype), read=lambda: floats)
    layer = PlainLayer(name=key, kind=KIND, path=key, arrays={"value": variable}, settings={}, class_name=KIND)
    spec = ModuleSpec(class_name=KIND, arguments={"shape": list(floats.shape)})
    return LayerPlan(layer=layer, prefix=key, rules=(Rule("", (Piece("value", "... -> ..."),)),), module=spec)
