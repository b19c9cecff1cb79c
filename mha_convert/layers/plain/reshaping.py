"""Layers that give the same numbers another shape.

https://keras.io/api/layers/reshaping_layers/
"""

from typing import Any

from ..companions import Companion
from ..settings import Setting, is_count

FORMATS = ("channels_last", "channels_first")


def is_format(value: Any) -> bool:
    """Whether it says which axis has the channels."""
    return value in FORMATS


def is_shape(value: Any) -> bool:
    """Whether it is a shape without the batch, of which one size may follow from the others."""
    sizes = value if isinstance(value, list) else []
    return isinstance(value, list) and all(type(size) is int and size >= -1 for size in sizes) and sizes.count(-1) < 2


def is_order(value: Any) -> bool:
    """Whether it is an order of axes, counted from 1."""
    return (
        isinstance(value, list)
        and len(value) < 32
        and sorted(map(str, value)) == sorted(str(number) for number in range(1, len(value) + 1))
    )


DATA_FORMAT = Setting(
    name="data_format",
    is_valid=is_format,
    expected="channels_last or channels_first",
    default="channels_last",
    may_be_null=True,
)
ROWS = (
    Companion(kind="Flatten", settings=(DATA_FORMAT,)),
    Companion(kind="Reshape", settings=(Setting(name="target_shape", is_valid=is_shape, expected="a shape"),)),
    Companion(kind="Permute", settings=(Setting(name="dims", is_valid=is_order, expected="an order of axes from 1"),)),
    Companion(kind="RepeatVector", settings=(Setting(name="n", is_valid=is_count, expected="a whole number from 1"),)),
)
