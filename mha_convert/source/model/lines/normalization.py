"""Normalizations: modules of PyTorch normalize the last axes, or want channels behind the batch."""

from collections.abc import Mapping
from typing import Any

from ....records.layer import PlainLayer
from ....records.model import Term
from ..use import Use, Written, atom, axis_in, first, last

KERAS_3_6 = (3, 6)


def last_axes(layer: PlainLayer, use: Use, inputs: Term) -> str:
    """A module that normalizes the last axes; others are moved there and back."""
    rank, text = inputs.rank, last(inputs)
    axes = [axis % rank for axis in layer.settings["axis"]]
    behind = [*range(rank - len(axes), rank)]
    if axes == behind:
        return f"{use.module}({text})"
    there, back = (axes[0], -1) if len(axes) == 1 else (tuple(axes), tuple(axis - rank for axis in behind))
    return f"{use.module}({atom(text)}.movedim({there}, {back})).movedim({back}, {there})"


def channels_second(layer: PlainLayer, use: Use, inputs: Term) -> Written:
    """A module that wants channels behind the batch."""
    rank = inputs.rank
    axis = layer.settings["axis"] % rank
    if rank < 3:
        return Written(f"{use.module}({inputs.text})", inputs.order)
    if axis == rank - 1:
        return Written(f"{use.module}({first(inputs)})", "first")
    text = last(inputs)
    if axis == 1:
        return Written(f"{use.module}({text})")
    return Written(f"{use.module}({atom(text)}.movedim({axis}, 1)).movedim(1, {axis})")


def unit(layer: PlainLayer, use: Use, inputs: Term) -> Written:
    """``F.normalize``; before Keras 3.6 a length counted as 1e-6 at the least, now 1e-12."""
    given = layer.settings["axis"]
    axes = [axis_in(inputs, axis, inputs.order) for axis in (given if isinstance(given, list) else [given])]
    dim = axes[0] if len(axes) == 1 else tuple(axes)
    eps = "" if layer.version >= KERAS_3_6 else ", eps=1e-6"
    return Written(f"F.normalize({inputs.text}, dim={dim}{eps})", inputs.order)


def rescaling(layer: PlainLayer, use: Use, inputs: Term) -> Written:
    """Two numbers, or a module."""
    if use.module:
        return Written(f"{use.module}({last(inputs)})")
    scale, offset = float(layer.settings["scale"]), float(layer.settings["offset"])
    text = atom(inputs.text) if scale == 1 else f"{atom(inputs.text)} * {number(scale)}"
    sign = "-" if offset < 0 else "+"
    return Written(text if offset == 0 else f"{text} {sign} {number(abs(offset))}", inputs.order)


def number(value: float) -> str:
    """A number as one writes it: 0.00392156862745098 is ``(1 / 255)``."""
    divisor = round(1 / value) if value else 0
    if divisor > 1 and 1 / divisor == value and len(repr(value)) > len(str(divisor)) + len("1 / "):
        return f"(1 / {divisor})"
    return repr(int(value)) if value.is_integer() and abs(value) < 1e9 else repr(value)


def normalization(layer: PlainLayer, use: Use, inputs: Term) -> str:
    """The module, in Keras' order of axes."""
    return f"{use.module}({last(inputs)})"


def masking(layer: PlainLayer, use: Use, inputs: Term, mask: Term | None = None) -> str:
    """What is masked becomes 0; where that is the mask's value, it is."""
    return last(inputs) if mask is None else f"{atom(last(inputs))} * {atom(mask.text)}[..., None]"


LINES: Mapping[str, Any] = {
    "LayerNormalization": last_axes,
    "RMSNormalization": last_axes,
    "BatchNormalization": channels_second,
    "GroupNormalization": channels_second,
    "UnitNormalization": unit,
    "Rescaling": rescaling,
    "Normalization": normalization,
    "Masking": masking,
}
