"""Flatten, Reshape and their like."""

from ...records.graph import TensorSpec
from ...records.layer import PlainLayer
from .sizes import ShapeError, Size, of_shape, product, sizes


def flatten(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
    """Everything but the batch in one axis."""
    batch, *others = sizes(inputs)
    return of_shape(inputs, (batch, product(others) if others else 1))


def reshape(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
    """The new shape; -1 is what is left."""
    batch, *others = sizes(inputs)
    wanted = layer.settings["target_shape"]
    known, count = product([size for size in wanted if size != -1]) or 0, product(others)
    if count is not None and (count % known if -1 in wanted and known else count != known):
        raise ShapeError(f"makes shape {tuple(wanted)} of {count} numbers")
    left: Size = None if count is None or not known else count // known
    return of_shape(inputs, (batch, *(left if size == -1 else size for size in wanted)))


def permute(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
    """Axes in another order."""
    shape, order = sizes(inputs), layer.settings["dims"]
    if len(order) != len(shape) - 1:
        raise ShapeError(f"orders {len(order)} axes, and its input has {len(shape) - 1} beside the batch")
    return of_shape(inputs, (shape[0], *(shape[axis] for axis in order)))


def repeat_vector(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
    """A new axis behind the batch."""
    batch, *others = sizes(inputs)
    return of_shape(inputs, (batch, layer.settings["n"], *others))


SHAPES = {
    "Flatten": flatten,
    "Reshape": reshape,
    "Permute": permute,
    "RepeatVector": repeat_vector,
}
