"""Dense, EinsumDense and Embedding: one kernel, and perhaps a bias.

https://keras.io/api/layers/core_layers/
"""

import re
from collections.abc import Iterator
from typing import Any

from ...records.layer import PlainLayer
from ...records.source import Group
from ..companions import Companion
from ..settings import Setting, is_count, switch
from .activations import setting as activation

EQUATION = re.compile(r"(\.\.\.)?[a-zA-Z]+(\.\.\.)?,[a-zA-Z]+->(\.\.\.)?[a-zA-Z]+(\.\.\.)?")
OF_KERNELS = tuple(
    f"{role}_{part}" for role in ("kernel", "bias") for part in ("initializer", "regularizer", "constraint")
)
OF_DENSE = (*OF_KERNELS, "activity_regularizer", "lora_rank", "lora_alpha", "quantization_config")
OF_EMBEDDING = (
    "input_length",
    "lora_rank",
    "lora_alpha",
    "quantization_config",
    "activity_regularizer",
    *(f"embeddings_{part}" for part in ("initializer", "regularizer", "constraint")),
)


def is_equation(value: Any) -> bool:
    """Whether it is an equation of ``einsum`` with two operands."""
    return isinstance(value, str) and len(value) < 100 and EQUATION.fullmatch(value) is not None


def is_letters(value: Any) -> bool:
    """Whether it names axes of the output."""
    return isinstance(value, str) and value.isascii() and value.isalpha()


def is_sizes(value: Any) -> bool:
    """Whether it is a size, or a list of sizes of which some are free."""
    sizes = value if isinstance(value, list) else [value]
    return len(sizes) <= 32 and all(size is None or is_count(size) for size in sizes)


def count(name: str) -> Setting:
    """A setting that is a whole number from 1, which every file says."""
    return Setting(name=name, is_valid=is_count, expected="a whole number from 1")


def kernel_faults(layer: PlainLayer, group: Group | None) -> Iterator[str]:
    """Dense multiplies the last axis by a matrix."""
    kernel = layer.arrays["kernel"]
    if len(kernel.shape) != 2 or kernel.shape[1] != layer.settings["units"]:
        yield f"its kernel is {kernel.shape}, expected (features, {layer.settings['units']})"
    bias = layer.arrays.get("bias")
    if bias is not None and bias.shape != kernel.shape[1:]:
        yield f"its bias is {bias.shape}, expected {kernel.shape[1:]}"


def table_faults(layer: PlainLayer, group: Group | None) -> Iterator[str]:
    """Embedding has a row for each token."""
    expected = (layer.settings["input_dim"], layer.settings["output_dim"])
    if layer.arrays["embeddings"].shape != expected:
        yield f"its embeddings are {layer.arrays['embeddings'].shape}, expected {expected}"


ROWS = (
    Companion(
        kind="Dense",
        settings=(count("units"), activation(), switch("use_bias", True)),
        without_effect=OF_DENSE,
        faults=kernel_faults,
    ),
    Companion(
        kind="EinsumDense",
        settings=(
            Setting(name="equation", is_valid=is_equation, expected="an equation of einsum"),
            Setting(name="output_shape", is_valid=is_sizes, expected="sizes"),
            Setting(name="bias_axes", is_valid=is_letters, expected="letters", may_be_null=True),
            activation(),
        ),
        without_effect=(*OF_DENSE, "gptq_unpacked_column_size"),
    ),
    Companion(
        kind="Embedding",
        settings=(count("input_dim"), count("output_dim"), switch("mask_zero", False)),
        without_effect=OF_EMBEDDING,
        faults=table_faults,
    ),
)
