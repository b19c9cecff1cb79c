"""Keras' classes as rows: what a layer of each stores, in Keras' order, and the settings that decide it.

Files of the v3 layout number a layer's variables in this order, ``.h5`` names them, and genuine Keras loads ``.h5`` by
the order alone. Readers compare files with these rows and know no class themselves; one more class is one more row.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .records.source import LayerConfig


@dataclass(frozen=True, slots=True)
class Weight:
    """A variable of a class, by Keras' name.

    Args:
        name: in ``.h5``.
        setting: without which there is none; None for a variable that every layer has.
        off: the setting's value that leaves it out.
        default: the setting's value in files that do not say it; None where only the file can tell.
        axes: their names; one that is called like a setting of ``LayerClass.counts`` has that size.
    """

    name: str
    setting: str | None = None
    off: Any = False
    default: Any = None
    axes: tuple[str, ...] = ()

    def is_left_out(self, settings: Mapping[str, Any]) -> bool:
        """Whether a layer with these settings has no such variable for sure."""
        value = settings.get(self.setting, self.default) if self.setting is not None else None
        return self.setting is not None and type(value) is type(self.off) and value == self.off


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A layer inside a layer, with a kernel and perhaps a bias of its own.

    Args:
        role: what we call it.
        name: in ``.h5``, and in TensorFlow's names of operations and variables.
        attribute: of the Python object, which may have ``_`` in front; the name in the v3 layout.
        inputs: axes of the kernel that the bias does not have.
        outputs: axes that both have.
        is_open: whether more axes may follow.
        setting: without which there is none.
    """

    role: str
    name: str
    attribute: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    is_open: bool = False
    setting: str | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """Of the kernel."""
        return (*self.inputs, *self.outputs)

    @property
    def spellings(self) -> tuple[str, str, str]:
        """Every name that some version or format has for it."""
        return self.attribute, f"_{self.attribute}", self.name

    def has_rank_of(self, shape: tuple[int, ...]) -> bool:
        """Whether a kernel of this shape may be its."""
        return len(shape) == len(self.axes) or (self.is_open and len(shape) > len(self.axes))


