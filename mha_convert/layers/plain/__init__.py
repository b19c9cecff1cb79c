"""Every kind of layer that a whole model may have besides attention: a row of settings each, one file a family."""

from collections.abc import Mapping

from ..companions import Companion
from . import activations as activation_layers
from . import identities, linear, masking, merging, normalization, recurrent, reshaping, wrappers

FAMILIES = (linear, activation_layers, identities, masking, merging, normalization, reshaping, recurrent, wrappers)
ROWS: Mapping[str, Companion] = {row.kind: row for family in FAMILIES for row in family.ROWS}
