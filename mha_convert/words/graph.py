"""What ``inspect --graph`` says: the calls of a model and of those nested in it, as text and JSON."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import listed, shortened
from ..layers import KINDS
from ..records.graph import Call, Constant, Graph, GraphLayer, TensorSpec, Value, leaves
from ..records.said import GraphInspection
from .inspection import title
from .table import Document, Table

NAME = 40  # characters of a name in a table
ARGUMENTS = 160  # and of what a call is called with
KIND_OF = {"GroupedQueryAttention": "GroupQueryAttention"}  # classes that are not called as their kind is
OF_EVERY_LAYER = ("name", "trainable", "dtype_policy")  # settings that say nothing of an operation
PLAIN_NAME = re.compile(r"[\w./:-]+")


def has_kind(layer: GraphLayer) -> bool:
    """Whether the layer is of a kind that can be converted, or needs none: an input, or a model with its own graph."""
    if layer.is_input or layer.graph is not None:
        return True
    return not (layer.is_own or layer.is_operation) and KIND_OF.get(layer.class_name, layer.class_name) in KINDS


def class_of(layer: GraphLayer) -> str:
    """The class in words."""
    return f"{'operation ' * layer.is_operation}{layer.title}"


def without_kind(graph: Graph) -> Mapping[str, int]:
    """How many layers of each class have no kind, the classes in the order of the calls."""
    counts: Counter[str] = Counter()
    seen: set[GraphLayer] = set()
    for each in graph.walk():
        names = dict.fromkeys(call.layer for call in each.calls)
        layers = [each.layers[name] for name in names]
        counts.update(class_of(layer) for layer in layers if layer not in seen and not has_kind(layer))
        seen.update(layers)
    return counts


# Text.


def named(name: str) -> str:
    """A layer's name, in quotes where it could be read as something else."""
    shown = shortened(name, NAME)
    return shown if PLAIN_NAME.fullmatch(shown) else repr(shown)


class Words:
    """One graph's values in words: numbers of calls and outputs stand only where there are several."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.calls = Counter(call.layer for call in (*graph.calls, *graph.dead))
        used = [value for call in (*graph.calls, *graph.dead) for value in call.values]
        self.several = {value.layer for value in (*used, *leaves(graph.outputs)) if value.output}

    def called(self, layer: str, number: int) -> str:
        """One call: ``encoder``, or ``encoder#2`` where there are several."""
        return f"{named(layer)}#{number + 1}" if self.calls[layer] > 1 else named(layer)

    def value(self, value: Value) -> str:
        """One value: its call, and which output of it where others are used, too."""
        output = f"[{value.output}]" if value.layer in self.several else ""
        return f"{self.called(value.layer, value.call)}{output}"

    def data(self, data: Any) -> str:
        """Nested data, as Python would write it."""
        if isinstance(data, tuple):
            return f"[{', '.join(map(self.data, data))}]"
        if isinstance(data, Mapping):
            return f"{{{', '.join(f'{shortened(key, NAME)}: {self.data(part)}' for key, part in data.items())}}}"
        if isinstance(data, slice):
            start, stop, step = ("" if part is None else self.data(part) for part in (data.start, data.stop, data.step))
            return f"{start}:{stop}{f':{step}' if step else ''}"
        return self.leaf(data)

    def leaf(self, leaf: Any) -> str:
        """One leaf of it."""
        if isinstance(leaf, Value):
            return self.value(leaf)
        if isinstance(leaf, Constant):
            return f"<{leaf.dtype or 'array'} {leaf.array.shape}>"
        return "..." if leaf is Ellipsis else shortened(repr(leaf), NAME)

    def arguments(self, call: Call) -> str:
        """What a call is called with, and an operation's settings, without masks and without what is None."""
        layer, masks = self.graph.layers[call.layer], call.masks
        given = dict(layer.settings) | dict(call.keywords) if layer.is_operation else call.keywords
        keywords = [
            f"{shortened(name, NAME)}={self.data(data)}"
            for name, data in given.items()
            if data is not None and name not in masks and name not in OF_EVERY_LAYER
        ]
        return shortened(", ".join([*map(self.data, call.arguments), *keywords]), ARGUMENTS)

    def masks(self, call: Call) -> str:
        """The masks that a call is given."""
        return shortened(", ".join(f"{name}={self.data(mask)}" for name, mask in call.masks.items()), ARGUMENTS)

    def row(self, call: Call) -> tuple[str, ...]:
        """One call as cells."""
        shape, dtype = self.tensor(self.graph.specs.get(Value(call.layer, call.number)))
        layer = class_of(self.graph.layers[call.layer])
        return (
            self.called(call.layer, call.number),
            shortened(layer, 60),
            self.arguments(call),
            self.masks(call),
            shape,
            dtype,
        )

    def input_row(self, value: Value) -> tuple[str, ...]:
        """One input as cells."""
        return (self.value(value), "input", "", "", *self.tensor(self.graph.specs.get(value)))

    @staticmethod
    def tensor(spec: TensorSpec | None) -> tuple[str, str]:
        """Shape and dtype, as far as the file says."""
        shape = "" if spec is None or spec.shape is None else f"({', '.join(map(str, spec.shape))})"
        return shape, (spec and spec.dtype and shortened(spec.dtype, NAME)) or ""

    def table(self) -> Table:
        """A row for each input, and for each call in order; no column without content."""
        headings = ("layer", "class", "called with", "masks", "shape", "dtype")
        rows = [*map(self.input_row, leaves(self.graph.inputs)), *map(self.row, self.graph.calls)]
        kept = [number for number in range(len(headings)) if number < 3 or any(row[number] for row in rows)]
        return Table(
            tuple(headings[number] for number in kept), tuple(tuple(row[number] for number in kept) for row in rows)
        )


