"""Which module holds a layer of a whole model? A function for each kind that has numbers or something to train.

A kind without a row is an expression in ``forward``; a row may return None for a layer that is one, too.
"""

from collections.abc import Callable, Mapping

from ...records.plan import LayerPlan
from . import (
    convolution,
    identities,
    linear,
    normalization,
    recurrent,
    unprojected,
    wrappers,
)

FAMILIES = (linear, identities, normalization, recurrent, wrappers, convolution, unprojected)
LAY_OUT: Mapping[str, Callable[..., LayerPlan | None]] = {
    kind: lay_out for family in FAMILIES for kind, lay_out in family.LAY_OUT.items()
}
# Kinds whose module depends on the shape of their input, too, which is a third argument.
BY_INPUT = (*normalization.BY_INPUT, *wrappers.BY_INPUT)
# Kinds whose module depends on whether some call of the layer has a mask.
BY_MASK = recurrent.BY_MASK
