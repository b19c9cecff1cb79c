"""What a file's configuration says of attention that a user describes, as rows of names that people give it.

A hand-written layer's ``get_config()`` may hold anything, and a name of it may mean something else than here. So a
number of heads that contradicts the user's is refused, a scale has to be given, and all else is said.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import shortened
from ..records.layer import AttentionRow
from ..records.source import Group
from .settings import is_count, is_number

HEADS = (
    "num_heads",
    "num_attention_heads",
    "num_query_heads",
    "attention_heads",
    "n_heads",
    "nheads",
    "heads",
    "head_num",
    "num_head",
    "n_head",
    "nhead",
)
HEAD_SIZES = ("head_dim", "head_size", "size_per_head", "dim_per_head", "attention_head_size")
SHARED_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_heads")
SCALES = ("attention_scale", "score_scale", "softmax_scale", "scale_factor", "scaling", "scale", "use_scale", "scaled")
LINEAR = (None, "linear")
OFF = (None, False)
ALIKE = 1e-3  # of a scale in a configuration, which may be rounded


@dataclass(frozen=True, slots=True)
class Synonyms:
    """Names of one thing, the values that change nothing, what becomes of others, and whether they change a result."""

    names: tuple[str, ...]
    usual: tuple[Any, ...]
    effect: str
    changes: bool = True


LEFT_OUT = "which the formula leaves out"
SYNONYMS = (
    Synonyms(("activation", "kernel_activation", "projection_activation"), LINEAR, LEFT_OUT),
    Synonyms(("attention_activation", "attn_activation", "score_activation"), (None, "softmax"), LEFT_OUT),
    Synonyms(("qk_norm", "use_qk_norm", "qk_layernorm", "normalize_qk"), OFF, LEFT_OUT),
    Synonyms(("rotary", "use_rotary", "rope", "use_rope", "alibi", "use_alibi", "p_bias"), OFF, LEFT_OUT),
    Synonyms(("position_bias", "use_position_bias", "relative_attention", "use_relative_position"), OFF, LEFT_OUT),
    Synonyms(("causal", "is_causal", "use_causal_mask", "history_only"), OFF, "so pass PyTorch that mask", False),
    Synonyms(
        ("attention_dropout", "attn_dropout", "dropout", "dropout_rate"),
        (None, 0, 0.0),
        "which the module does not get",
        False,
    ),
)


@dataclass(frozen=True, slots=True)
class Said:
    """One setting: its name and value, and whose configuration it is in."""

    name: str
    value: Any
    whose: str

    def __str__(self) -> str:
        """As messages quote it."""
        return f"{self.whose} says {self.name}={shortened(shown(self.value), 60)}"


@dataclass(frozen=True, slots=True)
class Place:
    """A layer's settings, and how messages call its configuration; ``is_own`` but for layers around the attention."""

    whose: str
    settings: Mapping[str, Any]
    is_own: bool = True


def places_of(group: Group, ancestors: Sequence[Group], inner: Mapping[str, Group]) -> list[Place]:
    """Configurations that may speak of the attention in ``group``, nearest first.

    Args:
        group: where it is.
        ancestors: what is around the group, outermost first.
        inner: layers between the group and the projections, by their names in it.
    """
    found = [Place(f"the configuration of its '{name}'", settings_of(item)) for name, item in inner.items()]
    found.append(Place("its configuration", settings_of(group)))
    around = [Place("the configuration of what is around it", settings_of(item), False) for item in reversed(ancestors)]
    return [place for place in (*found, *around) if place.settings]


def settings_of(group: Group) -> Mapping[str, Any]:
    """Keras' ``get_config()`` of the layer; of a model that lists its layers nothing is the attention's."""
    return group.config.settings if group.config and not group.config.is_model else {}


def heads_said(places: Iterable[Place], names: Sequence[str] = HEADS) -> Said | None:
    """The number of heads (or what else has these names) that the nearest configuration with one says."""
    for place in places:
        for name in names:
            if is_count(place.settings.get(name)):
                return Said(name, place.settings[name], place.whose)
    return None


def counts_of_heads(place: Place) -> set[int]:
    """Every number of heads in one configuration: a block may have several kinds of attention."""
    return {
        value
        for name, value in place.settings.items()
        if (name in HEADS or "heads" in name) and name not in SHARED_HEADS and is_count(value)
    }


