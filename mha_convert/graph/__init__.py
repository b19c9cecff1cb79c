"""Which layer is called with what? From a model's configuration to its ``Graph``; no array is needed for that.

``entries`` makes a tree of the configuration, ``shared`` finds the entries of one layer, ``functional`` and
``sequential`` read the calls of a model (in the forms of ``keras2`` and ``keras3``, with ``plain`` data), ``numbering``
says how the calls of nested models are counted, ``operations`` which entries are functions, ``order`` how all are run.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ..errors import LayerError, ReadError
from ..readers.keras_classes import is_own, module_of, registered_name
from ..records.graph import Call, Graph, GraphLayer, TensorSpec, Value, leaves
from ..records.source import Checkpoint
from . import functional, sequential
from .entries import GRAPH_KEYS, Entry, tree_of
from .functional import Calls
from .operations import is_operation
from .order import in_order
from .plain import MalformedError, plain, shape_of
from .shared import find_shared

REBUILD = "Build it with keras.Model(inputs, outputs) from the same layers, load its weights into that, and save it"


def graph_of(checkpoint: Checkpoint) -> Graph:
    """The graph of a saved model: its calls in order, nested models included.

    Args:
        checkpoint: from ``read``, of a file with a configuration or with one passed beside it.

    Raises:
        LayerError: the model's class does not write down what it computes, as subclasses of ``keras.Model`` do not.
        ReadError: there is no configuration, or its graph is not one: a cycle, a reference that leads nowhere, two
            layers of one name, a form that no Keras writes.
    """
    try:
        entries = tree_of(root_config(checkpoint))
        refuse_without_graph(entries[0], checkpoint)
        find_shared(entries, checkpoint)
        return graphs_of(entries, checkpoint.keras_version)[entries[0]]
    except MalformedError as error:
        raise ReadError(f"{checkpoint.path}: its graph is malformed: {error}. Save the model again.") from None


def root_config(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """The model's entry as the configuration has it.

    Raises:
        ReadError: there is none.
    """
    config = checkpoint.root.config
    if config is None:
        raise ReadError(
            f"{checkpoint.path} has no configuration, so its graph is unknown. Pass what model.to_json() returns as "
            "--config FILE.json (config=)."
        )
    module = {} if config.module is None else {"module": config.module}
    named = {"class_name": config.registered_name if config.is_own and config.registered_name else config.class_name}
    facts = {"registered_name": config.registered_name, "build_config": config.build, "config": config.settings}
    return {**named, **module, **facts}


def refuse_without_graph(root: Entry, checkpoint: Checkpoint) -> None:
    """A model whose configuration does not list calls."""
    config = checkpoint.root.config
    if root.is_model or config is None:
        return
    title = config.title
    if config.is_own:
        fact = f"is a '{title}', a class whose own code says what it computes, and that is not in the file"
        raise LayerError(f"{checkpoint.path} {fact}. {REBUILD}.")
    raise LayerError(f"{checkpoint.path} is a '{title}', of which the file holds settings and no graph. {REBUILD}.")


def graphs_of(entries: list[Entry], keras_version: str | None) -> dict[Entry, Graph]:
    """The graph of every model, by the entry that it stands for."""
    routes: dict[Entry, list[tuple[str, ...]]] = {}
    for entry in entries:
        routes.setdefault(entry.stands_for, []).append(entry.route)
    layers: dict[Entry, GraphLayer] = {}
    graphs: dict[Entry, Graph] = {}
    for model in inner_first(entries[0]):
        if model.stands_for is not model:
            continue
        try:
            graphs[model] = graph(model, graphs, layers, routes, keras_version)
        except MalformedError as error:
            if not model.route:
                raise
            raise MalformedError(f"in model '{'/'.join(model.route)}' {error}") from None
    return graphs


def inner_first(root: Entry) -> Iterator[Entry]:
    """Every model after those inside it, in the order of the file."""
    stack = [(root, False)]
    while stack:
        entry, is_last = stack.pop()
        if is_last:
            yield entry
        elif entry.is_model:
            stack += [(entry, True), *((child, False) for child in reversed(entry.layers.values()))]


def graph(
    model: Entry,
    graphs: Mapping[Entry, Graph],
    layers: dict[Entry, GraphLayer],
    routes: Mapping[Entry, list[tuple[str, ...]]],
    keras_version: str | None,
) -> Graph:
    """One model, of which the nested ones are finished; ``layers`` gets those that are new."""
    if model.is_sequential:
        found, implied = sequential.read(model, graphs)
    else:
        found, implied = functional.read(model, graphs), None
    for entry in model.layers.values():
        if entry.stands_for not in layers:
            keys = [(entry.name, number) for number in range(max(1, len(entry.nodes)))]
            calls = [found.calls[key] for key in keys if key in found.calls]
            layers[entry.stands_for] = layer_of(entry, calls, found.by_keras_3, graphs, routes)
    own = {name: layers[entry.stands_for] for name, entry in model.layers.items()}
    own = {implied.name: implied, **own} if implied is not None else own
    check_references(found, own)
    parents = {key: [(value.layer, value.call) for value in call.values] for key, call in found.calls.items()}
    order, dead = in_order([(value.layer, value.call) for value in leaves(found.outputs)], parents)
    check_closed(found, own, order)
    return Graph(
        name=model.name,
        class_name=model.class_name,
        is_own=is_own(model.config),
        layers=MappingProxyType(own),
        calls=tuple(found.calls[key] for key in order),
        dead=tuple(found.calls[key] for key in dead),
        inputs=found.inputs,
        outputs=found.outputs,
        specs=MappingProxyType(with_more_specs(found, own)),
        keras_version=keras_version,
    )


def layer_of(
    entry: Entry,
    calls: list[Call],
    by_keras_3: bool,
    graphs: Mapping[Entry, Graph],
    routes: Mapping[Entry, list[tuple[str, ...]]],
) -> GraphLayer:
    """The record of one entry."""
    config = entry.config
    operation = is_operation(config, calls, by_keras_3)
    hidden = GRAPH_KEYS if entry.is_model else ()
    build = config.get("build_config")
    return GraphLayer(
        name=entry.name,
        class_name=entry.class_name,
        registered_name=registered_name(config),
        module=module_of(config),
        is_own=is_own(config) and not operation,
        is_operation=operation,
        settings=plain({key: value for key, value in entry.settings.items() if key not in hidden}),
        build=plain(build if isinstance(build, dict) else {}),
        graph=graphs.get(entry.stands_for),
        routes=tuple(routes[entry.stands_for]),
    )


def check_references(found: Calls, layers: Mapping[str, GraphLayer]) -> None:
    """Every value is an output of a call that there is, and a nested model is called with what it takes."""
    nested = {name: layer.graph for name, layer in layers.items() if layer.graph is not None}
    taken = {name: len(list(leaves(inside.inputs))) for name, inside in nested.items()}
    returned = {name: len(list(leaves(inside.outputs))) for name, inside in nested.items()}
    returned |= {name: 1 for name, layer in layers.items() if layer.is_input}
    for call in found.calls.values():
        for value in call.values:
            check_value(value, found, layers, returned, f"layer '{call.layer}' is called with")
        first = call.arguments[0] if call.arguments else call.keywords.get("inputs", ())
        count, is_by_name = len(list(leaves(first))), isinstance(first, Mapping)
        if taken.get(call.layer, count) != count and not is_by_name:
            raise MalformedError(
                f"model '{call.layer}' is called with {count} tensors, and has {taken[call.layer]} inputs"
            )
    for value in leaves(found.outputs):
        check_value(value, found, layers, returned, "the model returns")
    for value in leaves(found.inputs):
        check_value(value, found, layers, returned, "the model takes")
        if not layers[value.layer].is_input:
            raise MalformedError(f"the input '{value.layer}' of the model is not an InputLayer")


def check_value(
    value: Value, found: Calls, layers: Mapping[str, GraphLayer], returned: Mapping[str, int], who: str
) -> None:
    """One value is an output of a call that there is; ``returned`` counts the outputs where they are known."""
    name = value.layer
    if name not in layers:
        raise MalformedError(f"{who} an output of '{name}', which is not among the layers")
    if (name, value.call) not in found.calls and (not layers[name].is_input or value.call):
        raise MalformedError(f"{who} the output of call {value.call} of layer '{name}', which is not called so often")
    if value.output < 0 or value.output >= returned.get(name, value.output + 1):
        raise MalformedError(
            f"{who} output {value.output} of layer '{name}', which has {returned.get(name, 'no such')} outputs"
        )


def check_closed(found: Calls, layers: Mapping[str, GraphLayer], order: list[tuple[str, int]]) -> None:
    """Every input that a call or an output depends on is one of the model's."""
    inputs = set(leaves(found.inputs))
    used = [value for key in order for value in found.calls[key].values]
    for value in (*used, *leaves(found.outputs)):
        if layers[value.layer].is_input and value not in inputs:
            raise MalformedError(f"the input '{value.layer}' is used, and is not one of the model's")


def with_more_specs(found: Calls, layers: Mapping[str, GraphLayer]) -> dict[Value, TensorSpec]:
    """What calls say of values, what inputs say of themselves, and what layers were built with."""
    specs = dict(found.specs)
    for name, layer in layers.items():
        if layer.is_input:
            shape, dtype = (layer.settings.get(key) for key in ("batch_shape", "dtype"))
            shape = layer.settings.get("batch_input_shape") if shape is None else shape
            told = TensorSpec(shape_of(shape), dtype if isinstance(dtype, str) else None)
            specs.setdefault(Value(name), told)
    for call in found.calls.values():
        shape = shape_of(layers[call.layer].build.get("input_shape"))
        is_only = (call.layer, 1) not in found.calls and len(call.values) == 1
        if shape is not None and is_only and call.arguments[:1] == call.values:
            specs.setdefault(call.values[0], TensorSpec(shape))
    return {value: spec for value, spec in specs.items() if spec != TensorSpec()}
