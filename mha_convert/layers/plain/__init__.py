"""Every kind of layer that a whole model may have besides attention: a row of settings each, one file a family."""

from collections.abc import Mapping

from ..companions import Companion
from . import activations as activation_layers
from . import (
    attention,
    convolution,
    identities,
    lengths,
    linear,
    masking,
    merging,
    normalization,
    pooling,
    recurrent,
    reshaping,
    wrappers,
)

FAMILIES = (
    linear,
    activation_layers,
    identities,
    masking,
    merging,
    normalization,
    reshaping,
    recurrent,
    wrappers,
    convolution,
    pooling,
    lengths,
    attention,
)
ROWS: Mapping[str, Companion] = {
    name: row for family in FAMILIES for row in family.ROWS for name in (row.kind, *row.public_names)
}
