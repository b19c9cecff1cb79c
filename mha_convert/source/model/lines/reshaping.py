"""The same numbers in another shape: of Keras' order of axes, whatever order they are in."""

from collections.abc import Mapping
from typing import Any

from ....records.layer import PlainLayer
from ....records.model import Term
from ..use import Use, atom, last


def flatten(layer: PlainLayer, use: Use, inputs: Term) -> str:
    """``flatten(1)``; channels that come first are moved to the end before."""
    text = last(inputs)
    if layer.settings["data_format"] == "channels_first" and inputs.rank > 2:
        text = f"{atom(text)}.{'transpose(1, 2)' if inputs.rank == 3 else 'movedim(1, -1)'}"
    return f"{atom(text)}.unsqueeze(1)" if inputs.rank == 1 else f"{atom(text)}.flatten(1)"


def reshape(layer: PlainLayer, use: Use, inputs: Term) -> str:
    """The batch stays."""
    sizes = ", ".join(map(str, layer.settings["target_shape"]))
    if inputs.rank == 2 and sizes:
        return f"{atom(last(inputs))}.unflatten(1, ({sizes}{',' if ',' not in sizes else ''}))"
    text = last(inputs)
    batch = f"{atom(inputs.text)}.shape[0]"
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


LINES: Mapping[str, Any] = {
    "Flatten": flatten,
    "Reshape": reshape,
    "Permute": permute,
    "RepeatVector": repeat_vector,
}