def contradictions(row: AttentionRow, places: Sequence[Place], width: int) -> Iterator[str]:
    """Heads in the row that are not those of the configuration; ``width`` is that of the query kernel.

    What is around the attention may speak of another one: a number that does not divide the width says nothing.
    """
    fitting = [place for place in places if place.is_own or not any(map(width.__mod__, heads_in(place)))]
    said = heads_said(fitting)
    nearest = next((counts_of_heads(place) for place in fitting if heads_in(place)), set())
    if said and row.num_heads not in nearest:
        yield f"num_heads is {row.num_heads} in the row, and {said}"
    size = heads_said((place for place in places if place.is_own), HEAD_SIZES)
    if size and size.value not in (width // row.num_heads, width):  # the width: of all heads together
        yield f"num_heads={row.num_heads} makes heads of {width // row.num_heads} columns, and {size}"
    shared, given = heads_said(fitting, SHARED_HEADS), row.num_key_value_heads or row.num_heads
    if shared and given != shared.value:
        yield f"num_key_value_heads is {given} in the row, and {shared}"


def heads_in(place: Place) -> list[int]:
    """The numbers of heads in one configuration."""
    return [place.settings[name] for name in HEADS if is_count(place.settings.get(name))]


def scale_said(places: Iterable[Place], key_dim: int) -> Said | None:
    """A scale of the attention's own configuration that is not ``1/sqrt(key_dim)``, as number or divisor."""
    for place in places:
        for name in SCALES if place.is_own else ():
            value = place.settings.get(name)
            if value is False or (is_number(value) and not is_usual(value, key_dim)):
                return Said(name, value, place.whose)
    return None


def is_usual(value: float, key_dim: int) -> bool:
    """Whether the number is the root of the head's size, or its inverse."""
    return any(is_near(value, usual) for usual in (key_dim**0.5, key_dim**-0.5))


def is_near(value: float, positive: float) -> bool:
    """Whether they are the same; a file's ``value`` may be a whole number that is too large for a float."""
    return positive * (1 - ALIKE) <= value <= positive * (1 + ALIKE)


def agrees(said: Said, scale: float | None) -> bool:
    """Whether a scale that the user gave is the one of the configuration: 1 where scores are not divided."""
    stated = 1.0 if said.value is False else said.value
    return scale is not None and is_near(stated, scale)


def remarks(places: Iterable[Place]) -> Iterator[tuple[str, bool]]:
    """What the attention's own configuration also says, and whether that changes a result."""
    for place in places:
        for row in SYNONYMS if place.is_own else ():
            for name in row.names:
                value = plain(place.settings.get(name))
                if not any(value == usual and type(value) is type(usual) for usual in row.usual):
                    yield f"{Said(name, value, place.whose)}, {row.effect}", row.changes


def bias_remarks(places: Iterable[Place], biases: int, projections: int) -> Iterator[str]:
    """Biases that the attention's own configuration has, and the file has not; or the other way round."""
    for place in places:
        value = place.settings.get("use_bias") if place.is_own else None
        if (value is True and not biases) or (value is False and biases == projections):
            has = "no projection has one" if not biases else "every projection has one"
            yield f"{Said('use_bias', value, place.whose)}, and {has} here"


def projection_remarks(parts: Mapping[str, Group]) -> Iterator[str]:
    """What the projections' own configurations say that is no plain ``Dense``; equal facts of several once."""
    classes: dict[str, list[str]] = {}
    activations: dict[str, list[str]] = {}
    for role, part in parts.items():
        if part.config is not None:
            activation = plain(part.config.settings.get("activation"))
            if part.config.title != "Dense":
                classes.setdefault(part.config.title, []).append(role)
            if activation not in LINEAR:
                activations.setdefault(shown(activation), []).append(role)
    for title, roles in classes.items():
        yield f"by the file's configuration the class of its {', '.join(roles)} is {shortened(title, 60)}, not Dense"
    for activation, roles in activations.items():
        have = f"{'has' if len(roles) == 1 else 'have'} activation {shortened(activation, 60)}"
        yield f"its {', '.join(roles)} {have} by the file's configuration, {LEFT_OUT}"


def projection_faults(parts: Mapping[str, Group], has_bias: Mapping[str, bool]) -> Iterator[str]:
    """Biases of a ``Dense`` that contradict its own configuration."""
    for role, part in parts.items():
        stated = part.config.settings.get("use_bias") if part.config and part.config.title == "Dense" else None
        if isinstance(stated, bool) and stated != has_bias[role]:
            found = "has a bias" if has_bias[role] else "has none"
            yield f"use_bias of {role} is {stated} in the configuration, and it {found} in the file"


def plain(value: Any) -> Any:
    """A setting without the wrapping that Keras gives functions and classes."""
    if isinstance(value, dict) and "class_name" in value:
        inner = value.get("config")
        return inner if isinstance(inner, str) else value["class_name"]
    return value


def shown(value: Any) -> str:
    """A value as Python writes it; names without quotes."""
    return value if isinstance(value, str) else repr(value)
