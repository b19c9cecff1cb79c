"""The ways in which ``EinsumDense`` stores a kernel: a table of rows, each with the formula that makes the kernel.

Formulas, orders and dtypes are those of ``keras.layers.EinsumDense`` (``_int8_call``, ``_int4_call``,
``_get_kernel_with_merged_lora`` and ``variable_serialization_spec`` in ``keras/src/layers/core/einsum_dense.py``, Keras
3.1 to 3.15). A kernel has input axes, over which the projection sums, and output axes.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..errors import LayerError
from ..records.source import Array, Variable

Shape = tuple[int, ...]
Arrays = Mapping[str, Array]
Variables = Mapping[str, Variable]
FLOATS = ("float32", "float64", "float16", "bfloat16")


def in_sequence(names: Iterable[str]) -> list[str]:
    """Keras' numbers of a layer's variables in order; [] for other names, and where one is missing."""
    given = set(names)
    numbers = [str(number) for number in range(len(given))]
    return numbers if given == set(numbers) else []


@dataclass(frozen=True, slots=True)
class Axes:
    """A kernel's input axes and its output axes."""

    inputs: Shape
    outputs: Shape

    @property
    def shape(self) -> Shape:
        """Shape of the kernel."""
        return self.inputs + self.outputs

    @property
    def rows(self) -> int:
        """Height of the kernel as a matrix."""
        return math.prod(self.inputs)

    @property
    def columns(self) -> int:
        """Width of the kernel as a matrix."""
        return math.prod(self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """One way to store a kernel.

    ``variables`` are in the order in which v3 files number them; without a bias, the others close up. ``dtypes`` are
    the kernel's, ``is_matrix`` says whether its axes were flattened to two. ``shapes`` gives the shapes that the
    variables of a kernel with these axes have, ``restore`` makes the kernel. ``caution`` is what to say of it.
    """

    title: str
    variables: tuple[str, ...]
    dtypes: tuple[str, ...]
    is_matrix: bool | None = None
    shapes: Callable[[Axes, Variables], Mapping[str, Shape]]
    restore: Callable[[Arrays, Axes], Array]
    caution: str | None = None

    def names(self, variables: Variables) -> Variables | None:
        """The same variables by Keras' names; None where they are not stored in this way."""
        named: Variables | None = None
        if numbers := in_sequence(variables):
            in_order = [variables[number] for number in numbers]
            for order in (self.variables, tuple(name for name in self.variables if name != "bias")):
                if len(order) == len(in_order):
                    named = dict(zip(order, in_order, strict=True))
        elif set(variables) | {"bias"} == set(self.variables):
            named = variables
        return named if named and self.accepts(named) else None

    def accepts(self, named: Variables) -> bool:
        """Whether dtypes and the kernel's rank are those of this way."""
        others = {name: variable for name, variable in named.items() if name != "kernel"}
        return (
            named["kernel"].dtype in self.dtypes
            and self.is_matrix in (None, len(named["kernel"].shape) == 2)
            and all(v.dtype in (("int8",) if name == "kernel_zero" else FLOATS) for name, v in others.items())
        )

    def fits(self, axes: Axes, named: Variables) -> bool:
        """Whether variables of these shapes are a kernel with these axes."""
        expected = self.shapes(axes, named)
        scale = expected.get("kernel_scale")
        if scale is not None and not self.is_matrix:  # it has axes of length 1 in front, for batch and time
            extra = len(named["kernel_scale"].shape) - len(scale)
            expected = {**expected, "kernel_scale": (1,) * extra + scale}
        return all(named[name].shape == shape for name, shape in expected.items())


def plain_shapes(axes: Axes, named: Variables) -> dict[str, Shape]:
    """The kernel as it is."""
    return {"kernel": axes.shape}


def channel_shapes(axes: Axes, named: Variables) -> dict[str, Shape]:
    """``int8``: one scale for each output."""
    return {"kernel": axes.shape, "kernel_scale": axes.outputs}


def paired_shapes(axes: Axes, named: Variables) -> dict[str, Shape]:
    """Two numbers in a byte, along the first axis."""
    return {"kernel": ((axes.shape[0] + 1) // 2, *axes.shape[1:]), "kernel_scale": axes.outputs}


def matrix_shapes(axes: Axes, named: Variables) -> dict[str, Shape]:
    """Two numbers in a byte, along the rows of the matrix; one scale for each column."""
    return {"kernel": (axes.rows, (axes.columns + 1) // 2), "kernel_scale": (axes.columns,)}


def group_shapes(axes: Axes, named: Variables) -> dict[str, Shape]:
    """``matrix_shapes`` with a scale and a zero for each column and group of rows."""
    groups = (*named["kernel_scale"].shape[:1], axes.columns)
    return {**matrix_shapes(axes, named), "kernel_scale": groups, "kernel_zero": groups, "g_idx": (axes.rows,)}


def as_it_is(arrays: Arrays, axes: Axes) -> Array:
    """The kernel itself."""
    return arrays["kernel"]


def from_int8(arrays: Arrays, axes: Axes) -> Array:
    """``kernel / scale``."""
    return divided(arrays["kernel"], arrays["kernel_scale"].reshape(axes.outputs))


def from_pairs(arrays: Arrays, axes: Axes) -> Array:
    """``kernel / scale`` of int4 numbers, which are stored in pairs along axis 0."""
    numbers = unpacked(arrays["kernel"], 0)[: axes.shape[0]]
    return divided(numbers, arrays["kernel_scale"].reshape(axes.outputs))


def from_matrix(arrays: Arrays, axes: Axes) -> Array:
    """``kernel / scale`` of a matrix of int4 numbers, which are stored in pairs along its rows."""
    numbers = unpacked(arrays["kernel"], 1)[:, : axes.columns]
    return divided(numbers, arrays["kernel_scale"]).reshape(axes.shape)


def from_groups(arrays: Arrays, axes: Axes) -> Array:
    """``(kernel - zero) * scale``, each row with those of its group (``dequantize_with_sz_map``)."""
    scale, index = arrays["kernel_scale"], arrays["g_idx"]
    inside = np.isfinite(index) & (index >= 0) & (index < len(scale))
    if not inside.all():
        raise LayerError(
            f"has a row of group {float(index[~inside][0]):g}, expected 0 to {len(scale) - 1}. "
            "The file is damaged; save the model again."
        )
    groups = index.astype(np.int32)
    numbers = unpacked(arrays["kernel"], 1)[:, : axes.columns].astype(scale.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return ((numbers - arrays["kernel_zero"].astype(scale.dtype)[groups]) * scale[groups]).reshape(axes.shape)


def divided(numbers: Array, scale: Array) -> Array:
    """In the scale's dtype; a scale of 0 gives infinity or NaN, which the proof refuses."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        result: Array = numbers.astype(scale.dtype) / scale
    return result


def unpacked(packed: Array, axis: int) -> Array:
    """Two's complement numbers of four bits, two in each byte along ``axis``: the low ones first (``unpack_int4``)."""
    low, high = (((half & 15) ^ 8) - 8 for half in (packed, packed >> 4))
    shape = list(packed.shape)
    shape[axis] *= 2
    return np.stack([low, high], axis=axis + 1).reshape(shape)


def merged(kernel: Array, down: Array, up: Array, factor: float) -> Array:
    """``kernel + factor * down @ up``, in float32 as in Keras, or float64 for a kernel of float64.

    Products are added in the order of the ranks, so that every machine gets the same bits. Keras' own backends differ
    from each other in the last one; TensorFlow and torch agree with this for ranks up to 2.
    """
    update = np.zeros(kernel.shape, np.float32)
    wide = np.float64 if kernel.dtype == np.float64 else np.float32
    with np.errstate(over="ignore", invalid="ignore"):
        for index in range(len(up)):
            update += down[..., index : index + 1].astype(np.float32) * up[index].astype(np.float32)
        whole: Array = kernel.astype(wide)
        whole += np.float32(factor) * update
    return whole


ROUNDS_INPUTS = (
    "Keras' own output differs (measured: by 0.014 to 0.04), because it rounds the projections' inputs to int8, too"
)
DIVIDED = (
    "{kernels} stored as {title} and made of it as Keras does, kernel / scale in {dtype}; these weights are what is "
    "proven. "
)


def nibbles(packed: Array) -> Array:
    """The int4 numbers that ``from_pairs`` unpacks."""
    return unpacked(packed, 0)


# What ``AbsMaxQuantizer`` makes of the largest weight of each output, and how to get at the numbers.
PEAKS: Mapping[str, tuple[Callable[[Array], Array], int]] = {"int8": (np.asarray, 127), "int4": (nibbles, 7)}
QUANTIZED = ("kernel", "bias", "kernel_scale")
FLOAT8 = (
    "kernel",
    "bias",
    "inputs_scale",
    "inputs_amax_history",
    "kernel_scale",
    "kernel_amax_history",
    "outputs_grad_scale",
    "outputs_grad_amax_history",
)
ENCODINGS = (
    Encoding(title="float", variables=("kernel", "bias"), dtypes=FLOATS, shapes=plain_shapes, restore=as_it_is),
    Encoding(
        title="float8",
        variables=FLOAT8,
        dtypes=FLOATS,
        shapes=plain_shapes,
        restore=as_it_is,
        caution="{kernels} trained for float8: they are stored in {dtype} and converted as they are. Keras' own output "
        "differs (measured: by up to 0.33), because it rounds kernels and inputs to float8",
    ),
    *(
        Encoding(
            title="int8",
            variables=order,
            dtypes=("int8",),
            is_matrix=False,
            shapes=channel_shapes,
            restore=from_int8,
            caution=DIVIDED + ROUNDS_INPUTS,
        )
        for order in (QUANTIZED, ("bias", "kernel", "kernel_scale"))  # the latter Keras 3.1
    ),
    Encoding(  # Keras 3.11 to 3.13
        title="int4",
        variables=QUANTIZED,
        dtypes=("int8",),
        is_matrix=False,
        shapes=paired_shapes,
        restore=from_pairs,
        caution=DIVIDED + ROUNDS_INPUTS,
    ),
    Encoding(  # Keras 3.14 and later, block_size -1
        title="int4",
        variables=QUANTIZED,
        dtypes=("int8",),
        is_matrix=True,
        shapes=matrix_shapes,
        restore=from_matrix,
        caution=DIVIDED + "Keras computes with the same, unless an activation quantizer was configured",
    ),
    Encoding(  # Keras 3.14 and later, in blocks
        title="int4",
        variables=(*QUANTIZED, "kernel_zero", "g_idx"),
        dtypes=("int8",),
        is_matrix=True,
        shapes=group_shapes,
        restore=from_groups,
        caution="{kernels} stored as int4 in groups and made of it as Keras does, (kernel - zero) × scale in {dtype}; "
        "these weights are what is proven. Keras computes with the same (outputs measured in float32: 3e-7 apart)",
    ),
)
