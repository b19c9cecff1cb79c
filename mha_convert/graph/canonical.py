"""Calls in one form, whichever Keras wrote them.

Operations are ``ops.…`` by the names of ``keras.ops``, with its arguments.

Keras 3 writes an operation's options among its settings or among the call's keywords; Keras 2 writes functions of
TensorFlow (``TFOpLambda``), whose names and arguments a table translates. Recurrent layers have their initial states
as ``initial_state``: Keras 2 writes them behind the sequences.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ..records.graph import Call, Graph, GraphLayer
from .tensorflow_functions import FUNCTIONS, single

OVER_ALL = ("softmax", "log_softmax", "sort", "argsort", "normalize")  # null is another axis than none that is told
OF_EVERY_OPERATION = ("name", "trainable", "dtype_policy")
RENAMED = {"get_item": "getitem", "true_divide": "divide", "abs": "absolute", "fabs": "absolute", "conj": "conjugate"}
RECURRENT = ("LSTM", "GRU", "SimpleRNN", "CuDNNLSTM", "CuDNNGRU", "Bidirectional")


def canonical(graph: Graph) -> Graph:
    """The graph, and those nested in it, with every operation as ``ops.…``."""
    layers: dict[str, GraphLayer] = {}
    for name, layer in graph.layers.items():
        inner = canonical(layer.graph) if layer.graph is not None else None
        changed = layer if inner is None else replace(layer, graph=inner)
        layers[name] = (
            replace(changed, class_name=f"ops.{name_of(layer)}", settings={}) if layer.is_operation else changed
        )
    calls = [called(call, graph.layers[call.layer]) for call in graph.calls]
    return replace(graph, layers=MappingProxyType(layers), calls=tuple(calls))


def name_of(layer: GraphLayer) -> str:
    """The function of ``keras.ops``; the name that the file has where there is none."""
    symbol = layer.settings.get("function")
    if isinstance(symbol, str):
        row = FUNCTIONS.get(symbol)
        return f"tensorflow.{symbol}" if row is None else row.operation
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", layer.class_name).lower()
    return RENAMED.get(name, name)


def called(call: Call, layer: GraphLayer) -> Call:
    """An operation's call with all its options as keywords; that of a recurrent layer with its states as one."""
    if not layer.is_operation:
        return with_states(call) if layer.class_name in RECURRENT and not layer.is_own else call
    symbol = layer.settings.get("function")
    row = FUNCTIONS.get(symbol) if isinstance(symbol, str) else None
    if row is not None:
        keywords = row.keywords(call.keywords)
        return replace(call, arguments=tuple(map(single, call.arguments)), keywords=MappingProxyType(keywords))
    options: dict[str, Any] = {} if isinstance(symbol, str) else without(layer.settings)
    keywords = {**options, **without(call.keywords)}
    if name_of(layer) in OVER_ALL and keywords.get("axis", -1) is None:
        keywords["axis"] = ()
    return replace(call, keywords=MappingProxyType(keywords))


def with_states(call: Call) -> Call:
    """A recurrent layer's call: the sequences first, and the states that it starts with as a tuple."""
    arguments = call.arguments
    first = arguments[0] if arguments else call.keywords.get("sequences", call.keywords.get("inputs"))
    sequences, *states = first if isinstance(first, tuple) else (first, *arguments[1:])
    keywords = {name: value for name, value in call.keywords.items() if name not in ("sequences", "inputs")}
    states = [state for state in states if state is not None]
    if len(states) == 1 and isinstance(states[0], tuple):
        states = [*states[0]]
    given = keywords.pop("initial_state", None)
    states = states or ([*given] if isinstance(given, tuple) else [given] if given is not None else [])
    more = {"initial_state": tuple(states)} if states else {}
    return replace(call, arguments=(sequences,), keywords=MappingProxyType({**keywords, **more}))


def without(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments without those that every operation has."""
    return {name: value for name, value in given.items() if name not in OF_EVERY_OPERATION}
