"""Which PyTorch tensors hold this layer? A layout is one module, or one row of ``names``: its rules are rows of data.

A kind of layer that has one form, such as attention without projections, has the same tensors in every layout.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..errors import LayoutError
from ..files.shell import layer_options
from ..options import OPTIONS, Dtype, check_word, dtype_name
from ..options import Layout as LayoutName
from ..records.layer import AttentionLayer, Layer
from ..records.plan import LayerPlan, Plan
from . import attention, encoder, layer_normalization, linear, mha, names, padded, qkv
from .patterns import BIAS, OUTPUT_BIAS, OUTPUT_WEIGHT, WEIGHT
from .refusals import Refusal

__all__ = [
    "BIAS",
    "DTYPES",
    "FAMILIES",
    "LAYOUTS",
    "OF_KIND",
    "OUTPUT_BIAS",
    "OUTPUT_WEIGHT",
    "WEIGHT",
    "Layout",
    "key_prefix",
    "plan",
    "refusals",
]


class Layout(Protocol):
    """What a layout offers."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of a module
        """The word of ``--layout``."""

    @property
    def REFUSALS(self) -> tuple[Refusal, ...]:  # noqa: N802
        """Properties of layers that it cannot hold."""

    def lay_out(self, layer: AttentionLayer, prefix: str) -> LayerPlan:
        """Where the layer's numbers go."""


LAYOUTS: tuple[Layout, ...] = (mha, padded, linear, qkv, encoder, *names.FAMILIES)
FAMILIES = tuple(family.NAME for family in names.FAMILIES)
LayOut = Callable[[Any, str], LayerPlan]
# How each kind is laid out; None is as the layout that was asked for has it, all others have one form.
OF_KIND: Mapping[str, LayOut | None] = {
    "MultiHeadAttention": None,
    "GroupQueryAttention": None,
    "Attention": attention.lay_out,
    "AdditiveAttention": attention.lay_out,
    "LayerNormalization": layer_normalization.lay_out,
}
DTYPES = OPTIONS["dtype"].words
NAME_FIELD = "{name}"
MOST_ADDED = 1 << 30  # 4 GB in float32


def takes_layouts(kind: str) -> bool:
    """Whether a kind's layers are laid out as the user chooses."""
    return OF_KIND[kind] is None


def plan(
    layers: Sequence[Layer],
    *,
    layout: LayoutName = "mha",
    prefix: str | None = None,
    dtype: Dtype | Any = None,
) -> Plan:
    """Decide where every number goes; nothing is read.

    Args:
        layers: from ``find_layers``.
        layout: a word of ``--layout``, see ``docs/layouts.md``.
        prefix: what is before a layer's keys; ``{name}`` is the layer's name. None is ``"{name}"``, ``""`` gives
            the bare keys of one module.
        dtype: of the target: ``"float32"``, ``"float16"``, ``"bfloat16"``, ``"float64"``, or PyTorch's own; None keeps
            each layer's.

    Raises:
        LayoutError: no such layout or dtype; a layer that does not fit; two layers that claim one key.
    """
    lay_out, kept = choose(layout).lay_out, dtype_name(dtype)
    if kept is not None:
        check_word("dtype", kept, DTYPES)
    refuse([(layer, refusals(layer, layout)) for layer in layers], layout)
    forms: list[LayOut] = [OF_KIND[layer.kind] or lay_out for layer in layers]
    plans = tuple(form(layer, key_prefix(layer.name, prefix)) for form, layer in zip(forms, layers, strict=True))
    check_unique(plans)
    check_cost(plans)
    return Plan(layout=layout, dtype=kept, layers=plans)


def choose(layout: str) -> Layout:
    """The module of a layout."""
    check_word("layout", layout, tuple(module.NAME for module in LAYOUTS))
    return next(module for module in LAYOUTS if layout == module.NAME)


def refusals(layer: Layer, layout: str) -> tuple[Refusal, ...]:
    """Every reason why ``layout`` cannot hold ``layer``, each with the way on."""
    if OF_KIND[layer.kind]:
        return ()
    return tuple(refusal for refusal in choose(layout).REFUSALS if refusal.applies(layer))


def refuse(found: list[tuple[Layer, tuple[Refusal, ...]]], layout: str) -> None:
    """One error for all layers that do not fit, with all reasons, and the command that converts the rest."""
    facts = [f"layer '{layer.name}' {reason.text(layer)}" for layer, reasons in found for reason in reasons]
    if not facts:
        return
    steps = list(dict.fromkeys(reason.next_step for _, reasons in found for reason in reasons))
    fitting = [layer.name for layer, reasons in found if not reasons]
    if fitting:
        steps.append(f"To convert the rest, use {layer_options(fitting)}")
    nowhere = all(refusals(layer, module.NAME) for layer, reasons in found if reasons for module in LAYOUTS)
    subject = "No layout holds" if nowhere else f"Layout '{layout}' cannot hold"
    raise LayoutError(f"{subject} this: {'; '.join(facts)}. {'. '.join(steps)}.")


def key_prefix(name: str, prefix: str | None) -> str:
    """What is before the keys of a layer: ``""`` or text that ends with a dot."""
    template = NAME_FIELD if prefix is None else prefix
    if set("{}") & set(template.replace(NAME_FIELD, "")):
        raise LayoutError(f"Prefix '{template}' has braces other than {NAME_FIELD}. Use {NAME_FIELD} for the name.")
    text = template.replace(NAME_FIELD, name.replace("/", "."))
    if not text:
        return text
    path = text.removesuffix(".")
    if not all(path.split(".")) or not path.isprintable() or path != path.encode("utf-8", "replace").decode():
        raise LayoutError(
            f"Layer '{name}': its keys would begin with '{text}', which no module of PyTorch can "
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
                    f"Layers '{owners[key]}' and '{name}' would both write '{key}'. "
                    f"Convert one of them with --layer, or use a --prefix with {NAME_FIELD} in it."
                )
            owners[key] = name


def check_cost(plans: Sequence[LayerPlan]) -> None:
    """Refuse an identity that would fill the memory and means nothing."""
    for item in plans:
        added = sum(math.prod(p.shape) for rule in item.rules for p in rule.pieces if p.made == "identity")
        if added > MOST_ADDED:
            raise LayoutError(
                f"Layer '{item.layer.name}': nn.MultiheadAttention would need identities of {added:,} "
                f"numbers for {item.layer.parameters:,} parameters. Use --layout linear, which adds none."
            )
