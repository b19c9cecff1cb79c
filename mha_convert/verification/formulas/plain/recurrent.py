"""Recurrent layers as Keras' ``backend.rnn`` computes them, step by step.

https://keras.io/api/layers/recurrent_layers/; the cells are those of ``LSTMCell``, ``GRUCell`` and ``SimpleRNNCell``. A
masked step leaves the states as they are; its output is the one before, or zero.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....layers.plain.activations import activation_of
from ....records.layer import PlainLayer
from ....records.source import Array
from .activations import activated

Arrays = Mapping[str, Array]
States = tuple[Array, ...]
Cell = Callable[[PlainLayer, Arrays, Array, States], States]


def applied(layer: PlainLayer, name: str, x: Array) -> Array:
    """One of the layer's activations."""
    return activated(activation_of(layer.settings[name], layer.version), x)


def lstm(layer: PlainLayer, arrays: Arrays, x: Array, states: States) -> States:
    """Hochreiter and Schmidhuber, 1997: gates i, f, c, o."""
    h, c = states
    z = x @ arrays["kernel"] + h @ arrays["recurrent_kernel"] + total_bias(layer, arrays)
    i, f, new, o = np.split(z, 4, axis=-1)
    c = applied(layer, "recurrent_activation", f) * c
    c = c + applied(layer, "recurrent_activation", i) * applied(layer, "activation", new)
    return applied(layer, "recurrent_activation", o) * applied(layer, "activation", c), c


def total_bias(layer: PlainLayer, arrays: Arrays) -> Any:
    """The bias; CuDNN has one of the input and one of the state, which are added."""
    bias = arrays.get("bias")
    if bias is None:
        return 0.0
    return bias.reshape(-1, 4 * layer.settings["units"]).sum(0)


def gru(layer: PlainLayer, arrays: Arrays, x: Array, states: States) -> States:
    """Cho et al., 2014: gates z, r, h; ``reset_after`` multiplies the state by its kernel before it is reset."""
    (h,) = states
    units = layer.settings["units"]
    after = layer.settings["reset_after"]
    biases = arrays["bias"].reshape(-1, 3 * units) if "bias" in arrays else np.zeros((1, 3 * units))
    of_input = x @ arrays["kernel"] + biases[0]
    u = arrays["recurrent_kernel"]
    of_state = biases[1] if len(biases) > 1 else np.zeros(3 * units)
    z_part, r_part, h_part = slice(units), slice(units, 2 * units), slice(2 * units, None)
    z = applied(layer, "recurrent_activation", of_input[:, z_part] + h @ u[:, z_part] + of_state[z_part])
    r = applied(layer, "recurrent_activation", of_input[:, r_part] + h @ u[:, r_part] + of_state[r_part])
    reset = r * (h @ u[:, h_part] + of_state[h_part]) if after else (r * h) @ u[:, h_part]
    return (z * h + (1.0 - z) * applied(layer, "activation", of_input[:, h_part] + reset),)


def simple(layer: PlainLayer, arrays: Arrays, x: Array, states: States) -> States:
    """Elman, 1990."""
    result = x @ arrays["kernel"] + arrays.get("bias", 0.0) + states[0] @ arrays["recurrent_kernel"]
    return (applied(layer, "activation", result),)


CELLS: Mapping[str, tuple[Cell, int]] = {
    "LSTM": (lstm, 2),
    "GRU": (gru, 1),
    "SimpleRNN": (simple, 1),
    "CuDNNLSTM": (lstm, 2),
    "CuDNNGRU": (gru, 1),
}


def run(
    layer: PlainLayer, arrays: Arrays, sequences: Array, initial_state: Sequence[Array], mask: Array | None
) -> tuple[Array, States]:
    """The outputs of all steps in the order in which they are made, and the states after the last one."""
    cell, count = CELLS[layer.kind]
    shape = (len(sequences), layer.settings["units"])
    states = tuple(initial_state) or (np.zeros(shape),) * count
    order = range(sequences.shape[1])
    output, outputs = np.zeros(shape), []
    for step in reversed(order) if layer.settings["go_backwards"] else order:
        new = cell(layer, arrays, sequences[:, step], states)
        kept = np.ones((len(sequences), 1), bool) if mask is None else mask[:, step, None].astype(bool)
        states = tuple(np.where(kept, one, other) for one, other in zip(new, states, strict=True))
        otherwise = np.zeros(shape) if layer.settings["zero_output_for_mask"] else output
        output = np.where(kept, new[0], otherwise)
        outputs.append(output)
    return np.stack(outputs, axis=1), states


def listed(states: Any) -> tuple[Array, ...]:
    """Initial states as a tuple."""
    return tuple(states) if isinstance(states, tuple | list) else (states,)


def recurrent(
    layer: PlainLayer, arrays: Arrays, sequences: Array, initial_state: Any = (), mask: Array | None = None
) -> Any:
    """One direction."""
    outputs, states = run(layer, arrays, sequences, listed(initial_state), mask)
    output = outputs if layer.settings["return_sequences"] else outputs[:, -1]
    return (output, *states) if layer.settings["return_state"] else output


def bidirectional(
    layer: PlainLayer, arrays: Arrays, sequences: Array, initial_state: Any = (), mask: Array | None = None
) -> Any:
    """Both directions; that of the second layer is turned back in time where all steps are returned."""
    first, second = layer.inside
    given = listed(initial_state)
    half = len(given) // 2
    ahead = run(first, of_direction(arrays, "forward."), sequences, given[:half], mask)
    back = run(second, of_direction(arrays, "backward."), sequences, given[half:], mask)
    merge, has_all = MERGED[layer.settings["merge_mode"]], first.settings["return_sequences"]
    results = merge(ahead[0], back[0][:, ::-1]) if has_all else merge(ahead[0][:, -1], back[0][:, -1])
    states = (*ahead[1], *back[1]) if first.settings["return_state"] else ()
    return (*results, *states) if len(results) + len(states) > 1 else results[0]


def of_direction(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays of one direction by Keras' names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


MERGED: Mapping[Any, Callable[[Array, Array], tuple[Array, ...]]] = {
    "concat": lambda a, b: (np.concatenate([a, b], axis=-1),),
    "sum": lambda a, b: (a + b,),
    "ave": lambda a, b: ((a + b) / 2.0,),
    "mul": lambda a, b: (a * b,),
    None: lambda a, b: (a, b),
}
FORMULAS = {**dict.fromkeys(CELLS, recurrent), "Bidirectional": bidirectional}
