"""Layout ``mha``: every Keras layer as ``torch.nn.MultiheadAttention``, with at most two ``nn.Linear`` around it.

``nn.MultiheadAttention(E, H)`` has heads of one size ``E / H`` and scales by ``1/sqrt(E / H)``; Keras has ``key_dim``
and ``value_dim`` and scales by ``1/sqrt(key_dim)``. Heads are padded with zeros to one size, and the query is
multiplied by ``sqrt(size / key_dim)``. Where the query's or the output's width is not ``E``, an ``nn.Linear`` carries
the Keras kernel, and the weight inside is an identity. ``docs/layouts.md`` derives this.

https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html
"""

from dataclasses import dataclass, replace
from typing import Any

from ..records.layer import AttentionLayer
from ..records.plan import LayerPlan, ModuleSpec, Piece, Rule
from .patterns import (
    KEY,
    KEY_BIAS,
    OUTPUT,
    OUTPUT_BIAS_PIECE,
    QUERY,
    QUERY_BIAS,
    REPEATED,
    SHARED,
    VALUE,
    VALUE_BIAS,
)
from .refusals import GATED, UNKNOWN_AXES, WINDOWED, Refusal

NAME = "mha"
REFUSALS: tuple[Refusal, ...] = (GATED, WINDOWED, *UNKNOWN_AXES)
WRAPPED = "attention."
TIME_AXIS = (1,)

IDENTITY, ZEROS = Piece(made="identity"), Piece(made="zeros")
MADE_RANK = {"identity": 2, "zeros": 1}

QUERY_INSIDE, QUERY_OUTSIDE = (QUERY, QUERY_BIAS), (IDENTITY, ZEROS)
QUERY_PROJECTION = (Rule("query_projection.weight", (QUERY,)), Rule("query_projection.bias", (QUERY_BIAS,)))
OUTPUT_INSIDE = (Rule("out_proj.weight", (OUTPUT,)), Rule("out_proj.bias", (OUTPUT_BIAS_PIECE,)))
OUTPUT_OUTSIDE = (Rule("out_proj.weight", (IDENTITY,)), Rule("out_proj.bias", (ZEROS,)))
OUTPUT_PROJECTION = (
    Rule("output_projection.weight", (OUTPUT,)),
    Rule("output_projection.bias", (OUTPUT_BIAS_PIECE,)),
)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a layer's projections go: inside ``nn.MultiheadAttention``, or into an ``nn.Linear`` around it."""

    head_size: int
    embed_dim: int
    query_outside: bool
    output_outside: bool
    packed: bool
    attention_axes: tuple[int, ...] | None = None

    @property
    def wrapped(self) -> bool:
        """Whether anything is around the stock module."""
        return self.query_outside or self.output_outside or self.attention_axes is not None


def other_axes(layer: AttentionLayer) -> tuple[int, ...] | None:
    """The axes that the layer attends over; None for the one time axis of inputs of rank 3."""
    return None if (layer.attended_axes, layer.rank) == (TIME_AXIS, 3) else layer.attended_axes


def width_of_heads(layer: AttentionLayer) -> int | None:
    """The size of a head that makes ``embed_dim`` the query's width; None where Keras' heads do not fit into it."""
    features, heads = layer.query_features, layer.num_heads
    size = features // heads
    return size if features % heads == 0 and size >= max(layer.key_dim, layer.value_dim) else None


def misfit(layer: AttentionLayer) -> str | None:
    """Why heads cannot be padded to the query's width; None where they can."""
    axes = other_axes(layer)
    if axes is not None:
        return f"padded does not fit: it attends over axes {axes}"
    if width_of_heads(layer) is None:
        needed = max(layer.key_dim, layer.value_dim)
        return f"padded does not fit: width {layer.query_features} is not {layer.num_heads} heads of {needed} or more"
    return None


