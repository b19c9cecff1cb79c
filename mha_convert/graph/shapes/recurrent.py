"""LSTM, GRU and SimpleRNN, in one direction or both."""

from collections.abc import Sequence

from ...records.graph import TensorSpec
from ...records.layer import PlainLayer
from .sizes import ShapeError, of_shape, one, sizes

NUMBER_OF_STATES = {"LSTM": 2, "CuDNNLSTM": 2}  # all others have one
ONE_KIND_OF_KERAS_2 = (2, 4)
States = TensorSpec | Sequence[TensorSpec]


def recurrent(
    layer: PlainLayer, sequences: TensorSpec, initial_state: States = (), mask: TensorSpec | None = None
) -> TensorSpec | tuple[TensorSpec, ...]:
    """The last output or all, and the states where they are asked for."""
    check(layer, sequences, mask)
    batch, length, _ = sizes(sequences)
    units = layer.settings["units"]
    check_states(initial_state, [units] * states_of(layer))
    output = of_shape(sequences, (batch, length, units) if layer.settings["return_sequences"] else (batch, units))
    states = (of_shape(sequences, (batch, units)),) * states_of(layer)
    return (output, *states) if layer.settings["return_state"] else output


def bidirectional(
    layer: PlainLayer, sequences: TensorSpec, initial_state: States = (), mask: TensorSpec | None = None
) -> TensorSpec | tuple[TensorSpec, ...]:
    """Both directions, merged or as two tensors; then the states of both."""
    check_states(initial_state, [part.settings["units"] for part in layer.inside for _ in range(states_of(part))])
    if mask is not None and layer.version < ONE_KIND_OF_KERAS_2 and layer.inside[0].settings["return_sequences"]:
        raise ShapeError("is called with a mask, at which the Keras of this version gives zeros or repeats its output")
    outputs, states = [], []
    for part in layer.inside:
        found = recurrent(part, sequences, (), mask)
        first, *others = found if isinstance(found, tuple) else (found,)
        outputs.append(first)
        states += others
    mode, widths = layer.settings["merge_mode"], [sizes(output)[-1] for output in outputs]
    if mode is not None:
        width = sum(size or 0 for size in widths) if mode == "concat" else one(widths[0], widths[1], "units")
        outputs = [of_shape(outputs[0], (*sizes(outputs[0])[:-1], width))]
    return (*outputs, *states) if len(outputs) + len(states) > 1 else outputs[0]


def states_of(layer: PlainLayer) -> int:
    """How many states there are."""
    return NUMBER_OF_STATES.get(layer.kind, 1)


def check(layer: PlainLayer, sequences: TensorSpec, mask: TensorSpec | None) -> None:
    """The kernel's features, and a bit for each step."""
    shape, features = sizes(sequences), layer.arrays["kernel"].shape[0]
    if len(shape) != 3:
        raise ShapeError(f"is called with {len(shape)} axes, expected batch, length and features")
    if shape[2] not in (None, features):
        raise ShapeError(f"is called with {shape[2]} features, and its kernel takes {features}")
    if mask is None:
        return
    if len(sizes(mask)) != 2:
        raise ShapeError(f"is called with a mask of {len(sizes(mask))} axes, expected batch and length")
    one(shape[1], sizes(mask)[1], "the length")
    settings = layer.settings
    if settings["unroll"] and settings["go_backwards"] and settings["zero_output_for_mask"]:
        # Keras reverses the mask for the states, and not for the zeros (backend/tensorflow/rnn.py).
        raise ShapeError(
            "is unrolled backwards with a mask, where Keras gives zeros at other steps than the masked ones"
        )


def check_states(given: States, units: Sequence[int]) -> None:
    """Initial states are as many as the layer has, or none."""
    states = (given,) if isinstance(given, TensorSpec) else tuple(given)
    if not states:
        return
    if len(states) != len(units):
        raise ShapeError(f"is called with {len(states)} initial states, expected {len(units)}")
    for state, size in zip(states, units, strict=True):
        if len(sizes(state)) != 2 or sizes(state)[1] not in (None, size):
            raise ShapeError(f"is called with an initial state of shape {sizes(state)}, expected (batch, {size})")


SHAPES = {
    **dict.fromkeys(("LSTM", "GRU", "SimpleRNN", "CuDNNLSTM", "CuDNNGRU"), recurrent),
    "Bidirectional": bidirectional,
}
