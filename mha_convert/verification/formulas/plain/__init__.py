"""What does a call return? Keras' mathematics in NumPy float64: one function for each kind that a model may have.

Each is called with the layer, its arrays in float64, and then as Keras calls the layer; values are in Keras' axes.
"""

from collections.abc import Callable, Mapping
from typing import Any

from . import (
    attention,
    elementwise,
    linear,
    masks,
    merging,
    normalization,
    operations,
    recurrent,
    reshaping,
    unprojected,
    windows,
    wrappers,
)

FAMILIES = (
    linear,
    elementwise,
    merging,
    reshaping,
    normalization,
    attention,
    masks,
    operations,
    recurrent,
    wrappers,
    windows,
    unprojected,
)
FORMULAS: Mapping[str, Callable[..., Any]] = {
    kind: formula for family in FAMILIES for kind, formula in family.FORMULAS.items()
}