def place(layer: AttentionLayer, head_size: int | None = None) -> Placement:
    """The sizes and places; of heads of the size that they need, for None."""
    head_size = head_size or max(layer.key_dim, layer.value_dim)
    embed_dim = layer.num_heads * head_size
    return Placement(
        head_size=head_size,
        embed_dim=embed_dim,
        query_outside=layer.query_features != embed_dim,
        output_outside=layer.output_shape != (embed_dim,),
        packed=layer.key_features == layer.value_features == embed_dim,
        attention_axes=other_axes(layer),
    )


def lay_out(layer: AttentionLayer, prefix: str) -> LayerPlan:
    """The layer's rules and module."""
    return laid_out(layer, prefix, place(layer))


def laid_out(
    layer: AttentionLayer, prefix: str, placed: Placement, *, layout: str = NAME, misfit: str | None = None
) -> LayerPlan:
    """The rules and module of a placement."""
    return LayerPlan(
        layer=layer,
        prefix=prefix,
        layout=layout,
        rules=tuple(filled(rule, layer, placed) for rule in rules(layer, placed)),
        module=module(layer, placed),
        misfit=misfit,
    )


def rules(layer: AttentionLayer, placed: Placement) -> tuple[Rule, ...]:
    """The rows that this placement has, in the order of PyTorch's own ``state_dict``."""
    query, query_bias = QUERY_OUTSIDE if placed.query_outside else QUERY_INSIDE
    separate = (Rule("q_proj_weight", (query,)), Rule("k_proj_weight", (KEY,)), Rule("v_proj_weight", (VALUE,)))
    packed = (Rule("in_proj_weight", (query, KEY, VALUE)),)
    inside = (
        *(packed if placed.packed else separate),
        Rule("in_proj_bias", (query_bias, KEY_BIAS, VALUE_BIAS)),
        *(OUTPUT_OUTSIDE if placed.output_outside else OUTPUT_INSIDE),
    )
    rows = (
        *(QUERY_PROJECTION if placed.query_outside else ()),
        *(Rule(WRAPPED + rule.target, rule.pieces) if placed.wrapped else rule for rule in inside),
        *(OUTPUT_PROJECTION if placed.output_outside else ()),
    )
    return tuple(rule for rule in rows if layer.use_bias or not rule.target.endswith("bias"))


def filled(rule: Rule, layer: AttentionLayer, placed: Placement) -> Rule:
    """The row with this layer's sizes and factor."""
    return replace(rule, pieces=tuple(filled_piece(piece, layer, placed) for piece in rule.pieces))


def filled_piece(piece: Piece, layer: AttentionLayer, placed: Placement) -> Piece:
    """Heads of the placement's size; the query with Keras' scale; heads that are shared once for each query head."""
    if piece.made:
        return replace(piece, shape=(placed.embed_dim,) * MADE_RANK[piece.made])
    role = str(piece.source).partition(".")[0]
    sizes = {"head_dim": placed.head_size}
    if role == "query":
        return replace(piece, sizes=sizes, factor=layer.query_factor(placed.head_size))
    groups = layer.num_heads // layer.num_key_value_heads
    if role in SHARED and groups > 1:
        return replace(piece, sizes=sizes | {"groups": groups}, pattern=REPEATED[piece.pattern])
    return replace(piece, sizes=sizes) if "head_dim" in piece.pattern else piece


def module(layer: AttentionLayer, placed: Placement) -> ModuleSpec:
    """The stock class where nothing is around it, else ours that holds it."""
    sizes: dict[str, Any] = {"embed_dim": placed.embed_dim, "num_heads": layer.num_heads}
    widths = {} if placed.packed else {"kdim": layer.key_features, "vdim": layer.value_features}
    options: dict[str, Any] = {"dropout": layer.dropout or 0.0, "bias": layer.use_bias}
    if not placed.wrapped:
        return ModuleSpec(class_name="MultiheadAttention", arguments=sizes | widths | options | {"batch_first": True})
    outside: dict[str, Any] = {"query_features": layer.query_features, "output_shape": list(layer.output_shape)}
    if placed.attention_axes is not None:
        options["attention_axes"] = list(placed.attention_axes)
    return ModuleSpec(class_name="ProjectedMultiheadAttention", arguments=sizes | outside | widths | options)
