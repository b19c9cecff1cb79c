"""Convolution, pooling, and layers that make a sequence longer or shorter."""

from collections.abc import Callable

from ...records.graph import TensorSpec
from ...records.layer import Layer, PlainLayer
from .sizes import ShapeError, Size, of_shape, sizes

RANK = 3  # batch, length and channels


def length_axis(layer: Layer) -> int:
    """1, or 2 where the file says that channels come first."""
    return 2 if layer.settings.get("data_format") == "channels_first" else 1


def sequence(layer: PlainLayer, inputs: TensorSpec) -> list[Size]:
    """The shape of a sequence of channels."""
    shape = list(sizes(inputs))
    if len(shape) != RANK:
        raise ShapeError(f"takes a sequence (batch, length, channels), and its input has {len(shape)} axes")
    return shape


def windows(layer: PlainLayer, length: Size, width: int) -> Size:
    """How many windows of a width there are."""
    if length is None:
        return None
    stride = layer.settings["strides"]
    count = -(-length // stride) if layer.settings["padding"] != "valid" else (length - width) // stride + 1
    if count < 1:
        raise ShapeError(f"has windows of {width}, and its input is of length {length}")
    return count


def conv1d(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
    """A number for each window and filter."""
    shape, axis = sequence(layer, inputs), length_axis(layer)
    settings = layer.settings
    width = (settings["kernel_size"] - 1) * settings["dilation_rate"] + 1
    channels, expected = shape[3 - axis], layer.arrays["kernel"].shape[1] * settings["groups"]
    if channels not in (None, expected):
        raise ShapeError(f"is called with {channels} channels, and its kernel takes {expected}")
    shape[axis], shape[3 - axis] = windows(layer, shape[axis], width), settings["filters"]
    return of_shape(inputs, shape)


def pooling(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
    """A number for each window and channel."""
    shape, axis = sequence(layer, inputs), length_axis(layer)
    shape[axis] = windows(layer, shape[axis], layer.settings["pool_size"])
    return of_shape(inputs, shape)


def global_pooling(layer: PlainLayer, inputs: TensorSpec, mask: TensorSpec | None = None) -> TensorSpec:
    """The axis that is not the channels' goes, or is 1."""
    shape, axis = sequence(layer, inputs), length_axis(layer)
    shape[axis : axis + 1] = [1] if layer.settings["keepdims"] else []
    return of_shape(inputs, shape)


def resized(change: Callable[[PlainLayer, int], int]) -> Callable[[PlainLayer, TensorSpec], TensorSpec]:
    """A rule that changes the length alone."""

    def rule(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
        shape, axis = sequence(layer, inputs), length_axis(layer)
        length = shape[axis]
        if length is not None:
            shape[axis] = change(layer, length)
            if change(layer, length) < 1:
                raise ShapeError(f"leaves nothing of its input, which is of length {length}")
        return of_shape(inputs, shape)

    return rule


SHAPES = {
    "Conv1D": conv1d,
    "MaxPooling1D": pooling,
    "AveragePooling1D": pooling,
    "GlobalAveragePooling1D": global_pooling,
    "GlobalMaxPooling1D": global_pooling,
    "ZeroPadding1D": resized(lambda layer, length: length + sum(layer.settings["padding"])),
    "Cropping1D": resized(lambda layer, length: length - sum(layer.settings["cropping"])),
    "UpSampling1D": resized(lambda layer, length: length * layer.settings["size"]),
}
