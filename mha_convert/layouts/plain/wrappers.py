"""TimeDistributed: the module of the layer inside, under the wrapper's name."""

from dataclasses import replace
from typing import Any

from ...records.graph import TensorSpec
from ...records.layer import PlainLayer
from ...records.plan import LayerPlan


def time_distributed(layer: PlainLayer, prefix: str, spec: TensorSpec) -> LayerPlan | None:
    """The layer's own module, which is called with one step; None where it needs none."""
    from . import BY_INPUT, LAY_OUT

    (part,) = layer.inside
    if part.kind not in LAY_OUT:
        return None
    batch, _, *others = spec.shape or ()
    options: dict[str, Any] = {"spec": replace(spec, shape=(batch, *others))} if part.kind in BY_INPUT else {}
    plan = LAY_OUT[part.kind](part, prefix, **options)
    return None if plan is None else replace(plan, layer=layer)


LAY_OUT = {"TimeDistributed": time_distributed}
BY_INPUT = ("TimeDistributed",)