@dataclass(frozen=True, slots=True)
class LayerClass:
    """One class of Keras.

    Args:
        name: of the class itself, after which Keras calls a layer's group.
        variables: of the layer itself, in the order in which Keras makes them.
        public_names: other names of the class, which a configuration may have.
        counts: settings that are sizes of axes.
        parts: the layers inside it, in the order in which Keras makes them.
        multiples: of two sizes of the parts' kernels, the one that is a multiple of the other.
        known_by: names of parts that together no other class has; of the attributes, the first alone is enough.
        is_required: whether a file must hold the weights of every such layer that its configuration names.
        noun: what such a layer is called in messages.
    """

    name: str
    variables: tuple[Weight, ...] = ()
    public_names: tuple[str, ...] = field(default=(), kw_only=True)
    counts: tuple[str, ...] = field(default=(), kw_only=True)
    parts: tuple[Part, ...] = field(default=(), kw_only=True)
    multiples: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    known_by: tuple[str, ...] = field(default=(), kw_only=True)
    is_required: bool = field(default=False, kw_only=True)
    noun: str = field(default="", kw_only=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of the class."""
        return (self.name, *self.public_names)

    @property
    def title(self) -> str:
        """``"an attention layer"``."""
        return f"{'an' if self.noun[:1] in 'aeiou' else 'a'} {self.noun} layer"

    @property
    def constant_parts(self) -> tuple[Part, ...]:
        """The parts that every layer of the class has."""
        return tuple(part for part in self.parts if part.setting is None)

    @property
    def known_attribute(self) -> str:
        """The attribute that shows a layer of the class where nothing names it."""
        return next(part.attribute for part in self.parts if part.name == self.known_by[0])

    def made(self, settings: Mapping[str, Any]) -> list[Weight]:
        """The variables of a layer with these settings, in Keras' order."""
        return [weight for weight in self.variables if not weight.is_left_out(settings)]

    def agree(self, kernels: Iterable[tuple[int, ...]]) -> bool:
        """Whether kernels of these shapes, of the constant parts in their order, make one layer."""
        shapes = list(zip(self.constant_parts, kernels, strict=True))
        if not all(part.has_rank_of(shape) for part, shape in shapes):
            return False
        sizes: dict[str, int] = {}
        for axis, size in (pair for part, shape in shapes for pair in zip(part.axes, shape, strict=False)):
            if sizes.setdefault(axis, size) != size:
                return False
        return all(sizes[few] > 0 and sizes[many] % sizes[few] == 0 for many, few in self.multiples)


def projection(role: str, features: str, outputs: tuple[str, str], setting: str | None = None) -> Part:
    """A part of attention that makes heads of one of the inputs."""
    return Part(role=role, name=role, attribute=f"{role}_dense", inputs=(features,), outputs=outputs, setting=setting)


def attention(name: str, *public_names: str) -> LayerClass:
    """Attention with four projections, and in some versions a gate."""
    return LayerClass(
        name,
        public_names=public_names,
        parts=(
            projection("query", "query_features", ("heads", "key_dim")),
            projection("key", "key_features", ("key_heads", "key_dim")),
            projection("gate", "query_features", ("heads", "value_dim"), "use_gate"),
            projection("value", "value_features", ("key_heads", "value_dim")),
            Part(
                role="output",
                name="attention_output",
                attribute="output_dense",
                inputs=("heads", "value_dim"),
                outputs=("output_features",),
                is_open=True,
            ),
        ),
        multiples=(("heads", "key_heads"),),
        known_by=("query", "key", "value"),
        is_required=True,
        noun="attention",
    )


SCORE = (
    Weight("scale", "use_scale"),
    Weight("concat_score_weight", "score_mode", "dot", "dot"),  # since Keras 2.11
)
AFFINE = (Weight("gamma", "scale"), Weight("beta", "center"))
RECURRENT = (Weight("kernel"), Weight("recurrent_kernel"), Weight("bias", "use_bias"))
CLASSES = (
    attention("MultiHeadAttention"),
    attention("GroupedQueryAttention", "GroupQueryAttention"),
    LayerClass("Attention", SCORE),
    LayerClass("AdditiveAttention", SCORE),
    LayerClass("LayerNormalization", (Weight("gamma", "scale"), Weight("beta", "center"))),
    LayerClass("RMSNormalization", (Weight("scale"),)),
    LayerClass("BatchNormalization", (*AFFINE, Weight("moving_mean"), Weight("moving_variance"))),
    LayerClass("GroupNormalization", AFFINE),
    LayerClass("Normalization", tuple(Weight(name, "is_adapted") for name in ("mean", "variance", "count"))),
    LayerClass(
        "Dense",
        (Weight("kernel", axes=("features", "units")), Weight("bias", "use_bias", axes=("units",))),
        counts=("units",),
    ),
    LayerClass(
        "Conv1D",
        (
            Weight("kernel", axes=("width", "channels", "filters")),
            Weight("bias", "use_bias", axes=("filters",)),
        ),
        public_names=("Convolution1D",),
        counts=("filters",),
    ),
    LayerClass("EinsumDense", (Weight("kernel"), Weight("bias", "bias_axes", None, None))),
    LayerClass("Embedding", (Weight("embeddings"),)),
    *(LayerClass(name, RECURRENT) for name in ("LSTM", "GRU", "SimpleRNN", "CuDNNLSTM", "CuDNNGRU")),
)
OF_NAME: Mapping[str, LayerClass] = {name: row for row in CLASSES for name in row.names}
COMPOSITE = tuple(row for row in CLASSES if row.parts)
REQUIRED = tuple(row for row in CLASSES if row.is_required)


def class_of(config: LayerConfig | None) -> LayerClass | None:
    """The row of a layer; None where its class is somebody's own, has no row, or is not told."""
    return None if config is None or config.is_own else OF_NAME.get(config.class_name)


def stores_nothing(config: LayerConfig) -> bool:
    """Whether a layer has no variables by its settings, of a class that has some by others."""
    row = class_of(config)
    return row is not None and bool(row.variables) and not row.made(config.settings)


def composite_with(name: str) -> LayerClass | None:
    """The class that has a part of this name."""
    return next((row for row in COMPOSITE if any(part.name == name for part in row.parts)), None)


def part_names(rows: Iterable[LayerClass]) -> tuple[str, ...]:
    """What the constant parts of some classes are called, each once."""
    return tuple(dict.fromkeys(part.name for row in rows for part in row.constant_parts))


def nouns(rows: Iterable[LayerClass]) -> str:
    """What layers of some classes are called, for a message: ``"attention layers"``."""
    return " and ".join(f"{noun} layers" for noun in dict.fromkeys(row.noun for row in rows))
