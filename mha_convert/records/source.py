"""What was read: variables, groups, and the checkpoint that holds them. The first records of the flow.

Axis names used everywhere: ``features`` (width of an input or output), ``heads``, ``head_dim`` (size of one head:
Keras' ``key_dim`` for query and key, ``value_dim`` for value).
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy.typing as npt

from .face import Face

Array = npt.NDArray[Any]
# Packages that Keras' own classes come from.
KERAS_MODULES = ("keras", "tf_keras", "tensorflow", "keras_core", "keras_hub", "keras_nlp")
Version = tuple[int, ...]
# A copy is stored a second time under another name; a counter is TensorFlow's own, of steps and of saves; what is
# unlisted, no layer of a .h5 lists.
Role = Literal["layer", "optimizer", "metric", "counter", "copy", "unlisted"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Variable(Face):
    """One array of a file, described but not read.

    ``read()`` returns an array of ``shape`` and ``dtype`` (a view of the file where that is possible), to be
    treated as read-only. A kernel that has to be made first (of int8 numbers and scales, or with LoRA adapters) names
    the variables of the file that it is ``made_of`` and their ``storage``: ``int8``, ``int4``, ``float8``,
    ``float32 + LoRA``, …; ``path`` is then that of the stored kernel.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    role: Role = "layer"
    made_of: tuple["Variable", ...] = ()
    storage: str | None = None
    read: Callable[[], Array] = field(repr=False, compare=False)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def version_of(text: str | None) -> Version:
    """``"3.15.1"`` as ``(3, 15, 1)``; () where unknown."""
    return tuple(int(number) for number in re.findall(r"\d{1,9}", text or "")[:3])


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a layer in the model's graph, as plain data.

    ``inputs`` are its positional arguments and ``keywords`` the others, tensors among them as Keras wrote these:
    Keras 3 with shape and history, Keras 2 as ``[layer, node, tensor]``.
    """

    inputs: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConfig:
    """What the file's JSON says of one layer; ``settings`` is Keras' ``get_config()``, as plain data.

    ``registered_name`` is ``package>Class``, ``module`` where the class lives, as far as the file says. ``is_own``
    is True for a class that somebody wrote, which may have the name of one of Keras'.
    ``build`` is Keras' ``get_build_config()`` (Keras 2.12 and later), and ``calls`` are those of the model's graph;
    ``layers`` knows what they mean.
    """

    name: str
    class_name: str
    registered_name: str | None = None
    module: str | None = None
    is_own: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    build: Mapping[str, Any] = field(default_factory=dict, repr=False)
    calls: tuple[Call, ...] = field(default=(), repr=False)

    @property
    def is_model(self) -> bool:
        """Whether it is a model: a layer of layers that have names of their own."""
        return isinstance(self.settings.get("layers"), list)

    @property
    def title(self) -> str:
        """The class as people should see it: ``package>Class`` or ``module.Class`` where it is not Keras' own."""
        place = f"{self.module}." if self.is_own and self.module else ""
        return self.registered_name or f"{place}{self.class_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One layer's place in a file: its own variables by name, and the layers inside it.

    ``path`` is the place in the file, ``name`` the name that people know: the user's layer names where the file
    has them, attribute names inside custom layers. ``doubt`` says why the arrays may not be what they seem.
    """

    path: str
    name: str
    config: LayerConfig | None = None
    variables: Mapping[str, Variable] = field(default_factory=dict)
    children: Mapping[str, "Group"] = field(default_factory=dict)
    doubt: str | None = None

    @property
    def is_model(self) -> bool:
        """Whether its children are a model's layers, and not the parts of one layer; the file's root is nameless."""
        return not self.name or (self.config is not None and self.config.is_model)

    def walk(self) -> Iterator["Group"]:
        """This group and all below it, parents first, in the file's order."""
        stack = [self]
        while stack:
            group = stack.pop()
            yield group
            stack.extend(reversed([*group.children.values()]))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """Which file was read, and what changes when it is written to: its size and time (nanoseconds)."""

    path: str
    device: int
    inode: int
    size: int
    modified: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Checkpoint(Face):
    """A saved model, described: the tree of its layers, and the variables that belong to none of them.

    ``format`` is the word for programs, ``format_title`` what people call it (empty: the same).
    ``listed`` is every layer that the model's configuration lists, by the names that lead to it, whether the file holds
    arrays of it or not. ``omits_empty_layers`` is True for formats that have no place for a layer without variables,
    ``repeats_shared_layers`` for those that store a layer once for each model that uses it. ``check()``
    reads the whole file against its checksums, where the format has any, and raises ``ReadError``.
    ``has_layer_names`` is False where groups are called after classes or numbers instead of the user's layers.
    ``files`` are those that were read, as they were before; files at a URL are not among them.
    """

    path: str
    format: str
    format_title: str = ""
    keras_version: str | None = None
    backend: str | None = None
    has_config: bool
    has_layer_names: bool = True
    root: Group
    others: tuple[Variable, ...] = ()
    notes: tuple[str, ...] = ()
    listed: tuple[tuple[tuple[str, ...], LayerConfig], ...] = field(default=(), repr=False)
    omits_empty_layers: bool = False
    repeats_shared_layers: bool = False
    check: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    files: tuple[FileState, ...] = field(default=(), repr=False, compare=False)

    @property
    def version(self) -> Version:
        """Of the Keras that saved, as numbers; () where unknown."""
        return version_of(self.keras_version)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Every variable of the file, optimizer and metrics included."""
        own = tuple(variable for group in self.root.walk() for variable in group.variables.values())
        return own + self.others
