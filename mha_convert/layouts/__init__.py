"""Which PyTorch tensors hold this layer? A layout is one module: its rules are rows of data.

A layer without projections has the same few tensors in every layout (``unprojected``).

A layout module has ``NAME``, ``REFUSALS`` (what it cannot hold) and ``lay_out(layer, placement, prefix)``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from ..errors import LayoutError, printable
from ..files.shell import option
from ..records.layer import AttentionLayer, Layer
from ..records.plan import LayerPlan, Plan
from . import attention as unprojected
from . import layer_normalization, linear, mha, qkv
from . import names as separate
from .patterns import BIAS, OUTPUT_BIAS, OUTPUT_WEIGHT, WEIGHT
from .refusals import Refusal

__all__ = [
    "BIAS",
    "DTYPES",
    "LAYOUTS",
    "NAMES",
    "OF_KIND",
    "OUTPUT_BIAS",
    "OUTPUT_WEIGHT",
    "PLACEMENTS",
    "WEIGHT",
    "Layout",
    "key_prefix",
    "plan",
    "refusals",
    "selection",
]


class Layout(Protocol):
    """What a layout module offers."""

    NAME: str
    REFUSALS: tuple[Refusal, ...]

    def lay_out(self, layer: AttentionLayer, placement: str, prefix: str) -> LayerPlan:
        """Where the layer's numbers go."""


LAYOUTS: tuple[Layout, ...] = (mha, linear, qkv, separate)
LayOut = Callable[[Any, str], LayerPlan]
# How each kind is laid out; None is as the layout that was asked for has it, all others have one form.
OF_KIND: Mapping[str, LayOut | None] = {
    "MultiHeadAttention": None,
    "GroupQueryAttention": None,
    "Attention": unprojected.lay_out,
    "AdditiveAttention": unprojected.lay_out,
    "LayerNormalization": layer_normalization.lay_out,
}
NAMES = separate.WORDS
DTYPES = ("float32", "float16", "bfloat16", "float64")
PLACEMENTS = mha.PLACEMENTS
NAME_FIELD = "{name}"
MOST_ADDED = 1 << 30  # 4 GB in float32


def takes_layouts(kind: str) -> bool:
    """Whether a kind's layers are laid out as the user chooses."""
    return OF_KIND[kind] is None


def plan(
    layers: Sequence[Layer],
    *,
    layout: str = "mha",
    placement: str = "projected",
    names: str | None = None,
    prefix: str | None = None,
    dtype: str | None = None,
) -> Plan:
    """Decide where every number goes; nothing is read.

    Args:
        layers: from ``find_layers``.
        layout: ``"mha"``, ``"linear"``, ``"qkv"`` or ``"separate"``.
        placement: ``"projected"`` or ``"drop-in"``; only layout ``mha`` has the choice.
        names: whose names layout ``separate`` takes: ``"bart"`` (None), ``"llama"``, ``"bert"``, ``"vit"``,
            ``"distilbert"`` or ``"t5"``; no other layout has the choice.
        prefix: what stands before a layer's keys; ``{name}`` is the layer's name. None is ``"{name}"``, ``""`` gives
            the bare keys of one module.
        dtype: of the target; None keeps each layer's own.

    Raises:
        LayoutError: no such layout, placement, names or dtype; a layer that does not fit; two layers that claim one
            key.
    """
    lay_out = choose(layout).lay_out
    check_word("placement", placement, PLACEMENTS)
    if layout == separate.NAME:
        names = separate.DEFAULT if names is None else names
        check_word("names", names, NAMES)
        separate.refuse_unsaid_scale(layers, names)
        lay_out = partial(separate.lay_out, names=names)
    elif names is not None:
        raise LayoutError(
            f"Names '{printable(names)}': layout '{layout}' has its own, only 'separate' has a choice. "
            "Give --layout separate, or leave --names out."
        )
    if dtype is not None:
        check_word("dtype", dtype, DTYPES)
    refuse([(layer, refusals(layer, layout)) for layer in layers], layout)
    asked = partial(in_layout, lay_out, placement)
    plans = tuple((OF_KIND[layer.kind] or asked)(layer, key_prefix(layer.name, prefix)) for layer in layers)
    check_unique(plans)
    check_price(plans)
    return Plan(layout=layout, placement=placement, names=names, dtype=dtype, layers=plans)


