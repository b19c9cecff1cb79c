"""Where it goes: rules, modules, keys, and the tensors of a target."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from .face import Face
from .layer import AttentionLayer, Layer
from .source import Array, Checkpoint

if TYPE_CHECKING:
    from ..options import Layout

Made = Literal["identity", "zeros", "ones"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of rows of a target tensor: which array it comes from, and all that happens on the way.

    In this order: of each axis in ``parts`` only the numbers from the first bound up to the second are taken; axes of
    the array that ``sizes`` names are padded with zeros, after their own numbers, to that size; ``pattern`` moves the
    axes, and one that only its right side has is repeated as often as ``sizes`` says; the numbers are multiplied by
    ``factor``. A piece that is ``made`` has no source: the identity, zeros or ones, of ``shape``.

    Args:
        source: a name in the layer's ``arrays``, such as ``"query.kernel"``; None for what is made.
        pattern: for einops, with named axes: ``"features heads head_dim -> (heads head_dim) features"``.
        sizes: sizes by axis.
        parts: bounds by axis of the array.
        factor: 1 leaves every bit as it is.
        made: what is made where there is no source.
        shape: of what is made.
    """

    source: str | None = None
    pattern: str = ""
    _: KW_ONLY
    sizes: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    factor: float = 1.0
    made: Made | None = None
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of a layout: the target key, and the pieces that are stacked along its first axis."""

    target: str
    pieces: tuple[Piece, ...]


STOCK = ("MultiheadAttention", "LayerNorm")  # classes of torch.nn that a target can name
# Others that the source of a whole model can.
STOCK_OF_MODELS = frozenset(
    """
    AlphaDropout AvgPool1d BatchNorm1d BatchNorm2d BatchNorm3d Conv1d Dropout Embedding GRU GroupNorm LSTM Linear
    MaxPool1d RMSNorm RNN
    """.split()  # noqa: SIM905 - one line a word would be long
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSpec:
    """The module that a layer's tensors load into: a class of ``torch.nn`` or of ``mha_convert.modules``."""

    class_name: str
    arguments: Mapping[str, Any]

    @property
    def is_stock(self) -> bool:
        """Whether the class is one of ``torch.nn``; all others are those of ``mha_convert.modules``."""
        return self.class_name in STOCK or self.class_name in STOCK_OF_MODELS


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LayerPlan(Face):
    """How one layer is laid out: where its tensors go, by which rules, for which module.

    ``layout`` is the one that was used, None for a kind of layer that has one form; ``misfit`` is None, or says why
    the layout that was asked for does not fit this layer.
    ``renamed`` has the whole key of each rule's target where renames changed one, and is empty otherwise.
    """

    layer: Layer
    prefix: str
    rules: tuple[Rule, ...]
    module: ModuleSpec
    layout: str | None = None
    misfit: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)

    def key(self, target: str) -> str:
        """The whole key of a rule's target in the ``state_dict``."""
        return self.renamed.get(target, self.prefix + target)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan(Face):
    """A whole conversion, checked before any array is read.

    ``dtype`` None keeps each layer's own.
    """

    layout: "Layout"
    dtype: str | None
    layers: tuple[LayerPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAttention:
    """Attention in a ``state_dict`` of the user's: the layout that fills it, and its keys by the layout's own.

    ``others`` are keys next to its own, which no Keras layer fills.
    """

    prefix: str
    layout: "Layout"
    keys: Mapping[str, str]
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Pair(Face):
    """A source's layer and the place for it; ``alike`` is how many pairs only their order tells apart, 1 for none."""

    layer: AttentionLayer
    place: ModelAttention
    alike: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Alignment(Face):
    """A source matched with a model: pairs, and what stays on either side (layers with the reason).

    ``notes`` tell where in the model's file its tensors were found.
    """

    pairs: tuple[Pair, ...]
    left_layers: tuple[tuple[str, str], ...]
    left_places: tuple[ModelAttention, ...]
    notes: tuple[str, ...] = ()
    source: Checkpoint | None = None
    like: str = ""

    @property
    def layout(self) -> "Layout":
        """The layout of all pairs."""
        return self.pairs[0].place.layout if self.pairs else "mha"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TargetTensor(Face):
    """One tensor to be written, described but not made; in C order.

    ``read()`` makes it as a whole, ``blocks()`` in blocks of rows, one after another.
    """

    key: str
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], Array] = field(repr=False, compare=False)
    blocks: Callable[[], Iterator[Array]] = field(repr=False, compare=False)
