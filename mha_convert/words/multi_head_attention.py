"""Attention with projections in words: the table and JSON of ``inspect``, the module's call, ``explain``."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from .. import layouts
from ..conversion import convert, describe, is_rescaled, ledger
from ..errors import LayoutError, shortened
from ..layouts import BIAS, FAMILIES, OUTPUT_BIAS, OUTPUT_WEIGHT, WEIGHT
from ..options import DEFAULTS, Layout
from ..records.layer import AttentionLayer
from ..records.plan import LayerPlan, Piece
from .commands import convert_line
from .table import Document, Table, plain_table

LEGEND = (
    "inputs: width of query, key and value. mha, padded, linear: what holds the layer in this layout, and the "
    "parameters that it adds. stock: nn.MultiheadAttention alone; q, out: with an nn.Linear before or after it."
)

STOCK: tuple[Layout, ...] = ("mha", "padded")  # what holds any layer in nn.MultiheadAttention
ENCODER: Layout = "encoder"
ALIKE = (*STOCK, ENCODER)  # whose module is nn.MultiheadAttention, alone or not


def section(layers: Sequence[AttentionLayer]) -> Document:
    """One row per layer, and what the columns mean."""
    headings = (
        "layer",
        "kind",
        "num_heads",
        "key_dim",
        "value_dim",
        "inputs",
        "output",
        "bias",
        "dtype",
        "parameters",
        *STOCK,
        "linear",
    )
    return [Table(headings, tuple(layer_row(layer) for layer in layers)), "", LEGEND]


def layer_row(layer: AttentionLayer) -> tuple[str, ...]:
    """The facts as cells."""
    heads = str(layer.num_heads)
    if layer.num_key_value_heads != layer.num_heads:
        heads += f" ({layer.num_key_value_heads} key)"
    return (
        shortened(layer.name, 60),
        layer.kind,
        heads,
        str(layer.key_dim),
        str(layer.value_dim),
        widths(layer),
        " × ".join(map(str, layer.output_shape)),
        "yes" if layer.use_bias else "no",
        layer.dtype if layer.storage == layer.dtype else f"{layer.storage} → {layer.dtype}",
        f"{layer.parameters:,}",
        *(layout_cell(layer, layout) for layout in STOCK),
        linear_cell(layer),
    )


def layout_cell(layer: AttentionLayer, layout: Layout) -> str:
    """``stock +0``, ``q, out +1,200``, or why not."""
    facts = layout_facts(layer, layout)
    if facts is None:
        return "refused"
    if facts["misfit"]:
        return "does not fit"
    around = ", ".join(facts["projections"]) or "stock"
    return f"{around} +{facts['added_parameters']:,}"


def widths(layer: AttentionLayer) -> str:
    """Widths of query, key and value; one number where all are equal."""
    three = (layer.query_features, layer.key_features, layer.value_features)
    return str(three[0]) if len(set(three)) == 1 else ", ".join(map(str, three))


def linear_cell(layer: AttentionLayer) -> str:
    """Layout ``linear`` adds nothing."""
    return "refused" if layouts.refusals(layer, "linear") else "+0"


def layout_facts(layer: AttentionLayer, layout: Layout) -> dict[str, Any] | None:
    """What a layout of ``nn.MultiheadAttention`` adds to a layer; None where it refuses the layer."""
    try:
        chosen = layouts.plan([layer], layout=layout, prefix="")
    except LayoutError:
        return None
    (item,) = chosen.layers
    entry = ledger(item, {tensor.key: tensor.shape for tensor in convert(chosen)})
    return {
        "module": item.module.class_name,
        "embed_dim": item.module.arguments["embed_dim"],
        "head_size": item.module.arguments["embed_dim"] // layer.num_heads,
        "projections": projections(item),
        "added_parameters": entry.repeated + entry.padding + entry.identity,
        "misfit": item.misfit,
    }


def projections(item: LayerPlan) -> list[str]:
    """Which ``nn.Linear`` are around the stock module."""
    targets = {rule.target.split(".")[0] for rule in item.rules}
    return [short for short, full in (("q", "query_projection"), ("out", "output_projection")) if full in targets]


def layer_as_json(layer: AttentionLayer) -> dict[str, Any]:
    """One layer."""
    facts = (
        "num_heads",
        "num_key_value_heads",
        "key_dim",
        "value_dim",
        "query_features",
        "key_features",
        "value_features",
        "output_features",
    )
    return {
        "name": layer.name,
        "kind": layer.kind,
        "class_name": layer.class_name,
        "path": layer.path,
        **{fact: getattr(layer, fact) for fact in facts},
        "output_shape": list(layer.output_shape),
        "use_bias": layer.use_bias,
        "use_gate": layer.gate is not None,
        "dtype": layer.dtype,
        "storage": layer.storage,
        "compute_dtype": layer.compute_dtype,
        "parameters": layer.parameters,
        "has_config": layer.has_config,
        "attention_axes": None if layer.attention_axes is None else list(layer.attention_axes),
        "sliding_window": layer.sliding_window,
        "dropout": layer.dropout,
        "scale": layer.scale,
        "call_options": list(layer.call_options),
        "layouts": {layout: layout_facts(layer, layout) for layout in STOCK},
        "refusals": [refusal.text(layer) for refusal in layouts.refusals(layer, "mha")],
        "cautions": list(layer.cautions),
        "doubt": layer.doubt,
        "beyond": layer.beyond,
    }


def added(layer: AttentionLayer) -> int | None:
    """How many numbers the default layout adds to the layer; None where it refuses it."""
    facts = layout_facts(layer, "mha")
    return None if facts is None else int(facts["added_parameters"])


def module_call(item: LayerPlan) -> str:
    """The module as one would make it, with its sizes."""
    layer: Any = item.layer
    if item.layout not in ALIKE:
        sizes = (layer.num_heads, layer.key_dim) + (() if item.layout == "qkv" else (layer.value_dim,))
        return f"{item.module.class_name}({', '.join(map(str, sizes))})"
    stock = f"nn.MultiheadAttention({item.module.arguments['embed_dim']}, {layer.num_heads})"
    around = projections(item)
    return f"{'Linear → ' if 'q' in around else ''}{stock}{' → Linear' if 'out' in around else ''}"


def explained(item: LayerPlan, source: str) -> Iterator[str]:
    """Formula, module, tensors, traps, and the lines to convert, load and call it."""
    layer: Any = item.layer
    yield from keras_part(layer)
    yield from module_part(item, layer)
    yield from tensors_part(item, layer)
    yield from traps_part(layer)
    yield from code_part(item, layer, source)


def keras_part(layer: AttentionLayer) -> Iterator[str]:
    """What Keras holds and computes."""
    heads, key_dim, value_dim = layer.num_heads, layer.key_dim, layer.value_dim
    call = f"{layer.kind}(num_heads={heads}, key_dim={key_dim}, value_dim={value_dim})"
    yield f"In Keras: {call}, {layer.parameters:,} parameters."
    yield ""
    axes = {
        "query": "features, heads, key_dim",
        "key": "features, heads, key_dim",
        "value": "features, heads, value_dim",
        "output": "heads, value_dim, output",
        "gate": "features, heads, value_dim",
    }
    rows = []
    for role, projection in layer.projections.items():
        bias = "" if projection.bias is None else f"bias {projection.bias.shape}"
        place = projection.kernel.path
        rows.append((f"  {role}", f"kernel {projection.kernel.shape}", bias, f"({axes[role]})", place))
    yield from plain_table(Table(("  array", "shape", "", "axes of the kernel", "kernel in the file"), tuple(rows)))
    yield ""
    added = {role: "" if item.bias is None else f" + b{role[0]}" for role, item in layer.projections.items()}
    yield f"  q = query · Wq{added['query']},  {heads} heads × {key_dim} numbers = {heads * key_dim}"
    yield f"  k = key · Wk{added['key']},  v = value · Wv{added['value']}"
    yield weights_line(layer)
    gated = "" if layer.gate is None else " × gate"
    if layer.num_key_value_heads != heads:
        shared = layer.num_key_value_heads
        yield f"  {heads // shared} query heads in a row share one of the {shared} heads of k and v"
    if layer.sliding_window is not None:
        yield f"  a query sees the keys that are less than sliding_window = {layer.sliding_window} positions away"
    if gated:
        yield f"  gate = sigmoid(query · Wg{added['gate']}), one number for each number of each head"
    heads_joined = f"(weights · v{gated}, heads side by side)"
    yield f"  output = {heads_joined} · Wo{added['output']}, which is the sum of every head's own product"
    yield ""
    if heads * key_dim != layer.query_features:
        width = layer.query_features
        yield f"num_heads × key_dim = {heads * key_dim} is not the query's width {width}. Keras allows any:"
        yield "key_dim is the size of one head, not the width divided by the heads, so parameters grow with num_heads."
        if width % heads == 0:
            yield f"A layer with PyTorch's sizes would have key_dim = {width} / {heads} = {width // heads}."
        yield ""


def weights_line(layer: AttentionLayer) -> str:
    """How scores become weights."""
    if layer.scale is None:
        return f"  weights = softmax(q · k / sqrt(key_dim)),  sqrt({layer.key_dim}) = {math.sqrt(layer.key_dim):.6g}"
    return f"  weights = softmax(q · k × {layer.scale:.6g}), the scale that was given with --attention"


def factor_line(item: LayerPlan, layer: AttentionLayer) -> Iterator[str]:
    """A word on the query where it carries a scale that was given."""
    factor = query_factor(item)
    if layer.scale is not None and factor != 1:
        yield f"  The query is multiplied by {factor:.6g}, so that the scale is the one that was given."


# Layouts of nn.Linear and scaled_dot_product_attention; one that has no row here is shown by its module alone.
LINEARS = {
    "linear": "four nn.Linear in Keras' own sizes",
    **dict.fromkeys(FAMILIES, "four nn.Linear in Keras' own sizes"),
    "qkv": "one nn.Linear for query, key and value, one for the output",
}


def module_part(item: LayerPlan, layer: AttentionLayer) -> Iterator[str]:
    """Which module takes it, and why."""
    if item.layout in ALIKE:
        yield from stock_part(item, layer)
    elif item.layout in LINEARS:
        divides = item.module.arguments.get("divides_scores", True)
        scale = f"1 / sqrt({layer.key_dim})" if divides else "1"
        gate = ", one more for the gate," if layer.gate else ""
        yield f"In PyTorch (layout {item.layout}): {LINEARS[item.layout]}{gate} and scaled_dot_product_attention"
        yield f"with scale = {scale}; no parameter is added."
        yield from factor_line(item, layer)
        if not divides and layer.scale is None:
            yield f"  The query is multiplied by sqrt(1 / {layer.key_dim}) = {query_factor(item):.6g} instead."
    else:
        arguments = ", ".join(f"{name}={value!r}" for name, value in item.module.arguments.items())
        yield f"In PyTorch (layout {item.layout}): {item.module.class_name}({arguments})."
    yield ""


def stock_part(item: LayerPlan, layer: AttentionLayer) -> Iterator[str]:
    """The sizes of layout ``mha``: one head size, and what is needed around it."""
    around = projections(item)
    embed, heads = item.module.arguments["embed_dim"], layer.num_heads
    head_size = embed // heads
    company = "with nn.Linear around it" if around else "alone"
    yield f"In PyTorch (layout {item.layout}): nn.MultiheadAttention({embed}, {heads}), {company}."
    yield (
        f"  It has one head size, embed_dim / num_heads = {embed} / {heads} = {head_size}, and scales by "
        f"1 / sqrt({head_size})."
    )
    if "q" in around:
        yield (
            f"  The query is {layer.query_features} wide and not {embed}: "
            f"query_projection = nn.Linear({layer.query_features}, {embed})"
        )
        yield "  carries Keras' query kernel, and the query weight inside is an identity."
    if "out" in around:
        shape = " × ".join(map(str, layer.output_shape))
        yield (
            f"  The output is {shape} and not {embed}: output_projection = nn.Linear({embed}, {layer.output_features})"
        )
        yield "  carries Keras' output kernel, and out_proj is an identity."
    if head_size not in (layer.key_dim, layer.value_dim) or layer.key_dim != layer.value_dim:
        yield (
            f"  Heads of {layer.key_dim} (query, key) and {layer.value_dim} (value) are padded with zeros to "
            f"{head_size}: zeros add nothing to a dot product."
        )
    yield from factor_line(item, layer)
    if head_size != layer.key_dim and layer.scale is None:
        factor = f"sqrt({head_size} / {layer.key_dim}) = {query_factor(item):.6g}"
        yield f"  The query is multiplied by {factor}, so that the scale is Keras'."
    if item.misfit:
        yield f"  {item.misfit}."


def query_factor(item: LayerPlan) -> float:
    """What the query's numbers are multiplied by."""
    return next(piece.factor for rule in item.rules for piece in rule.pieces if piece.source == "query.kernel")


