"""Layers that make a sequence longer or shorter: ZeroPadding1D, Cropping1D, UpSampling1D.

https://keras.io/api/layers/reshaping_layers/
"""

from collections.abc import Mapping
from typing import Any

from ..companions import Companion
from ..settings import Setting
from .convolution import plain_sizes, size
from .reshaping import DATA_FORMAT

PAIR = 2


def is_width(value: Any) -> bool:
    """Whether it is a whole number from 0."""
    return type(value) is int and value >= 0


def is_both_ends(value: Any) -> bool:
    """Whether it is a width, or one for each end."""
    return is_width(value) or (isinstance(value, list) and len(value) == PAIR and all(map(is_width, value)))


def pairs(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A width as one for each end."""
    return {name: (value, value) if is_width(value) else value for name, value in settings.items()} | {
        name: tuple(value) for name, value in settings.items() if isinstance(value, list)
    }


def both_ends(name: str) -> Setting:
    """A setting that is a width at each end."""
    return Setting(name=name, is_valid=is_both_ends, expected="a whole number from 0, or two", default=1)


ROWS = (
    Companion(kind="ZeroPadding1D", settings=(both_ends("padding"), DATA_FORMAT), normalized=pairs),
    Companion(kind="Cropping1D", settings=(both_ends("cropping"),), normalized=pairs),
    Companion(kind="UpSampling1D", settings=(size("size", 2),), normalized=plain_sizes),
)
