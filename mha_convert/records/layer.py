"""What was found: layers of every kind, and what resembles one and is not converted."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from .face import Face
from .source import Variable, Version

Score = Literal["dot", "concat", "additive"]
Described = Literal["row", "perhaps", "never"]
ROLES = ("query", "key", "value", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRow:
    """What a user says of hand-written attention: where it is, its heads, and which kernels of rank 2 are its own.

    ``path`` is a pattern for names of groups, with ``*`` within a level and ``**`` for any; ``.`` is the model itself.
    ``kernels`` and ``biases`` are names inside such a group by role: of a ``Dense``, or of a variable. ``name`` is the
    layer's, where it should not be the group's. ``scale`` is what scores are multiplied by, a number or a word of
    ``attention_rows.SCALES``; ``1/sqrt(key_dim)`` for None.
    """

    path: str
    num_heads: int
    num_key_value_heads: int | None = None
    scale: float | str | None = None
    name: str | None = None
    kernels: Mapping[str, str]
    biases: Mapping[str, str] = field(default_factory=dict)

    @property
    def fields(self) -> dict[str, Any]:
        """The row as plain data, in the words of ``--attention``."""
        told = {"path": self.path, "num_heads": self.num_heads, **self.kernels}
        told |= {f"{role}_bias": name for role, name in self.biases.items()}
        others = {"num_key_value_heads": self.num_key_value_heads, "scale": self.scale, "name": self.name}
        return told | {name: value for name, value in others.items() if value is not None}

    @property
    def has_names_of_t5(self) -> bool:
        """Whether its kernels are called as in T5, whose scores are not divided, and no scale is given."""
        ends = tuple(name.rpartition("/")[2] for name in self.kernels.values())
        return self.scale is None and ends == ("q", "k", "v", "o")


@dataclass(frozen=True, slots=True, repr=False)
class Projection(Face):
    """One ``EinsumDense`` of an attention layer, in Keras' own orientation."""

    kernel: Variable
    bias: Variable | None = None

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Kernel and, where there is one, bias."""
        return (self.kernel,) if self.bias is None else (self.kernel, self.bias)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AttentionLayer(Face):
    """A Keras attention layer with four projections, whatever file it came from.

    Kernels: query ``(features, heads, key_dim)``, key and value ``(features, key heads, key_dim or value_dim)``,
    output ``(heads, value_dim, *output_shape)``. Biases: the kernel's axes without the input's.
    What shapes cannot show is None where the file has no configuration (``has_config`` is False). ``doubt`` says
    what of the layer the file does not prove; such a layer is converted only where it is asked for by name. ``beyond``
    says what its class computes, or may compute, besides attention with these projections; that is not converted.
    ``row`` is what the user said of it, where its kernels are stored without heads; then they are views of those.
    ``scale`` is what scores are multiplied by where that is not ``1/sqrt(key_dim)``.
    """

    name: str
    kind: str
    path: str
    query: Projection
    key: Projection
    value: Projection
    output: Projection
    gate: Projection | None = None
    class_name: str | None = None
    has_config: bool = False
    attention_axes: tuple[int, ...] | None = None
    input_rank: int | None = None
    dropout: float | None = None
    sliding_window: int | None = None
    compute_dtype: str | None = None
    call_options: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    doubt: str | None = None
    beyond: str | None = None
    row: AttentionRow | None = None
    scale: float | None = None

    @property
    def num_heads(self) -> int:
        """Number of query heads."""
        return self.query.kernel.shape[1]

    @property
    def num_key_value_heads(self) -> int:
        """Number of key and value heads; less than ``num_heads`` in grouped attention."""
        return self.key.kernel.shape[1]

    @property
    def key_dim(self) -> int:
        """Size of one query or key head (not PyTorch's ``kdim``)."""
        return self.query.kernel.shape[2]

    @property
    def value_dim(self) -> int:
        """Size of one value head (not PyTorch's ``vdim``)."""
        return self.value.kernel.shape[2]

    @property
    def query_features(self) -> int:
        """Width of the query input."""
        return self.query.kernel.shape[0]

    @property
    def key_features(self) -> int:
        """Width of the key input (PyTorch's ``kdim``)."""
        return self.key.kernel.shape[0]

    @property
    def value_features(self) -> int:
        """Width of the value input (PyTorch's ``vdim``)."""
        return self.value.kernel.shape[0]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of one output position; rank 1 but for a Keras ``output_shape`` tuple."""
        return self.output.kernel.shape[2:]

    @property
    def output_features(self) -> int:
        """Number of features of one output position."""
        return math.prod(self.output_shape)

    @property
    def counted_axes(self) -> tuple[int, ...]:
        """``attention_axes`` counted from the batch axis 0, whatever they are.

        A negative axis counts from the end of the projected query, which has the heads' axis more than the input:
        -2 is the heads (so it was before Keras 3.12, which turns negative axes into positive ones when it builds).
        """
        rank = self.rank  # once: a file may list any number of axes
        axes = self.attention_axes if self.attention_axes is not None else range(1, rank - 1)
        return tuple(axis if axis >= 0 else axis + rank + 1 for axis in axes)

    @property
    def attended_axes(self) -> tuple[int, ...] | None:
        """``counted_axes``; None where they are not different axes between the batch and the features."""
        counted, last = self.counted_axes, self.rank - 1
        are_axes = bool(counted) and all(0 < axis < last for axis in counted)
        return counted if are_axes and len(set(counted)) == len(counted) else None

    @property
    def rank(self) -> int:
        """Rank of the inputs; where the file does not say, the smallest that has the attended axes, at least 3."""
        return self.input_rank or max([3, *(axis + 2 for axis in self.attention_axes or ())])

    @property
    def use_bias(self) -> bool:
        """Whether any projection has a bias."""
        return any(projection.bias is not None for projection in self.projections.values())

    @property
    def dtype(self) -> str:
        """Storage dtype; of a layer that mixes them, one that holds all its numbers exactly."""
        return common_dtype(self.variables)

    @property
    def settings(self) -> Mapping[str, Any]:
        """What a target says of the layer in Keras' words."""
        return self.sizes

    @property
    def inside(self) -> "tuple[PlainLayer, ...]":
        """None: it is no wrapper."""
        return ()

    @property
    def sizes(self) -> dict[str, Any]:
        """What a target says of the layer in Keras' words."""
        return {"num_heads": self.num_heads, "key_dim": self.key_dim, "value_dim": self.value_dim}

    def query_factor(self, divisor: int) -> float:
        """What the query is multiplied by for a module that divides scores by ``sqrt(divisor)``; exactly 1 if equal."""
        return math.sqrt(divisor / self.key_dim) if self.scale is None else self.scale * math.sqrt(divisor)

    @property
    def projections(self) -> dict[str, Projection]:
        """The projections by the names that rules use."""
        named = {"query": self.query, "key": self.key, "value": self.value, "output": self.output}
        return named if self.gate is None else named | {"gate": self.gate}

    @property
    def arrays(self) -> dict[str, Variable]:
        """Kernels and biases by the names that pieces of rules use: ``query.kernel``, …, ``output.bias``."""
        return {
            f"{role}.{kind}": variable
            for role, projection in self.projections.items()
            for kind, variable in (("kernel", projection.kernel), ("bias", projection.bias))
            if variable is not None
        }

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Kernels and biases of the layer."""
        return tuple(variable for projection in self.projections.values() for variable in projection.variables)

    @property
    def stored_variables(self) -> tuple[Variable, ...]:
        """All variables of the file that the layer is made of: scales, zeros and adapters, too."""
        return tuple(stored for variable in self.variables for stored in variable.made_of or (variable,))

    @property
    def storage(self) -> str:
        """What the kernels are stored as: their dtype, or the ``storage`` of those that are made of several arrays."""
        kernels = [projection.kernel for projection in self.projections.values()]
        if not any(kernel.made_of for kernel in kernels):
            return self.dtype
        return ", ".join(dict.fromkeys(kernel.storage or kernel.dtype for kernel in kernels))

    @property
    def parameters(self) -> int:
        """Number of trained numbers in the layer."""
        return sum(variable.size for variable in self.variables)


class StoredAsIs:
    """What follows from ``arrays``, for layers whose arrays are in the file as Keras computes with them."""

    __slots__ = ()
    arrays: Mapping[str, Variable]

    @property
    def row(self) -> None:
        """None: no user has to describe such a layer."""
        return None

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The arrays in Keras' order."""
        return tuple(self.arrays.values())

    @property
    def stored_variables(self) -> tuple[Variable, ...]:
        """The arrays themselves: none is made from others."""
        return self.variables

    @property
    def dtype(self) -> str:
        """Storage dtype, as in ``AttentionLayer``."""
        return common_dtype(self.variables)

    @property
    def storage(self) -> str:
        """What its arrays are stored as: their dtype."""
        return self.dtype

    @property
    def parameters(self) -> int:
        """Number of stored numbers in the layer."""
        return sum(variable.size for variable in self.variables)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UnprojectedAttention(StoredAsIs, Face):
    """``keras.layers.Attention`` or ``AdditiveAttention`` (``kind``): one head, no projections, one or two weights.

    ``score`` says how a query and a key are scored: ``dot``, ``concat`` or ``additive``. ``arrays`` has the weights:
    ``scale`` of shape ``()``, for an additive score ``(features,)``, and ``concat_score_weight`` of shape ``()``.
    The other fields are those of ``AttentionLayer``, and so are the properties: whoever asks for nothing else takes
    both records.
    """

    name: str
    kind: str
    path: str
    score: Score
    arrays: Mapping[str, Variable]
    class_name: str
    has_config: bool = True
    dropout: float = 0.0
    compute_dtype: str | None = None
    call_options: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    doubt: str | None = None
    beyond: str | None = None

    @property
    def num_heads(self) -> int:
        """Always 1: nothing is split into heads."""
        return 1

    @property
    def num_key_value_heads(self) -> int:
        """Its only head serves key and value, too."""
        return 1

    @property
    def features(self) -> int | None:
        """Width of query and key, which only the scale of an additive score tells."""
        return self.arrays["scale"].shape[0] if self.score == "additive" else None

    @property
    def use_scale(self) -> bool:
        """Whether it has a scale; one of an additive score always has."""
        return "scale" in self.arrays

    @property
    def settings(self) -> Mapping[str, Any]:
        """What a target says of the layer in Keras' words."""
        return self.sizes

    @property
    def inside(self) -> "tuple[PlainLayer, ...]":
        """None: it is no wrapper."""
        return ()

    @property
    def sizes(self) -> dict[str, Any]:
        """What a target says of the layer in Keras' words."""
        mode = {} if self.score == "additive" else {"score_mode": self.score}
        return {"use_scale": self.use_scale} | mode


AnyAttention = AttentionLayer | UnprojectedAttention


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PlainLayer(StoredAsIs, Face):
    """A layer that is its class, its settings and its arrays by Keras' names: every kind but attention.

    ``version`` is that of the Keras that wrote it, where its meaning depends on that; a wrapper has the layers
    ``inside`` it. The other fields are those of ``AttentionLayer``.
    """

    name: str
    kind: str
    path: str
    arrays: Mapping[str, Variable]
    settings: Mapping[str, Any]
    class_name: str
    has_config: bool = True
    version: Version = ()
    inside: "tuple[PlainLayer, ...]" = ()
    compute_dtype: str | None = None
    call_options: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    doubt: str | None = None
    beyond: str | None = None

    @property
    def sizes(self) -> dict[str, Any]:
        """What a target says of the layer in Keras' words."""
        return dict(self.settings)


def operation(name: str, kind: str, settings: Mapping[str, Any] | None = None) -> PlainLayer:
    """An operation as a layer, which has no arrays."""
    return PlainLayer(name=name, kind=kind, path=name, arrays={}, settings=settings or {}, class_name=kind)


class Layer(Protocol):
    """What every stage after ``layers`` may ask of a layer; all else it asks by the layer's ``kind``."""

    @property
    def name(self) -> str:
        """The user's name for it."""

    @property
    def kind(self) -> str:
        """Keras' class, by which every stage has a row for it."""

    @property
    def path(self) -> str:
        """Its place in the file."""

    @property
    def arrays(self) -> Mapping[str, Variable]:
        """Its arrays by the names that rules and formulas use."""

    @property
    def class_name(self) -> str | None:
        """Its class as the file has it; None where it does not say."""

    @property
    def has_config(self) -> bool:
        """Whether the file has its configuration."""

    @property
    def compute_dtype(self) -> str | None:
        """What Keras computes in, where the file says."""

    @property
    def call_options(self) -> tuple[str, ...]:
        """Masks that the model's graph gives it."""

    @property
    def cautions(self) -> tuple[str, ...]:
        """What the user should know."""

    @property
    def doubt(self) -> str | None:
        """What the file does not prove."""

    @property
    def beyond(self) -> str | None:
        """What its class computes besides what is converted."""

    @property
    def row(self) -> AttentionRow | None:
        """What the user said of it."""

    @property
    def sizes(self) -> dict[str, Any]:
        """What a target says of it in Keras' words."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Keras' settings, checked and in one form."""

    @property
    def inside(self) -> "tuple[PlainLayer, ...]":
        """The layers that a wrapper wraps; none for all others."""

    @property
    def dtype(self) -> str:
        """Storage dtype."""

    @property
    def storage(self) -> str:
        """What its arrays are stored as."""

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Its arrays."""

    @property
    def stored_variables(self) -> tuple[Variable, ...]:
        """All variables of the file that it is made of."""

    @property
    def parameters(self) -> int:
        """Number of its numbers."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``inspect --json`` has it."""

    def to_text(self) -> str:
        """What ``inspect`` prints of it."""


def common_dtype(variables: tuple[Variable, ...]) -> str:
    """The dtype of all, or one that holds all their numbers exactly."""
    found = {variable.dtype for variable in variables}
    if len(found) == 1:
        return found.pop()
    return "float64" if "float64" in found else "float32"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NotConverted(Face):
    """Something that resembles attention and is not converted: named, with the reason and the way on.

    ``blocking`` is True where silence would lose attention weights; then a conversion of the whole file is refused.
    ``described`` says whether a row of ``--attention`` can describe it: ``next_step`` gives the row, perhaps one can,
    or none ever does.
    """

    name: str
    kind: str
    reason: str
    next_step: str
    blocking: bool
    described: Described = "never"
    variables: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Findings(Face):
    """Everything that is, or resembles, attention; and the other layers that can be converted by name.

    ``unfit`` are layers of the kinds of ``companions`` that cannot be converted, each with the reason. ``notes``
    say what of the model none of them shows: masks that other layers make.
    """

    layers: tuple[AnyAttention, ...]
    not_converted: tuple[NotConverted, ...]
    companions: tuple[PlainLayer, ...] = ()
    unfit: tuple[NotConverted, ...] = ()
    notes: tuple[str, ...] = ()
