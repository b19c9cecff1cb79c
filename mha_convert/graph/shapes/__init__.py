"""What shape does a call return? A function of each kind, called as Keras calls the layer, with ``TensorSpec`` values.

A size is None where it is free. What contradicts itself raises ``ShapeError``.
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

Shape = Callable[..., Any]
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
SHAPES: Mapping[str, Shape] = {kind: rule for family in FAMILIES for kind, rule in family.SHAPES.items()}
