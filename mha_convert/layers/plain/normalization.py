"""Normalizations.

https://keras.io/api/layers/normalization_layers/
"""

from dataclasses import replace

from ..companions import Companion
from ..layer_normalization import ROW as LAYER_NORMALIZATION

# What --layer NAME of convert refuses, the source of a model can say.
ROWS: tuple[Companion, ...] = (
    replace(LAYER_NORMALIZATION, faults=lambda layer, group: (), cautions=lambda layer, group: ()),
)
