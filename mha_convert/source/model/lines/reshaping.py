"""The same numbers in another shape: of Keras' order of axes, whatever order they are in."""

from collections.abc import Mapping
from typing import Any

from ....graph.shapes.reshaping import pooled_axis
from ....records.layer import PlainLayer
from ....records.model import Term
from ..use import Use, Written, atom, axis_in, last


def flatten(layer: PlainLayer, use: Use, inputs: Term) -> str:
    """``flatten(1)``; channels that come first are moved to the end before."""
    text = last(inputs)
    if layer.settings["data_format"] == "channels_first" and inputs.rank > 2:
        text = f"{atom(text)}.movedim(1, -1)"
    return f"{atom(text)}.unsqueeze(1)" if inputs.rank == 1 else f"{atom(text)}.flatten(1)"


def reshape(layer: PlainLayer, use: Use, inputs: Term) -> str:
    """The batch stays."""
    sizes = ", ".join(map(str, layer.settings["target_shape"]))
    if inputs.rank == 2 and sizes:
        return f"{atom(last(inputs))}.unflatten(1, ({sizes}{',' if ',' not in sizes else ''}))"
    text = last(inputs)
    batch = f"{atom(text)}.shape[0]"
    return f"{atom(text)}.reshape({', '.join(filter(None, (batch, sizes)))})"


def permute(layer: PlainLayer, use: Use, inputs: Term) -> str:
    """``transpose`` of two axes, or ``permute`` of all."""
    order = layer.settings["dims"]
    text = atom(last(inputs))
    return f"{text}.transpose(1, 2)" if order == [2, 1] else f"{text}.permute(0, {', '.join(map(str, order))})"


def repeat_vector(layer: PlainLayer, use: Use, inputs: Term) -> str:
    """A new axis behind the batch."""
    others = ", ".join(["-1"] * (inputs.rank - 1))
    return f"{atom(last(inputs))}.unsqueeze(1).expand(-1, {layer.settings['n']}, {others})"


def global_average(layer: PlainLayer, use: Use, inputs: Term, mask: Term | None = None) -> str:
    """The mean over the length, of what the mask keeps."""
    keepdim = ", keepdim=True" if layer.settings["keepdims"] else ""
    if mask is None:
        return f"{atom(inputs.text)}.mean({axis_in(inputs, pooled_axis(layer), inputs.order)}{keepdim})"
    axis = pooled_axis(layer)
    kept = f"{atom(mask.text)}[{':, :, None' if axis == 1 else ':, None'}]"
    return f"({atom(last(inputs))} * {kept}).sum({axis}{keepdim}) / {kept}.sum({axis}{keepdim})"


def global_maximum(layer: PlainLayer, use: Use, inputs: Term) -> str:
    """The largest over the length."""
    keepdim = ", keepdim=True" if layer.settings["keepdims"] else ""
    return f"{atom(inputs.text)}.amax({axis_in(inputs, pooled_axis(layer), inputs.order)}{keepdim})"


def kept_order(line: Any) -> Any:
    """A line whose result is in its input's order where the axis that it pools is kept."""

    def ordered(layer: PlainLayer, use: Use, inputs: Term, **masks: Term) -> Written:
        order = inputs.order if layer.settings["keepdims"] and not masks else "last"
        return Written(line(layer, use, inputs, **masks), order)

    return ordered


LINES: Mapping[str, Any] = {
    "Flatten": flatten,
    "Reshape": reshape,
    "Permute": permute,
    "RepeatVector": repeat_vector,
    "GlobalAveragePooling1D": kept_order(global_average),
    "GlobalMaxPooling1D": kept_order(global_maximum),
}
