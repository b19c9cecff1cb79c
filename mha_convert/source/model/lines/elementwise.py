"""Activations and dropout as layers: they keep the order of the axes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....layers.plain.activations import OF_LAYERS
from ....layers.plain.identities import SPATIAL
from ....records.layer import PlainLayer
from ....records.model import Term
from ..use import Use, Written, atom, last
from .activations import activated


def activation(layer: PlainLayer, use: Use, inputs: Term) -> Written:
    """An activation as a layer."""
    found = OF_LAYERS[layer.kind](layer.settings, layer.version)
    return Written(activated(found, inputs.text, inputs, inputs.order), inputs.order)


def softmax(layer: PlainLayer, use: Use, inputs: Term, mask: Term | None = None) -> Written:
    """Of scores, of which a mask may leave some out; from Keras 3.10 on these are 0, also where nothing is left."""
    if mask is None:
        return activation(layer, use, inputs)
    text = last(inputs)
    scores = Term(f"{text} + added_to_scores({mask.text}, {atom(text)}.dtype)", inputs.spec)
    written = activation(layer, use, scores)
    return replace(written, text=f"{atom(written.text)} * {mask.text}") if layer.version >= (3, 10) else written


def identity(layer: PlainLayer, use: Use, inputs: Term) -> Written:
    """Nothing is written for it."""
    return Written(inputs.text, inputs.order)


def module(layer: PlainLayer, use: Use, inputs: Term) -> Written:
    """A module that looks at single numbers."""
    return Written(f"{use.module}({inputs.text})", inputs.order)


LINES: Mapping[str, Any] = {
    **dict.fromkeys(OF_LAYERS, activation),
    "Softmax": softmax,
    **dict.fromkeys(("Identity", *SPATIAL, "GaussianDropout", "GaussianNoise", "ActivityRegularization"), identity),
    **dict.fromkeys(("Dropout", "AlphaDropout"), module),
}
