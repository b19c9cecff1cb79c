"""The calls of a model whose layers say what they are called with: ``Functional``, and ``Model`` of Keras 1 and 2."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from ..records.graph import Call, Graph, TensorSpec, Value, leaves
from . import keras2, keras3
from .entries import Entry
from .numbering import (
    KERAS_2_WITH_INPUT,
    KERAS_2_WITHOUT,
    KERAS_3_FUNCTIONAL,
    KERAS_3_SEQUENTIAL,
    Start,
    start_of,
)
from .order import Key
from .plain import MalformedError, plain


class Form(Protocol):
    """What a module offers that reads one form of writing calls."""

    def accepts(self, node: Any) -> bool:
        """Whether a call is written in this form."""

    def read(self, node: Any, layer: str, number: int, class_name: str) -> tuple[Call, dict[Value, Any]]:
        """One call, and what it says of the tensors that it takes."""


FORMS: tuple[Form, ...] = (keras3, keras2)


@dataclass(slots=True)
class Calls:
    """What a model's configuration says of its calls, in the order of the file."""

    calls: dict[Key, Call] = field(default_factory=dict)
    specs: dict[Value, TensorSpec] = field(default_factory=dict)
    inputs: Any = ()
    outputs: Any = ()
    by_keras_3: bool = False


def read(model: Entry, graphs: Mapping[Entry, Graph]) -> Calls:
    """The calls of a model.

    Args:
        model: its entry.
        graphs: of the nested models.

    Raises:
        MalformedError: it is not written as any Keras writes it, or it is not clear what a call takes.
    """
    found = Calls(
        inputs=ends(model.settings["input_layers"], "inputs"), outputs=ends(model.settings["output_layers"], "outputs")
    )
    for entry in model.layers.values():
        for number, node in enumerate(entry.nodes):
            form = next((form for form in FORMS if form.accepts(node)), None)
            if form is None:
                raise MalformedError(f"call {number} of layer '{entry.name}' has no form that Keras writes")
            call, specs = form.read(node, entry.name, number, entry.class_name)
            found.calls[entry.name, number] = call
            found.by_keras_3 |= form is keras3
            for value, spec in specs.items():
                if found.specs.setdefault(value, spec) != spec:
                    raise MalformedError(f"two calls have two shapes for an output of '{value.layer}'")
    return renumbered(found, model, graphs)


def ends(data: Any, what: str) -> Any:
    """The tree of a model's inputs or outputs; a list of one tensor is that tensor, as it is for Keras."""
    tree = plain(data, keras2.tensor)
    tree = tree[0] if isinstance(tree, tuple) and len(tree) == 1 and isinstance(tree[0], Value) else tree
    found = list(leaves(tree))
    if not found or not all(isinstance(leaf, Value) for leaf in found):
        raise MalformedError(f"the {what} of the model are not a list of tensors")
    return tree


def renumbered(found: Calls, model: Entry, graphs: Mapping[Entry, Graph]) -> Calls:
    """The same with every reference to a nested model's calls counted from 0."""
    starts = dict(starts_of(found, model, graphs))
    in_arguments = {name: start.arguments for name, start in starts.items() if start.arguments}
    in_outputs = {name: start.outputs for name, start in starts.items() if start.outputs}
    if in_arguments:
        found.calls = {
            key: Call(
                call.layer, call.number, shifted(call.arguments, in_arguments), shifted(call.keywords, in_arguments)
            )
            for key, call in found.calls.items()
        }
        found.specs = {shifted(value, in_arguments): spec for value, spec in found.specs.items()}
    found.outputs = shifted(found.outputs, in_outputs)
    return found


def starts_of(found: Calls, model: Entry, graphs: Mapping[Entry, Graph]) -> Iterator[tuple[str, Start]]:
    """From which number the calls of each nested model are counted."""
    nested = {name: entry for name, entry in model.layers.items() if entry.stands_for in graphs}
    if not nested:
        return
    in_calls: dict[str, set[int]] = {name: set() for name in nested}
    in_outputs: dict[str, set[int]] = {name: set() for name in nested}
    for value in (value for call in found.calls.values() for value in call.values):
        if value.layer in nested:
            in_calls[value.layer].add(value.call)
    for value in leaves(found.outputs):
        if value.layer in nested:
            in_outputs[value.layer].add(value.call)
    for name, entry in nested.items():
        count = len(entry.nodes)
        start = start_of(candidates(entry, found.by_keras_3), count, in_calls[name], in_outputs[name])
        if start is None:
            numbers = sorted(in_calls[name] | in_outputs[name])
            raise MalformedError(
                f"model '{name}' is called {count} times, which does not fit the calls that are "
                f"referred to ({', '.join(map(str, numbers[:5]))})"
            )
        yield name, start


def candidates(entry: Entry, by_keras_3: bool) -> tuple[Start, ...]:
    """From where the calls of a nested model may be counted, the usual first."""
    if by_keras_3:
        return KERAS_3_SEQUENTIAL if entry.is_sequential else KERAS_3_FUNCTIONAL
    first = next(iter(entry.layers.values()), None)
    return KERAS_2_WITH_INPUT if first is not None and first.class_name == "InputLayer" else KERAS_2_WITHOUT


def shifted(tree: Any, starts: Mapping[str, int]) -> Any:
    """``tree`` with smaller numbers of calls in the values of some layers; the recursion is as deep as ``plain``'s."""
    if isinstance(tree, Value):
        return Value(tree.layer, tree.call - starts[tree.layer], tree.output) if tree.layer in starts else tree
    if isinstance(tree, tuple):
        return tuple([shifted(part, starts) for part in tree])
    if isinstance(tree, slice):
        return slice(*(shifted(part, starts) for part in (tree.start, tree.stop, tree.step)))
    if isinstance(tree, Mapping):
        return MappingProxyType({key: shifted(part, starts) for key, part in tree.items()})
    return tree
