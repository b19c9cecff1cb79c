"""``--like``: which of a source's layers belongs to which attention in a PyTorch model of the user's own.

Attention in a ``state_dict`` is recognised by names, layers are matched by shapes, and among layers of equal shapes by
their order. Where that decides nothing, nothing is matched.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import layouts
from ..conversion import convert
from ..errors import LayoutError, printable
from ..options import Layout
from ..records.layer import AttentionLayer, Layer
from ..records.plan import Alignment, ModelAttention, Pair

Shapes = Mapping[str, tuple[int, ...]]
STOCK: Layout = "padded"  # the layout of a stock module: where nothing needs padding, it is the same as "mha"


@dataclass(frozen=True, slots=True)
class Form:
    """Names by which attention is recognised: the model's, by those of the layout that fills it."""

    layout: Layout
    names: Mapping[str, str]

    @property
    def weights(self) -> list[str]:
        """The model's names that must all be there."""
        return [name for name in self.names.values() if name.endswith("weight")]


def linears(layout: Layout, **places: str) -> Form:
    """A form of ``nn.Linear``s, by their names in the layout."""
    return Form(layout, {f"{own}.{kind}": f"{name}.{kind}" for own, name in places.items() for kind in KINDS})


def four(query: str, key: str, value: str, output: str) -> Form:
    """A form of four ``nn.Linear``."""
    return linears("linear", q_proj=query, k_proj=key, v_proj=value, out_proj=output)


def stock(*names: str) -> Form:
    """``nn.MultiheadAttention``, whose names are the layout's own."""
    return Form(STOCK, {name: name for name in (*names, "in_proj_bias", "out_proj.weight", "out_proj.bias")})


KINDS = ("weight", "bias")
FORMS = (
    stock("in_proj_weight"),
    stock("q_proj_weight", "k_proj_weight", "v_proj_weight"),
    linears("qkv", qkv="qkv", proj="proj"),
    linears("qkv", qkv="to_qkv", proj="to_out.0"),
    four("q_proj", "k_proj", "v_proj", "out_proj"),
    four("q_proj", "k_proj", "v_proj", "o_proj"),
    four("self.query", "self.key", "self.value", "output.dense"),
    four("attention.query", "attention.key", "attention.value", "output.dense"),
    four("q_lin", "k_lin", "v_lin", "out_lin"),
    four("to_q", "to_k", "to_v", "to_out.0"),
    four("to_q", "to_k", "to_v", "to_out"),
    four("wq", "wk", "wv", "wo"),
    four("query", "key", "value", "out"),
)  # T5's q, k, v, o are left out on purpose: no shape shows that its scores are not divided


def align(layers: Sequence[Layer], shapes: Shapes, *, in_order: bool = True) -> Alignment:
    """Match layers with the attention in a ``state_dict``.

    Args:
        layers: of the source.
        shapes: of the model's tensors, by their keys.
        in_order: whether the layers with a configuration are in the model's order; of others, numbers in their names
            tell it, if anything does.

    Returns:
        the pairs, and what stays on either side with the reason.

    Raises:
        LayoutError: the pairs need two layouts.
    """
    found = recognise(shapes)
    projected: list[Any] = [layer for layer in layers if layouts.takes_layouts(layer.kind)]
    projected = projected if in_order else sorted(projected, key=lambda layer: natural(layer.name))
    # The places that each layer fits, by shapes alone.
    plain = [place for place in found if altering(place) is None]
    fitting = {layer.name: [place for place in plain if fits(layer, place, shapes)] for layer in projected}
    left = [
        (layer.name, f"its class is {layer.kind}, and only attention with projections is matched")
        for layer in layers
        if not layouts.takes_layouts(layer.kind)
    ]
    pairs: list[Pair] = []
    # A layer is paired where it and all layers like it fit the same places, and order assigns them; else the reason.
    for layer in projected:
        mine = fitting[layer.name]
        alike = [other for other in projected if set_of(fitting[other.name]) & set_of(mine)]
        candidates = Candidates(layer, mine, alike, [fitting[other.name] for other in alike])
        nowhere = not mine and not has_hidden_rules(layer)
        why = no_place(layer, found, shapes) if nowhere else ambiguity(candidates, in_order)
        if why is None:
            pairs.append(Pair(layer=layer, place=mine[alike.index(layer)], alike=len(alike)))
        else:
            left.append((layer.name, why))
    refuse_two_layouts(pairs)
    taken = set_of(pair.place for pair in pairs)
    return Alignment(
        pairs=tuple(pairs),
        left_layers=tuple(left),
        left_places=tuple(place for place in found if not set_of([place]) & taken),
    )


@dataclass(frozen=True, slots=True)
class Candidates:
    """A layer, the ``places`` that it fits, all layers ``alike`` that fit one of these (itself, too), and their own."""

    layer: AttentionLayer
    places: list[ModelAttention]
    alike: list[AttentionLayer]
    theirs: list[list[ModelAttention]]


