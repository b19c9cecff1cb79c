"""Pooling over windows, and over the whole length.

https://keras.io/api/layers/pooling_layers/
"""

from collections.abc import Mapping
from typing import Any

from ..companions import Companion
from ..settings import Setting, switch
from .convolution import plain_sizes, size
from .reshaping import DATA_FORMAT

PADDINGS = ("valid", "same")


def is_padding(value: Any) -> bool:
    """Whether it is one of Keras' words."""
    return value in PADDINGS


def with_strides(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes as numbers; windows that do not overlap where the file does not say how far they are apart."""
    plain = plain_sizes(settings)
    return plain | {"strides": plain["strides"] or plain["pool_size"]}


WINDOWS = {"MaxPooling1D": "MaxPool1D", "AveragePooling1D": "AvgPool1D"}
GLOBAL = {"GlobalAveragePooling1D": "GlobalAvgPool1D", "GlobalMaxPooling1D": "GlobalMaxPool1D"}
ROWS = (
    *(
        Companion(
            kind=kind,
            public_names=(name,),
            settings=(
                size("pool_size", 2),
                size("strides", may_be_null=True),
                Setting(name="padding", is_valid=is_padding, expected=" or ".join(PADDINGS), default="valid"),
                DATA_FORMAT,
            ),
            normalized=with_strides,
        )
        for kind, name in WINDOWS.items()
    ),
    *(
        Companion(kind=kind, public_names=(name,), settings=(DATA_FORMAT, switch("keepdims", False)))
        for kind, name in GLOBAL.items()
    ),
)
