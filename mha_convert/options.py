"""The options: one record, one row of facts for each, and the types by which editors and mypy know them.

The public functions take them as keywords (``Unpack`` of one of the ``…Options``), the command line and a batch's
settings file as the words in ``OPTIONS``; all make an ``Options`` of them, which is passed as one thing.

This module is imported by every start, ``--help`` included: what needs no check is a ``NamedTuple``, which is made ten
times as fast as a dataclass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from .errors import LayoutError

if TYPE_CHECKING:
    import torch

    from .files.locations import StrPath

Layout = Literal["mha", "padded", "linear", "qkv", "encoder", "bert", "vit", "distilbert", "llama", "bart", "t5"]
AttentionForm = Literal["mha", "linear"]
Dtype = Literal["float32", "float16", "bfloat16", "float64"]
Reference = Literal["numpy", "keras", "none"]
TargetFormat = Literal["safetensors", "pt"]
HOUR = 3600.0
Renames = Mapping[str, str] | str | PathLike[str] | None
Row = str | PathLike[str] | Mapping[str, Any]  # of --attention
Attention = Row | Sequence[Row] | None


class ProofOptions(TypedDict, total=False):
    """How a source is read whose target says what its layers are."""

    config: "StrPath | None"
    trust: bool


class SourceOptions(ProofOptions, total=False):
    """How a source is read."""

    attention: Attention


class MatchOptions(SourceOptions, total=False):
    """How a source is read, and which of its layers are meant."""

    layers: Sequence[str] | None


class LayoutOptions(SourceOptions, total=False):
    """How a source is read, and how its attention is laid out."""

    layout: Layout


class PlanOptions(LayoutOptions, total=False):
    """How attention is laid out, and what a target holds under which keys."""

    layers: Sequence[str] | None
    prefix: str | None
    renames: Renames
    like: "StrPath | None"
    dtype: "Dtype | torch.dtype | None"


class ConvertOptions(PlanOptions, total=False):
    """Every option of a conversion: those of ``keys``, and how the target is proven."""

    reference: Reference
    strict: bool


class BatchOptions(ConvertOptions, total=False):
    """Every option of ``convert_many``: those of a conversion, and those of ``Run``."""

    jobs: int | None
    pattern: str | None
    format: TargetFormat
    keep_suffix: bool
    resume: bool
    overwrite: bool
    fail_fast: bool
    timeout: float


class ModelOptions(ProofOptions, total=False):
    """Every option of ``convert_model``."""

    dtype: "Dtype | torch.dtype | None"
    reference: Reference
    attention_layout: AttentionForm | None
    class_name: str | None
    until: str | None
    logits: bool
    expect: "StrPath | None"


@dataclass(frozen=True)
class ModelChoices:
    """All options of a whole model's conversion, with their defaults.

    Args:
        config: the model's JSON, where the source holds weights only.
        trust: whether the source may ask for any memory and time, see ``docs/security.md``.
        dtype: of the weights; None keeps each layer's own.
        reference: ``"numpy"``, ``"keras"`` (genuine Keras as well, in a process of its own), or ``"none"``.
        attention_layout: ``"mha"`` or ``"linear"``; None for ``nn.MultiheadAttention`` where it fits alone, and the
            smallest module that does elsewhere.
        class_name: of the outermost class; None for one made of the model's name.
        until: the name of a layer whose output the model returns, instead of its own outputs.
        logits: whether a last softmax or sigmoid is left out.
        expect: an ``.npz`` with inputs and what Keras returned for them, to compare with, see ``docs/models.md``.

    Raises:
        LayoutError: a value that is not among the words of its option.
    """

    config: "StrPath | None" = None
    trust: bool = False
    dtype: "Dtype | torch.dtype | None" = None
    reference: Reference = "numpy"
    attention_layout: AttentionForm | None = None
    class_name: str | None = None
    until: str | None = None
    logits: bool = False
    expect: "StrPath | None" = None

    def __post_init__(self) -> None:
        """A dtype of PyTorch is used by its name; words are checked, and a class's name must be one."""
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        for name in ("dtype", "reference", "attention_layout"):
            value = getattr(self, name)
            if value is not None:
                check_word(name, value, {**OPTIONS, **MODEL}[name].words)
        if self.class_name is not None and not (self.class_name.isascii() and self.class_name.isidentifier()):
            raise LayoutError(f"'{self.class_name}' is not a name for a class. Use letters, digits and underscores.")


