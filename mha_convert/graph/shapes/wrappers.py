"""TimeDistributed: another layer at each step."""

from ...records.graph import TensorSpec
from ...records.layer import PlainLayer
from .sizes import ShapeError, of_shape, sizes


def time_distributed(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
    """What the layer inside makes of one step, with the length behind the batch."""
    from . import SHAPES

    batch, length, *others = sizes(inputs) if len(sizes(inputs)) > 2 else (None, None)
    if not others:
        raise ShapeError(f"is called with {len(sizes(inputs))} axes, expected batch, length and at least one more")
    found = SHAPES[layer.inside[0].kind](layer.inside[0], of_shape(inputs, (batch, *others)))
    return of_shape(found, (batch, length, *sizes(found)[1:]))


SHAPES = {"TimeDistributed": time_distributed}
