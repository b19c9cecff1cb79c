"""Layers that make one tensor of several.

https://keras.io/api/layers/merging_layers/
"""

from typing import Any

from ..companions import Companion
from ..settings import Setting, switch

ELEMENTWISE = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum")


def is_axis(value: Any) -> bool:
    """Whether it is one axis."""
    return type(value) is int and -32 <= value < 32


def is_axis_or_two(value: Any) -> bool:
    """Whether it is one axis, or one of each of two tensors."""
    return is_axis(value) or (isinstance(value, list) and len(value) == 2 and all(map(is_axis, value)))


ROWS = (
    *(Companion(kind=kind, settings=()) for kind in ELEMENTWISE),
    Companion(kind="Concatenate", settings=(Setting(name="axis", is_valid=is_axis, expected="an axis", default=-1),)),
    Companion(
        kind="Dot",
        settings=(
            Setting(name="axes", is_valid=is_axis_or_two, expected="an axis, or one of each tensor"),
            switch("normalize", False),
        ),
    ),
)
