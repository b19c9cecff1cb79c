"""Which module holds a layer of a whole model? A function for each kind that has numbers or something to train.

A kind without a row is an expression in ``forward``.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ...records.plan import LayerPlan
from . import identities, linear, normalization

FAMILIES = (linear, identities, normalization)
LAY_OUT: Mapping[str, Callable[[Any, str], LayerPlan]] = {
    kind: lay_out for family in FAMILIES for kind, lay_out in family.LAY_OUT.items()
}
