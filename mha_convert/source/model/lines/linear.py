"""Dense, EinsumDense and Embedding."""

from ....layers.plain.activations import activation_of
from ....records.layer import PlainLayer
from ....records.model import Term
from ..use import Use, atom, last
from .activations import activated


def dense(layer: PlainLayer, use: Use, inputs: Term) -> str:
    """The module, and the activation that is part of the layer."""
    return activated(activation_of(layer.settings["activation"], layer.version), f"{use.module}({last(inputs)})")


def embedding(layer: PlainLayer, use: Use, inputs: Term) -> str:
    """Keras takes tokens as floats, too."""
    is_whole = (inputs.spec.dtype or "").startswith(("int", "uint"))
    return f"{use.module}({inputs.text if is_whole else f'{atom(inputs.text)}.long()'})"


LINES = {"Dense": dense, "EinsumDense": dense, "Embedding": embedding}