def ambiguity(candidates: Candidates, in_order: bool) -> str | None:
    """Why neither shapes nor order show which place is the layer's; None where they do."""
    places, alike = candidates.places, candidates.alike
    if has_hidden_rules(candidates.layer):
        return "it has a window or other attention axes, which no shape in a model shows"
    if any(set_of(others) != set_of(places) for others in candidates.theirs):
        return "the model has attention of several forms that it fits, and shapes do not show which"
    if len(alike) != len(places):
        listed = ", ".join(place.prefix or "the model itself" for place in places[:4])
        return f"{len(alike)} layers of its shapes for {len(places)} in the model ({listed})"
    if len({unnumbered(place.prefix) for place in places}) > 1:
        return f"its {len(places)} places in the model differ in words, so order shows nothing"
    is_ordered = in_order and all(other.has_config for other in alike)  # inside custom layers it is the alphabet's
    if not is_ordered and len({unnumbered(other.name) for other in alike}) > 1:
        return f"this file does not show the order of the {len(alike)} layers of its shapes"
    return None


def refuse_two_layouts(pairs: Iterable[Pair]) -> None:
    """A target has one layout.

    Raises:
        LayoutError: the pairs need two.
    """
    used = {pair.place.layout for pair in pairs}
    if len(used) > 1:
        raise LayoutError(
            f"The model's attention has the forms of {len(used)} layouts, {' and '.join(sorted(used))}; a target has "
            "one. Convert in parts, with --layer."
        )


def set_of(places: Iterable[ModelAttention]) -> set[tuple[str, ...]]:
    """Places by their keys, which no two share."""
    return {tuple(place.keys.values()) for place in places}


def recognise(shapes: Shapes) -> list[ModelAttention]:
    """Every attention in a ``state_dict``, by its names, in natural order (2 before 10)."""
    found = [
        ModelAttention(
            prefix=prefix,
            layout=form.layout,
            keys=(keys := {own: prefix + name for own, name in form.names.items() if prefix + name in shapes}),
            others=tuple(
                key
                for key in shapes
                if key not in keys.values() and key.startswith(prefix) and (prefix or changes_result(key))
            ),
        )
        for form in FORMS
        for prefix in prefixes(shapes, form.weights[0])
        if all(prefix + name in shapes for name in form.weights)
    ]
    return sorted(found, key=lambda place: natural(place.prefix))


# First names of tensors inside attention that make its result another than Keras'.
ALTERING = (
    "bias_k",
    "bias_v",
    "q_norm",
    "k_norm",
    "query_norm",
    "key_norm",
    "q_layernorm",
    "k_layernorm",
    "rotary_emb",
    "relative_attention_bias",
    "relative_position_bias_table",
)


def changes_result(name: str) -> bool:
    """Whether a tensor of this name inside attention changes what it computes."""
    return name.split(".")[0] in ALTERING


def altering(place: ModelAttention) -> str | None:
    """The first tensor inside attention that makes its result another than Keras'; None for none."""
    return next((key for key in place.others if changes_result(key.removeprefix(place.prefix))), None)


def no_place(layer: AttentionLayer, found: Sequence[ModelAttention], shapes: Shapes) -> str:
    """Why the model has no place for the layer."""
    others = [key for place in found if fits(layer, place, shapes) and (key := altering(place))]
    if not others:
        return "no attention in the model has its shapes"
    return f"the model's attention of its shapes also has {others[0]}, which changes what it computes"


def prefixes(shapes: Shapes, name: str) -> list[str]:
    """What is before ``name`` in the keys that end in it."""
    return [key.removesuffix(name) for key in shapes if key == name or key.endswith(f".{name}")]


def natural(text: str) -> list[tuple[int, str]]:
    """Sorts numbers by their value."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


def unnumbered(text: str) -> str:
    """The text without its numbers: among names that are then equal, natural order is depth."""
    return re.sub(r"_?\d+", "", text)


def fits(layer: AttentionLayer, place: ModelAttention, shapes: Shapes) -> bool:
    """Whether the layer gives exactly the tensors that are there, in their shapes."""
    if has_hidden_rules(layer) or layouts.refusals(layer, place.layout):
        return False
    try:
        plan = layouts.plan([layer], layout=place.layout, prefix="")
    except LayoutError:  # an identity that would fill the memory is no stock module
        return False
    return {tensor.key: tensor.shape for tensor in convert(plan)} == {
        own: tuple(shapes[key]) for own, key in place.keys.items()
    }


def has_hidden_rules(layer: AttentionLayer) -> bool:
    """Whether the layer attends by something that is in no tensor, and that a model of its shapes may not do."""
    return layer.sliding_window is not None or (layer.attended_axes, layer.rank) != ((1,), 3)


def renames_of(alignment: Alignment) -> dict[str, str]:
    """The pairs as patterns for whole keys, for ``rename``.

    Raises:
        LayoutError: a key that no pattern can hold as it stands.
    """
    names: dict[str, str] = {}
    for pair in alignment.pairs:
        prefix = layouts.key_prefix(pair.layer.name, None)
        for own, key in pair.place.keys.items():
            names[prefix + own] = key
    texts = [text for pair in names.items() for text in pair]
    odd = next((text for text in texts if set("*{}") & set(text) or not text.isprintable()), None)
    if odd is not None:
        raise LayoutError(
            f"Key '{odd}' has a star, a brace or a control character, which rules cannot hold. "
            "Convert this layer with --prefix."
        )
    return names


def as_toml(renames: Mapping[str, str], heading: Sequence[str]) -> str:
    """The table ``[rename]``, with lines of comment before it; a printable string of JSON is one of TOML."""
    comments = [f"# {printable(line)}" for line in heading]
    return "\n".join(
        [
            *comments,
            "",
            "[rename]",
            *(
                f"{json.dumps(old, ensure_ascii=False)} = {json.dumps(new, ensure_ascii=False)}"
                for old, new in renames.items()
            ),
            "",
        ]
    )
