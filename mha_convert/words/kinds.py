"""What is said of each kind of layer: one row for each in ``OF_KIND``."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..records.layer import Layer
from ..records.plan import LayerPlan
from . import attention as unprojected
from . import multi_head_attention, plain
from .table import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What one kind says of itself.

    Args:
        section: the list of ``inspect --json`` that its layers are in; kinds of one section share a table.
        table: the layers of a section, for people.
        as_json: one layer, as plain data.
        added: how many numbers the default layout adds to a layer; None where it refuses the layer.
        module_call: the module as one would make it.
        explained: the lines of ``explain`` for a plan, and for the source as a command names it.
    """

    section: str
    table: Callable[[Sequence[Any]], Document]
    as_json: Callable[[Any], dict[str, Any]]
    added: Callable[[Any], int | None]
    module_call: Callable[[LayerPlan], str]
    explained: Callable[[LayerPlan, str], Iterator[str]]


def nothing(layer: Layer) -> int:
    """Of a kind that has one form, which holds the layer's own numbers."""
    return 0


PROJECTED = Words(
    section="layers",
    table=multi_head_attention.section,
    as_json=multi_head_attention.layer_as_json,
    added=multi_head_attention.added,
    module_call=multi_head_attention.module_call,
    explained=multi_head_attention.explained,
)
UNPROJECTED = Words(
    section="unprojected",
    table=unprojected.section,
    as_json=unprojected.layer_as_json,
    added=nothing,
    module_call=unprojected.module_call,
    explained=unprojected.explained,
)


def other(formula: plain.Formula) -> Words:
    """Of a layer other than attention, which is its class, its settings and its arrays."""
    return Words(
        section="other_layers",
        table=plain.section,
        as_json=plain.layer_as_json,
        added=nothing,
        module_call=plain.module_call,
        explained=formula.explained,
    )


OF_KIND: Mapping[str, Words] = {
    "MultiHeadAttention": PROJECTED,
    "GroupQueryAttention": PROJECTED,
    "Attention": UNPROJECTED,
    "AdditiveAttention": UNPROJECTED,
    "LayerNormalization": other(plain.LAYER_NORMALIZATION),
}
SECTIONS = tuple(dict.fromkeys(words.section for words in OF_KIND.values()))


def by_section(layers: Iterable[Layer]) -> dict[str, list[Layer]]:
    """The layers of each section, in the order of ``SECTIONS``; empty where there are none."""
    found: dict[str, list[Layer]] = {section: [] for section in SECTIONS}
    for layer in layers:
        found[OF_KIND[layer.kind].section].append(layer)
    return found
