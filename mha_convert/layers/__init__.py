"""What in a checkpoint is attention? A layer type is one module with ``match(group, ancestors)``.

``match`` returns an ``AttentionLayer``, an ``UnprojectedAttention``, a ``NotConverted`` (attention of a kind named
and not converted), or None. Types are asked in order; the first answer counts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Protocol

from ..classes import stores_nothing
from ..errors import listed
from ..records.layer import AnyAttention, AttentionLayer, AttentionRow, Findings, NotConverted, PlainLayer
from ..records.source import Checkpoint, Group
from . import attention, companions, described, described_kernels, layer_normalization, multi_head_attention, suspects
from .calls import hidden_masks


class LayerType(Protocol):
    """What a layer type module offers."""

    def match(self, group: Group, ancestors: tuple[Group, ...]) -> AnyAttention | NotConverted | None:
        """The layer in ``group``, if it is of this type."""


LAYER_TYPES: tuple[LayerType, ...] = (multi_head_attention, suspects, attention, described)
COMPANIONS: tuple[companions.Companion, ...] = (layer_normalization.ROW,)
KINDS = ("MultiHeadAttention", "GroupQueryAttention", *attention.KINDS, *(row.kind for row in COMPANIONS))

MOST_NAMED = 4  # layers of one fact


def find_layers(checkpoint: Checkpoint, rows: Sequence[AttentionRow] = ()) -> tuple[AnyAttention, ...]:
    """Every attention layer, in the model's order where the file knows it.

    Those with four projections are found by structure; ``keras.layers.Attention`` and ``AdditiveAttention``, where they
    have weights, by configuration (``UnprojectedAttention``).

    Names are unique: where two layers have one name, both are called by their place in the file.

    Arrays are read in two cases only: of layers that legacy HDF5 may hold twice, to compare them, and of quantized
    kernels of which neither names, shapes nor the configuration show how they are stored.

    Args:
        checkpoint: from ``read``.
        rows: hand-written attention, from ``read_attention``.

    Raises:
        LayerError: the arrays of a layer contradict its configuration, or a row does not fit the file.
    """
    return survey(checkpoint, rows).layers


def survey(checkpoint: Checkpoint, rows: Sequence[AttentionRow] = ()) -> Findings:
    """``find_layers``, and what was passed over: each ``NotConverted`` with its reason.

    Raises:
        LayerError: the arrays of a layer contradict its configuration, or a row does not fit the file.
    """
    root = with_empty_layers(checkpoint) if checkpoint.omits_empty_layers else checkpoint.root
    told = described_kernels.find(root, rows)
    found = visit(root, (), told)
    layers = [item for item in found if isinstance(item, AnyAttention)]
    taken = {variable.path for layer in layers for variable in layer.stored_variables}
    finished, named = dict[int, AttentionLayer](), set[str]()
    for group in root.walk() if told else ():
        for layer in told.get(id(group), []):
            finished[id(layer)], left = described_kernels.with_leftovers(layer, group, taken)
            named |= left
    layers = [finished.get(id(layer), layer) for layer in layers]
    layers = merged(layers) if checkpoint.repeats_shared_layers else layers
    not_converted = tuple(item for item in found if isinstance(item, NotConverted) and not is_told(item, taken, named))
    others = list(companions.find(root, COMPANIONS))
    return Findings(
        with_unique_names(layers),
        not_converted,
        with_unique_names([item for item in others if isinstance(item, PlainLayer)]),
        tuple(item for item in others if isinstance(item, NotConverted)),
        notes=tuple(hidden_masks(checkpoint)),
    )


def with_empty_layers(checkpoint: Checkpoint) -> Group:
    """The tree with a group for each layer that stores nothing by its settings, and that the file leaves out."""
    known = {group.name for group in checkpoint.root.walk()}
    missing = {
        f"{name} (no weights)": Group(path=name, name=name, config=config)
        for path, config in checkpoint.listed
        if stores_nothing(config) and (name := "/".join(path)) not in known
    }
    return replace(checkpoint.root, children={**checkpoint.root.children, **missing})


def is_told(item: NotConverted, taken: Set[str], named: Set[str]) -> bool:
    """Whether some kernels of it are converted, and a caution of their layer names the others."""
    kernels = {variable.path for variable in item.variables if len(variable.shape) > 1}
    return bool(kernels & taken) and kernels <= taken | named


def told_once(facts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Layers' names and facts, as subject and fact: one that several layers share is told once for all of them."""
    names: dict[str, list[str]] = {}
    for name, fact in facts:
        names.setdefault(fact, []).append(name)
    return [
        (f"layer {listed(own, 1)}" if len(own) == 1 else f"each of {len(own)} layers ({listed(own, MOST_NAMED)})", fact)
        for fact, own in names.items()
    ]


def visit(
    group: Group, ancestors: tuple[Group, ...], told: Mapping[int, list[AttentionLayer]]
) -> list[AnyAttention | NotConverted]:
    """Findings at and below ``group``, in order; what is no attention layer itself may hold one."""
    own = told.get(id(group), [])
    matches = (layer_type.match(group, ancestors) for layer_type in LAYER_TYPES)
    found: AnyAttention | NotConverted | None = next(
        (match for match in matches if match is not None and not own), None
    )
    below = [item for child in group.children.values() for item in visit(child, (*ancestors, group), told)]
    if own:
        return [*own, *below]
    if found:  # a layer may be in one, or in a group of which the names made one
        return [found, *(item for item in below if isinstance(item, AnyAttention) or item.blocking)]
    other = None if below else described.match_by_name(group)
    return [other] if other else below


def merged(layers: list[AnyAttention]) -> list[AnyAttention]:
    """One of each: legacy HDF5 stores a layer twice that a model shares with a model inside it."""
    kept: list[AnyAttention] = []
    for layer in layers:
        if not any(is_same_layer(layer, other) for other in kept):
            kept.append(layer)
    return kept


def is_same_layer(layer: AnyAttention, other: AnyAttention) -> bool:
    """One name, in a model and in a model inside it, one configuration, and the same bytes."""
    (owner, name), (its_owner, its_name) = (split(item.name) for item in (layer, other))
    shorter, longer = sorted((owner, its_owner), key=len)
    if not layer.has_config or name != its_name or shorter == longer or longer[: len(shorter)] != shorter:
        return False
    if (layer.kind, axes(layer), layer.sizes, layer.dropout) != (other.kind, axes(other), other.sizes, other.dropout):
        return False
    pairs = list(zip(layer.variables, other.variables, strict=False))
    same_form = len(layer.variables) == len(other.variables) and all(
        (a.shape, a.dtype) == (b.shape, b.dtype) for a, b in pairs
    )
    return same_form and all(a.read().tobytes() == b.read().tobytes() for a, b in pairs)


def axes(layer: AnyAttention) -> tuple[int, ...] | None:
    """Configured axes, which only layers with projections have."""
    return layer.attention_axes if isinstance(layer, AttentionLayer) else None


def split(name: str) -> tuple[list[str], str]:
    """The models around a layer, and its own name."""
    *owner, last = name.split("/")
    return owner, last


def with_unique_names(layers: Sequence[Any]) -> tuple[Any, ...]:
    """Layers of one name get their place in the file for a name, and say so."""
    uses = Counter(item.name for item in layers)
    return tuple(
        replace(
            item,
            name=item.path,
            cautions=(
                *item.cautions,
                f"{uses[item.name]} layers are called '{item.name}'; this one is identified by its place in the file",
            ),
        )
        if uses[item.name] > 1
        else item
        for item in layers
    )
