"""Conv1D: a kernel that moves along the length.

https://keras.io/api/layers/convolution_layers/convolution1d/
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ...records.layer import PlainLayer
from ...records.source import Group
from ..companions import Companion
from ..settings import Setting, is_count, switch
from .activations import setting as activation
from .linear import OF_KERNELS
from .reshaping import DATA_FORMAT

PADDINGS = ("valid", "same", "causal")
OF_CONVOLUTIONS = (*OF_KERNELS, "activity_regularizer", "lora_rank", "lora_alpha", "quantization_config")


def is_size(value: Any) -> bool:
    """Whether it is a whole number from 1, alone or in a list."""
    return is_count(value[0] if isinstance(value, list) and len(value) == 1 else value)


def is_padding(value: Any) -> bool:
    """Whether it is one of Keras' words."""
    return value in PADDINGS


def size(name: str, default: int | None = None, *, may_be_null: bool = False) -> Setting:
    """A setting that is a size along the length."""
    return Setting(
        name=name, is_valid=is_size, expected="a whole number from 1", default=default, may_be_null=may_be_null
    )


def plain_sizes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes as numbers, which Keras writes as lists of one."""
    return {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value for name, value in settings.items()
    }


def kernel_faults(layer: PlainLayer, group: Group | None) -> Iterator[str]:
    """Every filter has a number for each step of the window and each channel of its group."""
    kernel, filters, groups = layer.arrays["kernel"].shape, layer.settings["filters"], layer.settings["groups"]
    width = layer.settings["kernel_size"]
    if len(kernel) != 3 or (kernel[0], kernel[2]) != (width, filters):
        yield f"its kernel is {kernel}, expected ({width}, channels, {filters})"
        return
    bias = layer.arrays.get("bias")
    if bias is not None and bias.shape != (filters,):
        yield f"its bias is {bias.shape}, expected ({filters},)"
    if filters % groups:
        yield f"its {filters} filters are no multiple of its {groups} groups"


ROWS = (
    Companion(
        kind="Conv1D",
        public_names=("Convolution1D",),
        settings=(
            Setting(name="filters", is_valid=is_count, expected="a whole number from 1"),
            size("kernel_size"),
            size("strides", 1),
            Setting(name="padding", is_valid=is_padding, expected=" or ".join(PADDINGS), default="valid"),
            DATA_FORMAT,
            size("dilation_rate", 1),
            Setting(name="groups", is_valid=is_count, expected="a whole number from 1", default=1),
            activation(),
            switch("use_bias", True),
        ),
        without_effect=OF_CONVOLUTIONS,
        normalized=plain_sizes,
        faults=kernel_faults,
    ),
)
