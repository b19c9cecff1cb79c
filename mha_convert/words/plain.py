"""Layers other than attention in words: a class, its settings, its arrays, and a formula for each kind."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..conversion import describe
from ..errors import shortened
from ..records.layer import PlainLayer
from ..records.plan import LayerPlan, Piece
from .commands import convert_line
from .table import Document, Table, plain_table

LEGEND = "Other layers that can be converted: each is converted where --layer names it."


def section(layers: Sequence[PlainLayer]) -> Document:
    """One row per layer."""
    headings = ("layer", "kind", "settings", "dtype", "weights")
    return [Table(headings, tuple(row(layer) for layer in layers)), "", LEGEND]


def row(layer: PlainLayer) -> tuple[str, ...]:
    """The facts as cells."""
    weights = ", ".join(f"{name} {variable.shape}" for name, variable in layer.arrays.items())
    return (shortened(layer.name, 60), layer.kind, settings_text(layer), layer.dtype, weights)


def settings_text(layer: PlainLayer) -> str:
    """The settings as Keras' constructor takes them."""
    return ", ".join(f"{name}={value!r}" for name, value in layer.settings.items())


def layer_as_json(layer: PlainLayer) -> dict[str, Any]:
    """One layer."""
    facts = ("name", "kind", "class_name", "path", "dtype", "compute_dtype")
    return {
        **{fact: getattr(layer, fact) for fact in facts},
        "settings": dict(layer.settings),
        "weights": {name: list(variable.shape) for name, variable in layer.arrays.items()},
        "parameters": layer.parameters,
        "call_options": list(layer.call_options),
        "cautions": list(layer.cautions),
        "doubt": layer.doubt,
    }


def module_call(item: LayerPlan) -> str:
    """The module of ``torch.nn`` as one would make it."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in item.module.arguments.items())
    return f"nn.{item.module.class_name}({arguments})"


@dataclass(frozen=True, slots=True)
class Formula:
    """What one kind computes, and why it goes wrong by hand.

    Args:
        lines: the formula, with the layer's own settings in braces.
        traps: a word and a line for each.
        example: the shape of an input, as source.
    """

    lines: tuple[str, ...]
    traps: tuple[tuple[str, str], ...]

    def explained(self, item: LayerPlan, source: str) -> Iterator[str]:
        """Formula, tensors, traps, and the lines to convert, load and call it."""
        layer: Any = item.layer
        s = "s" * (layer.parameters != 1)
        yield f"In Keras: {layer.kind}({settings_text(layer)}), {layer.parameters:,} parameter{s}."
        yield ""
        yield from (f"  {line.format(**layer.settings)}" for line in self.lines)
        yield ""
        yield f"In PyTorch (any layout): torch.{module_call(item)}, with the same numbers."
        yield ""
        yield "Tensors:"
        rows = (
            (f"  {rule.target}", str(describe(rule, item, layer.dtype).shape), f"= {piece_text(rule.pieces[0])}")
            for rule in item.rules
        )
        yield from plain_table(Table(("  key", "shape", "made of"), tuple(rows)))
        yield ""
        yield "Traps:"
        yield from (f"  {word:<9} {line.format(**layer.settings)}" for word, line in self.traps)
        yield from (f"  caution   {caution}." for caution in layer.cautions)
        yield ""
        yield "Convert, load and call:"
        yield convert_line(source, "layer.safetensors", layer.name)
        yield ""
        yield "  import torch"
        yield "  from safetensors.torch import load_file"
        yield ""
        yield f"  layer = torch.{module_call(item)}"
        yield '  layer.load_state_dict(load_file("layer.safetensors"))'
        shape = ", ".join(map(str, (2, 5, *item.module.arguments.get("normalized_shape", ()))))
        yield f"  output = layer(torch.randn({shape}))"
        yield ""


def piece_text(piece: Piece) -> str:
    """Where a tensor comes from."""
    return piece.source or str(piece.made)


LAYER_NORMALIZATION = Formula(
    lines=(
        "output = (x - mean) / sqrt(variance + epsilon) × gamma + beta, over axis {axis}",
        "epsilon = {epsilon}",
    ),
    traps=(("epsilon", "Keras' own is 1e-3, PyTorch's 1e-5: this layer has {epsilon}, and so must eps be."),),
)
