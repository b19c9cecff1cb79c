"""Normalizations: the input's own shape, whose axes the arrays must fit."""

from ...errors import LayerError, shortened
from ...records.graph import TensorSpec
from ...records.layer import PlainLayer
from .sizes import ShapeError, place, sizes


def over_axes(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
    """Of some axes, or of one."""
    fitted(layer, inputs, layer.settings["axis"])
    return inputs


def fitted(layer: PlainLayer, inputs: TensorSpec, axis: int | list[int]) -> list[int]:
    """The axes counted from the front, each of the size that the layer's arrays have."""
    shape = sizes(inputs)
    places = [place(one, len(shape)) for one in (axis if isinstance(axis, list) else [axis])]
    if len(set(places)) < len(places):
        raise ShapeError(f"has the axes {axis}, of which two are one axis of its input of {len(shape)} axes")
    found = tuple(shape[one] for one in places)
    for name, variable in layer.arrays.items():
        differs = len(variable.shape) == len(found) and any(
            size not in (None, own) for size, own in zip(found, variable.shape, strict=True)
        )
        if differs:
            raise ShapeError(f"is called with {found} numbers along its axes, and its {name} has {variable.shape}")
    return places


def rms_normalization(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
    """Of the last axes: Keras multiplies by the scale along these, whichever axes it divides."""
    places, rank = fitted(layer, inputs, layer.settings["axis"]), len(sizes(inputs))
    if places != [*range(rank - len(places), rank)]:
        raise LayerError(
            f"Layer '{shortened(layer.name, 80)}' (RMSNormalization) divides along axis {layer.settings['axis']} of "
            f"{rank}, and Keras multiplies by its scale along the last. This has no rule; port this layer by hand."
        )
    return inputs


def group_normalization(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
    """Of one axis, which the groups divide."""
    (axis,) = fitted(layer, inputs, layer.settings["axis"])
    size, count = sizes(inputs)[axis], layer.settings["groups"]
    if size is not None and count != -1 and size % count:
        raise ShapeError(f"has {count} groups of {size} channels")
    return inputs


def rescaling(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
    """Whole numbers become floats."""
    return TensorSpec(sizes(inputs))


def normalization(layer: PlainLayer, inputs: TensorSpec) -> TensorSpec:
    """Whole numbers become floats."""
    fitted(layer, inputs, layer.settings["axis"])
    return TensorSpec(sizes(inputs))


def masking(layer: PlainLayer, inputs: TensorSpec, mask: TensorSpec | None = None) -> TensorSpec:
    """Steps have features."""
    if len(sizes(inputs)) < len(("batch", "length", "features")):
        raise ShapeError(f"masks steps, and its input has {len(sizes(inputs))} axes")
    return inputs


SHAPES = {
    "LayerNormalization": over_axes,
    "BatchNormalization": over_axes,
    "UnitNormalization": over_axes,
    "RMSNormalization": rms_normalization,
    "GroupNormalization": group_normalization,
    "Rescaling": rescaling,
    "Normalization": normalization,
    "Masking": masking,
}
