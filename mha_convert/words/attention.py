"""``keras.layers.Attention`` and ``AdditiveAttention`` in words, which have no projections."""

from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import shortened
from ..records.layer import UnprojectedAttention
from ..records.plan import LayerPlan
from .commands import convert_line
from .table import Document, Table, plain_table

SCORES = {
    "dot": "scores = {scale}query · key, divided by nothing",
    "concat": "scores = concat_score_weight × sum(tanh({scale}(query + key))), over the features",
    "additive": "scores = sum(scale × tanh(query + key)), over the features",
}
MEANINGS = {
    "scale": {"dot": "multiplies every score", "concat": "multiplies every sum", "additive": "one number per feature"},
    "concat_score_weight": {"concat": "multiplies every score"},
}


LEGEND = "Without projections: the same weights in every layout, for a module of their own."


def section(layers: Sequence[UnprojectedAttention]) -> Document:
    """One row per layer."""
    headings = ("layer", "kind", "score", "features", "dtype", "weights")
    return [Table(headings, tuple(row(layer) for layer in layers)), "", LEGEND]


def row(layer: UnprojectedAttention) -> tuple[str, ...]:
    """The facts as cells."""
    weights = ", ".join(f"{name} {variable.shape}" for name, variable in layer.arrays.items())
    features = "any" if layer.features is None else str(layer.features)
    return (shortened(layer.name, 60), layer.kind, layer.score, features, layer.dtype, weights)


def layer_as_json(layer: UnprojectedAttention) -> dict[str, Any]:
    """One layer without projections."""
    facts = ("name", "kind", "class_name", "path", "score", "features", "use_scale", "dtype", "compute_dtype")
    return {
        **{fact: getattr(layer, fact) for fact in facts},
        "weights": {name: list(variable.shape) for name, variable in layer.arrays.items()},
        "parameters": layer.parameters,
        "dropout": layer.dropout,
        "call_options": list(layer.call_options),
        "cautions": list(layer.cautions),
        "doubt": layer.doubt,
    }


def arguments_shown(item: LayerPlan) -> list[tuple[str, Any]]:
    """The arguments that make a difference."""
    return [(name, value) for name, value in item.module.arguments.items() if name != "dropout" or value]


def module_call(item: LayerPlan) -> str:
    """The module as one would make it."""
    return f"{item.module.class_name}({', '.join(f'{name}={value!r}' for name, value in arguments_shown(item))})"


def explained(item: LayerPlan, source: str) -> Iterator[str]:
    """Formula, weights, traps, and the lines to convert, load and call it."""
    layer: Any = item.layer
    arguments = ", ".join(f"{name}={value!r}" for name, value in layer.sizes.items())
    yield f"In Keras: {layer.kind}({arguments}), {layer.parameters:,} parameter{'s' * (layer.parameters != 1)}."
    yield ""
    rows = (
        (f"  {name}", str(variable.shape), MEANINGS[name][layer.score], variable.path)
        for name, variable in layer.arrays.items()
    )
    yield from plain_table(Table(("  weight", "shape", "", "in the file"), tuple(rows)))
    yield ""
    yield f"  {SCORES[layer.score].format(scale='scale × ' if layer.use_scale else '')}"
    yield "  output = softmax(scores) · value"
    yield ""
    call = ", ".join(f"{name}={value!r}" for name, value in item.module.arguments.items())
    yield f"In PyTorch (any layout): mha_convert.modules.{item.module.class_name}({call}), with the same weights."
    yield "  nn.MultiheadAttention does not compute it: it has projections, and divides scores by the root of a width."
    yield ""
    yield from traps(layer)
    yield from code(layer, source)


def traps(layer: UnprojectedAttention) -> Iterator[str]:
    """Why outputs differ out of the box."""
    yield "Traps:"
    yield "  order     Keras: layer([query, value, key]). PyTorch: module(query, key, value); always pass the key."
    yield "  masks     Keras: mask=[query_mask, value_mask], True attends. PyTorch: key_padding_mask, True blocks:"
    yield "            key_padding_mask = ~value_mask. A query_mask sets rows of the output to zero: multiply by it."
    if layer.call_options:
        yield f"            This model calls the layer with {', '.join(layer.call_options)}."
    if layer.dropout:
        yield f"  dropout   {layer.dropout} of the attention weights while training; call .eval() to switch it off."
    for caution in layer.cautions:
        yield f"  caution   {caution}."
    yield ""


def code(layer: UnprojectedAttention, source: str) -> Iterator[str]:
    """The few lines to load and call it."""
    causal = {"use_causal_mask=True", "causal=True"} & set(layer.call_options)
    yield "Convert, load and call:"
    yield convert_line(source, "attention.safetensors", layer.name)
    yield ""
    yield "  import torch"
    yield "  import mha_convert"
    yield ""
    yield f'  attention = mha_convert.load_modules("attention.safetensors")[{layer.name!r}]'
    yield f"  query = torch.randn(2, 5, {layer.features or 8})"
    yield f"  key = value = torch.randn(2, 7, {layer.features or 8})"
    yield f"  output, scores = attention(query, key, value{', is_causal=True' if causal else ''})"
    options = ", use_causal_mask=True" if causal else ""
    yield f"  # Keras: output, scores = layer([query, value, key], return_attention_scores=True{options})"
    yield ""