def tensors_part(item: LayerPlan, layer: AttentionLayer) -> Iterator[str]:
    """Each target tensor and what it is made of."""
    yield "Tensors:"
    rows = []
    letters: dict[str, str] = {}
    for rule in item.rules:
        tensor = describe(rule, item, layer.dtype)
        pieces = [piece_text(piece, letters) for piece in rule.pieces]
        stacked = "rows of " if len(pieces) > 1 else ""
        rows.append((f"  {tensor.key}", str(tensor.shape), f"= {stacked}{', then '.join(pieces)}"))
    yield from plain_table(Table(("  key", "shape", "made of"), tuple(rows)))
    for pattern, letter in letters.items():
        yield f"  {letter}: {pattern}"
    head_size = item.module.arguments.get("embed_dim", 0) // layer.num_heads
    if head_size and {layer.key_dim, layer.value_dim} != {head_size}:
        yield f"  Before that, head_dim is padded with zeros to {head_size}, after each head's own numbers."
    yield "  (einops patterns: Keras puts the input axis first, PyTorch the output axis; in NumPy, W is"
    yield "  kernel.reshape(features, -1).T.)"
    yield ""


LETTERS = {WEIGHT: "W", BIAS: "B", OUTPUT_WEIGHT: "O", OUTPUT_BIAS: "F"}


