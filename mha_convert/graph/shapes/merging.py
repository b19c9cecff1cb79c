"""Add, Concatenate, Dot and their like. Keras aligns tensors of different rank at the batch."""

from ...records.graph import TensorSpec
from ...records.layer import PlainLayer
from .sizes import ShapeError, Sizes, of_shape, one, place, sizes, together


def merged(layer: PlainLayer, inputs: tuple[TensorSpec, ...], **masks: TensorSpec) -> TensorSpec:
    """All shapes broadcast; what has a mask is a sequence of features."""
    shapes = [sizes(spec) for spec in inputs]
    rank = max(map(len, shapes))
    if any(len(sizes(mask)) + 1 != len(shape) for mask in masks.values() for shape in shapes):
        raise ShapeError("is called with masks, which Keras 3.4 and later use of sequences of features alone")
    result = aligned(shapes[0], rank)
    for shape in shapes[1:]:
        result = together(result, aligned(shape, rank))
    return of_shape(inputs[0], result)


def aligned(shape: Sizes, rank: int) -> Sizes:
    """A shape with axes of size 1 behind the batch."""
    return (*shape[:1], *(1,) * (rank - len(shape)), *shape[1:])


def concatenate(layer: PlainLayer, inputs: tuple[TensorSpec, ...]) -> TensorSpec:
    """One axis is the sum."""
    first, *others = [list(sizes(spec)) for spec in inputs]
    axis = place(layer.settings["axis"], len(first))
    for shape in others:
        if len(shape) != len(first):
            raise ShapeError(f"joins tensors of {len(first)} and {len(shape)} axes")
        joined = None if None in (first[axis], shape[axis]) else (first[axis] or 0) + (shape[axis] or 0)
        pairs = enumerate(zip(first, shape, strict=True))
        first = [joined if number == axis else one(a, b, f"axis {number}") for number, (a, b) in pairs]
    return of_shape(inputs[0], first)


def dot(layer: PlainLayer, inputs: tuple[TensorSpec, ...]) -> TensorSpec:
    """What is left of both when one axis of each is summed over; at least one axis beside the batch."""
    first, second = (sizes(spec) for spec in inputs)
    axes = layer.settings["axes"]
    a, b = axes if isinstance(axes, list) else (axes, axes)
    a, b = place(a, len(first)), place(b, len(second))
    one(first[a], second[b], "the axes that it sums over")
    rest = (*first[1:a], *first[a + 1 :], *second[1:b], *second[b + 1 :])
    return of_shape(inputs[0], (first[0], *(rest or (1,))))


SHAPES = {
    **dict.fromkeys(("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"), merged),
    "Concatenate": concatenate,
    "Dot": dot,
}