def in_layout(lay_out: Callable[..., LayerPlan], placement: str, layer: Layer, prefix: str) -> LayerPlan:
    """A layer that has a form in every layout."""
    return lay_out(layer, placement, prefix)


def choose(layout: str) -> Layout:
    """The module of a layout."""
    check_word("layout", layout, tuple(module.NAME for module in LAYOUTS))
    return next(module for module in LAYOUTS if layout == module.NAME)


def check_word(subject: str, word: str, words: Sequence[str]) -> None:
    """Refuse a word that is not among ``words``."""
    if word not in words:
        raise LayoutError(f"No {subject} '{printable(word)}'. Choose one of: {', '.join(words)}.")


def refusals(layer: Layer, layout: str) -> tuple[Refusal, ...]:
    """Every reason why ``layout`` cannot hold ``layer``, each with the way on."""
    if OF_KIND[layer.kind]:
        return ()
    return tuple(refusal for refusal in choose(layout).REFUSALS if refusal.applies(layer))


def refuse(found: list[tuple[Layer, tuple[Refusal, ...]]], layout: str) -> None:
    """One error for all layers that do not fit, with all reasons, and the command that converts the rest."""
    facts = [f"layer '{printable(layer.name)}' {reason.text(layer)}" for layer, reasons in found for reason in reasons]
    if not facts:
        return
    steps = list(dict.fromkeys(reason.next_step for _, reasons in found for reason in reasons))
    fitting = [layer.name for layer, reasons in found if not reasons]
    if fitting:
        steps.append(f"To convert the rest, give {selection(fitting)}")
    nowhere = all(refusals(layer, module.NAME) for layer, reasons in found if reasons for module in LAYOUTS)
    subject = "No layout holds" if nowhere else f"Layout '{layout}' cannot hold"
    raise LayoutError(f"{subject} this: {'; '.join(facts)}. {'. '.join(steps)}.")


def selection(names: Sequence[str], most: int = 4) -> str:
    """The ``--layer`` options that name some layers, shortened where they are more than ``most``."""
    shown = [option("--layer", name) for name in names[:most]]
    return " ".join(shown) + (f" (and {len(names) - most} more)" if len(names) > most else "")


def key_prefix(name: str, prefix: str | None) -> str:
    """What stands before the keys of a layer: ``""`` or text that ends with a dot."""
    template = NAME_FIELD if prefix is None else prefix
    if set("{}") & set(template.replace(NAME_FIELD, "")):
        raise LayoutError(
            f"Prefix '{printable(template)}': has braces other than {NAME_FIELD}. Give {NAME_FIELD} for the name."
        )
    text = template.replace(NAME_FIELD, name.replace("/", "."))
    if not text:
        return text
    path = text.removesuffix(".")
    if not all(path.split(".")) or not path.isprintable() or path != path.encode("utf-8", "replace").decode():
        raise LayoutError(
            f"Layer '{printable(name)}': its keys would begin with '{printable(text)}', which no module of PyTorch can "
            "be called. Convert it with --layer and another --prefix."
        )
    return f"{path}."


def check_unique(plans: Sequence[LayerPlan]) -> None:
    """Two layers must not write one key."""
    owners: dict[str, str] = {}
    for item in plans:
        for rule in item.rules:
            key, name = item.key(rule.target), item.layer.name
            if key in owners:
                raise LayoutError(
                    f"Layers '{printable(owners[key])}' and '{printable(name)}': both would write '{printable(key)}'. "
                    f"Convert one of them with --layer, or give a --prefix with {NAME_FIELD} in it."
                )
            owners[key] = name


def check_price(plans: Sequence[LayerPlan]) -> None:
    """Refuse an identity that would fill the memory and means nothing."""
    for item in plans:
        added = sum(math.prod(p.shape) for rule in item.rules for p in rule.pieces if p.made == "identity")
        if added > MOST_ADDED:
            raise LayoutError(
                f"Layer '{printable(item.layer.name)}': nn.MultiheadAttention would need identities of {added:,} "
                f"numbers for {item.layer.parameters:,} parameters. Give --layout linear, which adds none."
            )