def piece_text(piece: Piece, letters: dict[str, str]) -> str:
    """A piece in words; its pattern goes by a letter."""
    if piece.source is None:
        return str(piece.made)
    role, kind = piece.source.split(".")
    letter = letters.setdefault(piece.pattern, LETTERS.get(piece.pattern, f"P{len(letters)}"))
    factor = f" × {piece.factor:.6g}" if is_rescaled(piece) else ""
    return f"{letter}({role} {kind}){factor}"


def traps_part(layer: AttentionLayer) -> Iterator[str]:
    """Why outputs differ out of the box."""
    yield "Traps:"
    yield "  order     Keras: layer(query, value, key=None). PyTorch: module(query, key, value); always pass the key."
    yield "  batch     PyTorch's own default is batch second; this module is batch first, as Keras is."
    yield "  masks     Keras: True attends. PyTorch: True blocks, and a row without a key is NaN."
    yield "            mha_convert.to_attn_mask turns Keras' masks (attention, query, value, key, causal) into one"
    yield "            that gives Keras' result (for queries without any key left, see docs/why-outputs-differ.md)."
    if layer.call_options:
        yield f"            This model calls the layer with {', '.join(layer.call_options)}."
    yield "  scores    PyTorch averages them over the heads; pass average_attn_weights=False for Keras' shape."
    yield f"  names     Keras' key_dim={layer.key_dim}, value_dim={layer.value_dim} are sizes of one head;"
    widths = f"{layer.key_features} and {layer.value_features}"
    yield f"            PyTorch's kdim and vdim are widths of the inputs, here {widths}."
    if layer.dropout is None:
        yield "  dropout   is not in the file; the module has none. Set it before you train."
    elif layer.dropout:
        yield f"  dropout   {layer.dropout} of the attention weights while training; call .eval() to switch it off."
    for caution in layer.cautions:
        yield f"  caution   {caution}."
    yield ""