class Run(NamedTuple):
    """The options of a run over many sources, with their defaults.

    Args:
        jobs: sources at once, where there is no executor; None for as many as cores and memory allow.
        pattern: which files of a folder are models; None for those with Keras' suffixes.
        format: ``"safetensors"`` or ``"pt"``.
        keep_suffix: ``a.h5`` becomes ``a.h5.safetensors`` instead of ``a.safetensors``.
        resume: go on where an earlier run ended: what it finished stays, if neither source nor options have changed.
        overwrite: begin anew, and replace the targets that are there.
        fail_fast: begin no further source after one that was refused or crashed.
        timeout: seconds that a source may take.
    """

    jobs: int | None = None
    pattern: str | None = None
    format: TargetFormat = "safetensors"
    keep_suffix: bool = False
    resume: bool = False
    overwrite: bool = False
    fail_fast: bool = False
    timeout: float = HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All options of a conversion, with their defaults.

    Args:
        config: the model's JSON, where the source holds weights only.
        trust: whether the source may ask for any memory and time, see ``docs/security.md``.
        attention: hand-written attention: rows as text or mappings, or TOML files with them, see ``read_attention``.
        layout: a word of ``Layout``, see ``docs/layouts.md``.
        layers: names of the layers; None for all.
        prefix: text before a layer's keys, with ``{name}`` for its name; None for ``"{name}"``, ``""`` for
            bare keys.
        renames: patterns for whole keys and their new names, see ``rename``; or a TOML file with them.
        like: a ``state_dict`` of your own model, whose attention the layers are matched with (``match_file``): it
            decides layout and keys, and every layer must have a place.
        dtype: of the target; None keeps each layer's own.
        reference: ``"numpy"``, ``"keras"`` (genuine Keras as well, in a process of its own), or ``"none"``.
        strict: whether a layer whose class computes more than attention with its projections is an error.

    Raises:
        LayoutError: a value that is not among the words of its option.
    """

    config: "StrPath | None" = None
    trust: bool = False
    attention: Attention = None
    layout: Layout = "mha"
    layers: Sequence[str] | None = None
    prefix: str | None = None
    renames: Renames = None
    like: "StrPath | None" = None
    dtype: "Dtype | torch.dtype | None" = None
    reference: Reference = "numpy"
    strict: bool = False

    def __post_init__(self) -> None:
        """A dtype of PyTorch is used by its name; words are checked, and None is one only where it is the default."""
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        for name, row in OPTIONS.items():
            value = getattr(self, name)
            if row.words and not (value is None is DEFAULTS[name]):
                check_word(name, value, row.words)


class Option(NamedTuple):
    """What is said of an option on the command line, and who may use it.

    Args:
        flag: on the command line.
        help: one line.
        metavar: what a value is called.
        words: the values that there are; empty for any.
        shown: the default as people should see it; None for nothing.
        repeated: whether the flag may be given several times.
        settings: its name in a settings file of ``batch``, where one may hold it.
        kind: the type of a value: in a settings file, and on the command line where it is a number or a switch.
        least: of a number.
    """

    flag: str
    help: str
    metavar: str | None = None
    words: Sequence[str] = ()
    shown: str | None = None
    repeated: bool = False
    settings: str | None = None
    kind: type = str
    least: int | None = None


def words_of(literal: Any) -> tuple[str, ...]:
    """The words of a ``Literal``."""
    return tuple(literal.__args__)


OPTIONS: Mapping[str, Option] = {
    "config": Option(
        flag="--config",
        metavar="FILE.json",
        help="The model's architecture (model.to_json()), where SOURCE holds weights only.",
        settings="config",
    ),
    "trust": Option(
        flag="--trust",
        help="Let SOURCE ask for any memory and time. Only for files whose author you know; no code is run.",
        kind=bool,
    ),
    "attention": Option(
        flag="--attention",
        metavar="ROW",
        help="Hand-written attention with kernels of rank 2: 'encoder/*:num_heads=8,query=wq,key=wk,value=wv,"
        "output=dense', with scale=1 where scores are not divided; or a file of such rows (.toml). Can be used several "
        "times.",
        repeated=True,
        settings="attention",
        kind=list,
    ),
    "layout": Option(
        flag="--layout",
        words=words_of(Layout),
        help="mha: nn.MultiheadAttention, with nn.Linear around it where sizes differ. padded: zero-padded heads "
        "instead, where that fits. linear: four nn.Linear in Keras' sizes. qkv: one fused nn.Linear and one for the "
        "output, as timm has them. encoder: the self_attn of nn.TransformerEncoderLayer. bert, vit, distilbert, llama, "
        "bart, t5: like linear, under the names that these models have in Hugging Face's transformers.",
        shown="mha",
        settings="layout",
    ),
    "layers": Option(
        flag="--layer",
        metavar="NAME",
        help="This layer only; can be used several times.",
        repeated=True,
        settings="layer",
        kind=list,
    ),
    "prefix": Option(
        flag="--prefix",
        metavar="P",
        help="Text before a layer's keys, with {name} for its name; '' gives the bare keys of one module.",
        shown="{name}",
        settings="prefix",
    ),
    "renames": Option(
        flag="--rename",
        metavar="RULES.toml",
        help="Other names for whole keys, after --prefix: a table [rename] of patterns and new names.",
        settings="rename",
        kind=dict,
    ),
    "like": Option(
        flag="--like",
        metavar="MODEL",
        help="A state_dict (.safetensors, .pt) of your own model, or a checkpoint with one: convert under the keys of "
        "its attention, if every layer has a place in it. `match` shows which, and writes rules for --rename.",
        settings="like",
    ),
    "dtype": Option(
        flag="--dtype",
        words=words_of(Dtype),
        help="The dtype of the target.",
        shown="each layer's own",
        settings="dtype",
    ),
    "reference": Option(
        flag="--reference",
        words=words_of(Reference),
        help="What to prove against: the formula in NumPy, genuine Keras as well, or nothing.",
        shown="numpy",
    ),
    "strict": Option(
        flag="--strict",
        help="Refuse layers whose class computes more than attention (rotary embeddings, subclasses).",
        settings="strict",
        kind=bool,
    ),
}
# Those of ``Run``; no settings file holds one.
RUN: Mapping[str, Option] = {
    "jobs": Option(
        flag="--jobs",
        metavar="N",
        help="Sources at once, each in a process.",
        shown="by cores and memory",
        kind=int,
        least=1,
    ),
    "pattern": Option(
        flag="--pattern",
        metavar="GLOB",
        help="Which files of a folder are models, by name or path in it.",
        shown="all with Keras' suffixes, and SavedModels",
    ),
    "format": Option(
        flag="--format", words=words_of(TargetFormat), help="The format of the targets.", shown="safetensors"
    ),
    "keep_suffix": Option(
        flag="--keep-suffix",
        help="Name the target of a.h5 a.h5.safetensors, for folders that also hold a.keras.",
        kind=bool,
    ),
    "resume": Option(
        flag="--resume", help="Continue: keep what an earlier run finished, if nothing changed since.", kind=bool
    ),
    "overwrite": Option(flag="--overwrite", help="Start again, and replace existing targets.", kind=bool),
    "fail_fast": Option(
        flag="--fail-fast", help="Start no further source after one that was refused or crashed.", kind=bool
    ),
    "timeout": Option(
        flag="--timeout", metavar="SECONDS", help="What one source may take.", shown="3600", kind=float, least=1
    ),
}
# Those of whole models alone.
MODEL: Mapping[str, Option] = {
    "attention_layout": Option(
        flag="--layout",
        words=words_of(AttentionForm),
        help="How attention is held: mha is nn.MultiheadAttention, with nn.Linear around it where sizes differ; linear "
        "is a small class with four nn.Linear in Keras' sizes.",
        shown="mha where it fits alone, else linear",
    ),
    "class_name": Option(
        flag="--class-name", metavar="NAME", help="The name of the model's class.", shown="made of the model's name"
    ),
    "until": Option(
        flag="--until", metavar="LAYER", help="Return what this layer returns, as a feature extractor does."
    ),
    "logits": Option(flag="--logits", help="Leave out a last softmax or sigmoid.", kind=bool),
    "expect": Option(
        flag="--expect",
        metavar="IO.npz",
        help="Compare with inputs and outputs that you saved from Keras, too: arrays x0, x1, … and y0, y1, ….",
    ),
}
DEFAULTS: Mapping[str, Any] = {item.name: item.default for item in fields(Options)}


def asked(kind: Any, given: Mapping[str, Any], record: Any = None) -> Any:
    """The options that a function was called with, which takes those of ``kind``, a ``…Options``.

    They are an ``Options``, or a ``ModelChoices`` where that is the ``record``.

    Raises:
        LayoutError: a value that is not among the words of its option.
        TypeError: an option that the function does not have; it would be ignored silently.
    """
    others = [name for name in given if name not in names_of(kind)]
    if others:
        raise TypeError(f"unexpected keyword argument '{others[0]}', expected some of {', '.join(names_of(kind))}")
    return (record or Options)(**given)


def names_of(kind: Any) -> list[str]:
    """The names of a ``…Options``, in the order of the records."""
    return [name for name in (*OPTIONS, *RUN, *MODEL) if name in kind.__optional_keys__]


def dtype_name(dtype: Any) -> str | None:
    """``torch.float16`` is ``"float16"``."""
    return None if dtype is None else str(dtype).removeprefix("torch.")


def check_word(name: str, word: Any, words: Sequence[str]) -> None:
    """Refuse a value that is not among ``words``.

    Raises:
        LayoutError: with the words that there are.
    """
    if word not in words:
        raise LayoutError(f"There is no {name} '{word}'. Choose one of: {', '.join(words)}.")