def graph_as_text(graph: Graph) -> Document:
    """The table of each model, and what is to be known of its layers."""
    parts: list[str | Table] = []
    for each in graph.walk():
        words = Words(each)
        parts += [f"{named(each.name)} ({shortened(each.class_name, NAME)}):"]
        parts += [words.table(), f"Returns: {shortened(words.data(each.outputs), ARGUMENTS)}"]
        if each.dead:
            parts.append(f"Called, and not used: {listed((call.layer for call in each.dead), 5)}.")
        parts.append("")
    parts += shared_lines(graph)
    counts = without_kind(graph)
    if counts:
        classes = ", ".join(f"{shortened(name, 60)} ({count})" for name, count in counts.items())
        parts.append(f"Classes without a kind, and how many layers of each: {classes}.")
    else:
        parts.append("Every layer is of a kind that can be converted.")
    return parts


def shared_lines(graph: Graph) -> Iterator[str]:
    """A line for each layer that several models list."""
    owners = Counter(layer for each in graph.walk() for layer in each.layers.values())
    for layer, times in owners.items():
        if times > 1 and not layer.is_input:
            yield f"One layer in several models: {listed(('/'.join(route) for route in layer.routes), 3)}."


def inspection_as_text(found: GraphInspection) -> Document:
    """What ``inspect --graph`` says."""
    return [title(found.source), "", *graph_as_text(found.graph)]


# JSON.


def data_as_json(data: Any) -> Any:
    """Nested data as JSON: lists, and an object with one key for all that JSON does not have."""
    if isinstance(data, tuple):
        return [data_as_json(part) for part in data]
    if isinstance(data, Mapping):
        return {"object": {key: data_as_json(part) for key, part in data.items()}}
    if isinstance(data, slice):
        return {"slice": [data_as_json(part) for part in (data.start, data.stop, data.step)]}
    if isinstance(data, Value):
        return {"value": [data.layer, data.call, data.output]}
    if isinstance(data, Constant):
        return {"constant": {"dtype": data.dtype, "shape": list(data.array.shape)}}
    if isinstance(data, bytes):
        return {"bytes": data.hex()}
    if data is Ellipsis:
        return {"ellipsis": True}
    return {"number": str(data)} if isinstance(data, float) and not math.isfinite(data) else data


def value_as_json(value: Value) -> dict[str, Any]:
    """One value."""
    found: dict[str, Any] = data_as_json(value)
    return found


def constant_as_json(constant: Constant) -> dict[str, Any]:
    """One array, without its numbers."""
    found: dict[str, Any] = data_as_json(constant)
    return found


def call_as_json(call: Call) -> dict[str, Any]:
    """One call."""
    return {
        "layer": call.layer,
        "call": call.number,
        "arguments": data_as_json(call.arguments),
        "keywords": {name: data_as_json(data) for name, data in call.keywords.items()},
        "masks": list(call.masks),
    }


def layer_as_json(
    layer: GraphLayer, number: int | None = None, graphs: Mapping[int, int] | None = None
) -> dict[str, Any]:
    """One layer; in a document with its number, which is the same in every model, and that of its graph."""
    facts = ("name", "class_name", "registered_name", "module", "is_own", "is_operation")
    return {
        "number": number,
        **{fact: getattr(layer, fact) for fact in facts},
        "has_kind": has_kind(layer),
        "settings": {name: data_as_json(data) for name, data in layer.settings.items()},
        "graph": None if layer.graph is None or graphs is None else graphs[id(layer.graph)],
    }


def spec_as_json(value: Value, spec: TensorSpec) -> dict[str, Any]:
    """What is known of one value."""
    shape = None if spec.shape is None else list(spec.shape)
    return {"value": [value.layer, value.call, value.output], "shape": shape, "dtype": spec.dtype}


def graph_as_json(graph: Graph) -> dict[str, Any]:
    """The model's graph and those of the nested models, which layers name by their number."""
    numbers = {id(each): number for number, each in enumerate(graph.walk())}
    layers = dict.fromkeys(layer for each in graph.walk() for layer in each.layers.values())
    of_layers = {layer: number for number, layer in enumerate(layers)}
    graphs = [
        {
            "name": each.name,
            "class_name": each.class_name,
            "is_own": each.is_own,
            "inputs": data_as_json(each.inputs),
            "outputs": data_as_json(each.outputs),
            "layers": [layer_as_json(layer, of_layers[layer], numbers) for layer in each.layers.values()],
            "calls": [call_as_json(call) for call in each.calls],
            "dead": [call_as_json(call) for call in each.dead],
            "known": [spec_as_json(value, spec) for value, spec in each.specs.items()],
        }
        for each in graph.walk()
    ]
    return {
        "graphs": graphs,
        "without_kind": [{"class": name, "layers": count} for name, count in without_kind(graph).items()],
    }


def inspection_as_json(found: GraphInspection) -> dict[str, Any]:
    """The stable form of ``inspect --graph --json``; documented in ``docs/cli.md``."""
    checkpoint = found.source
    facts = {"source": checkpoint.path, "format": checkpoint.format, "keras_version": checkpoint.keras_version}
    return {**facts, **graph_as_json(found.graph)}