def stock_lines(item: LayerPlan) -> Iterator[str]:
    """``nn.MultiheadAttention`` with its weights."""
    arguments = ", ".join(f"{key}={value!r}" for key, value in item.module.arguments.items())
    yield f"  attention = torch.nn.MultiheadAttention({arguments})"
    yield '  attention.load_state_dict(load_file("attention.safetensors"))'
    yield "  attention.eval()"


def encoder_lines(item: LayerPlan) -> Iterator[str]:
    """The encoder layer whose ``self_attn`` it is; norms and feed-forward layers have weights of their own."""
    embed, heads, bias = (item.module.arguments[name] for name in ("embed_dim", "num_heads", "bias"))
    yield f"  encoder = torch.nn.TransformerEncoderLayer({embed}, {heads}, bias={bias}, batch_first=True)"
    yield '  encoder.load_state_dict(load_file("attention.safetensors"), strict=False)  # of its attention alone'
    yield "  attention = encoder.eval().self_attn"


def code_part(item: LayerPlan, layer: AttentionLayer, source: str) -> Iterator[str]:
    """The few lines to load and call it."""
    choice = "" if item.layout == DEFAULTS["layout"] else f" --layout {item.layout}"
    yield "Convert, load and call:"
    yield convert_line(source, "attention.safetensors", layer.name, choice)
    yield ""
    yield "  import torch"
    if item.module.is_stock:
        yield "  from safetensors.torch import load_file"
        yield from ("  import mha_convert", "") if "use_causal_mask=True" in layer.call_options else ("",)
        yield from encoder_lines(item) if item.layout == ENCODER else stock_lines(item)
    else:
        yield "  import mha_convert"
        yield ""
        yield f'  attention = mha_convert.load_modules("attention.safetensors")[{layer.name!r}]'
    yield f"  query = torch.randn(2, 5, {layer.query_features})"
    yield f"  key = torch.randn(2, 7, {layer.key_features})"
    if layer.key_features == layer.value_features:
        yield "  value = key"
    else:
        yield f"  value = torch.randn(2, 7, {layer.value_features})"
    causal = "use_causal_mask=True" in layer.call_options
    if causal:
        heads = layer.num_heads
        yield f"  mask = mha_convert.to_attn_mask(causal=True, num_heads={heads}, query_length=5, key_length=7)"
    mask = "attn_mask=mask, " if causal else ""
    yield f"  output, scores = attention(query, key, value, {mask}average_attn_weights=False)"
    yield (
        f"  # Keras: output, scores = layer(query, value, key=key, {'use_causal_mask=True, ' if causal else ''}"
        "return_attention_scores=True)"
    )
    yield ""
