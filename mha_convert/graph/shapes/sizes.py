"""Sizes of which some are free, and the error for those that contradict each other."""

import math
from collections.abc import Sequence
from dataclasses import replace

from ...records.graph import TensorSpec

Size = int | None
Sizes = tuple[Size, ...]


class ShapeError(Exception):
    """Shapes that contradict each other or the layer, in words that follow the layer's name."""


def sizes(spec: TensorSpec) -> Sizes:
    """The shape, which is known once the model's inputs are."""
    if spec.shape is None:
        raise ShapeError("is called with a tensor whose shape is unknown")
    return spec.shape


def of_shape(spec: TensorSpec, shape: Sequence[Size]) -> TensorSpec:
    """The same numbers, or as many bits, in another shape."""
    return replace(spec, shape=tuple(shape))


def one(first: Size, second: Size, what: str) -> Size:
    """A size that two tensors share."""
    if first is not None and second is not None and first != second:
        raise ShapeError(f"is called with sizes {first} and {second} of {what}, which must be equal")
    return second if first is None else first


def product(shape: Sequence[Size]) -> Size:
    """How many numbers, None where a size is free."""
    known = [size for size in shape if size is not None]
    return math.prod(known) if len(known) == len(shape) else None


def together(first: Sizes, second: Sizes) -> Sizes:
    """Two shapes broadcast, aligned at their ends."""
    rank = max(len(first), len(second))
    padded = [(*(1,) * (rank - len(shape)), *shape) for shape in (first, second)]
    return tuple(broadcast(a, b) for a, b in zip(*padded, strict=True))


def broadcast(first: Size, second: Size) -> Size:
    """One size of two."""
    if first == 1 or second == 1:
        return second if first == 1 else first
    return one(first, second, "one axis")


def place(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < rank:
        raise ShapeError(f"has axis {axis}, and its input has {rank} axes")
    return axis % rank
