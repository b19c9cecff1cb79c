"""Dense, EinsumDense and Embedding."""

from dataclasses import replace

from ...records.graph import TensorSpec
from ...records.layer import PlainLayer
from .sizes import ShapeError, Size, of_shape, sizes


def dense(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
    """The last axis becomes ``units``."""
    *others, width = sizes(inputs)
    features = layer.arrays["kernel"].shape[0]
    if width not in (None, features):
        raise ShapeError(f"is called with {width} features, and its kernel takes {features}")
    return of_shape(inputs, (*others, layer.settings["units"]))


def einsum_dense(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
    """The axes of the equation's right side."""
    shape, kernel = sizes(inputs), layer.arrays["kernel"].shape
    given, made = layer.settings["equation"].split("->")
    given, weights = given.split(",")
    named, more = letters(given, shape)
    for letter, size in zip(weights, kernel, strict=True):
        known = named.get(letter)
        if known not in (None, size):
            raise ShapeError(f"is called with {known} numbers along axis '{letter}', and its kernel has {size}")
        named[letter] = size
    before, dots, after = made.partition("...")
    result: list[Size] = [named[letter] for letter in before]
    result += more if dots else ()
    return of_shape(inputs, (*result, *(named[letter] for letter in after)))


def letters(axes: str, shape: tuple[Size, ...]) -> tuple[dict[str, Size], tuple[Size, ...]]:
    """The size of each named axis, and the sizes that ``...`` stands for."""
    before, dots, after = axes.partition("...")
    count = len(before) + len(after)
    if len(shape) < count or (len(shape) > count and not dots):
        raise ShapeError(f"is called with {len(shape)} axes, and its equation names {count}")
    end = len(shape) - len(after)
    named = dict(zip(before, shape, strict=False)) | dict(zip(after, shape[end:], strict=True))
    return named, shape[len(before) : end]


def embedding(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
    """A row of the table for each token."""
    return replace(inputs, shape=(*sizes(inputs), layer.settings["output_dim"]), dtype=None)


SHAPES = {"Dense": dense, "EinsumDense": einsum_dense, "Embedding": embedding}
