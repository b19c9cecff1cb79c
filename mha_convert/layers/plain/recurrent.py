"""LSTM, GRU and SimpleRNN, in the forms of every Keras.

https://keras.io/api/layers/recurrent_layers/
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...records.layer import PlainLayer
from ...records.source import Group
from ..companions import Companion, Settings
from ..settings import Setting, switch
from .activations import setting as activation
from .linear import count

PARTS = ("initializer", "regularizer", "constraint")
WITHOUT_EFFECT = (
    *(f"{role}_{part}" for role in ("kernel", "recurrent", "bias") for part in PARTS),
    "activity_regularizer",
    "dropout",  # in training only, as recurrent_dropout
    "recurrent_dropout",
    "seed",
    "implementation",
    "unit_forget_bias",  # of the first numbers only
    "use_cudnn",
    "input_shape",
    "input_dim",
    "input_length",
)
GATES: Mapping[str, int] = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}


def is_false(value: Any) -> bool:
    """Whether it is false, the only value that has a rule."""
    return value is False


def always_false(name: str, why: str) -> Setting:
    """A setting that would change what the layer computes from call to call, or how its tensors lie."""
    return Setting(name=name, is_valid=is_false, expected=f"false ({why})", default=False, may_be_null=True)


OF_EVERY_KIND = (
    count("units"),
    switch("return_sequences", False),
    switch("return_state", False),
    switch("go_backwards", False),
    always_false("stateful", "a layer that keeps its state from one call to the next has no rule"),
    always_false("time_major", "inputs with the length in front of the batch have no rule"),
    switch("unroll", False, may_be_null=True),
    switch("zero_output_for_mask", False, may_be_null=True),
)
OWN_ACTIVATIONS = (activation(default="tanh"), switch("use_bias", True))
GATED = (*OF_EVERY_KIND, *OWN_ACTIVATIONS, activation("recurrent_activation", "sigmoid"))


def of_cudnn(settings: Settings) -> Settings:
    """Keras 2's layers for one sort of processor: the usual activations, and a bias on both sides."""
    return settings | {"activation": "tanh", "recurrent_activation": "sigmoid", "use_bias": True, "reset_after": True}


def array_faults(layer: PlainLayer, group: Group | None) -> Iterator[str]:
    """Each gate has ``units`` columns; GRU has two rows of biases where the state is reset after its product."""
    units = layer.settings["units"]
    cell = layer.kind.removeprefix("CuDNN")
    width = GATES[cell] * units
    kernel = layer.arrays["kernel"].shape
    wanted: dict[str, tuple[int, ...]] = {
        "kernel": (kernel[0] if len(kernel) == 2 else 0, width),
        "recurrent_kernel": (units, width),
        "bias": (2, width) if cell == "GRU" and layer.settings["reset_after"] else (width,),
    }
    if cell != layer.kind:
        wanted["bias"] = (2 * width,)
    for role, variable in layer.arrays.items():
        if variable.shape != wanted[role]:
            expected = tuple(size or "features" for size in wanted[role])
            yield f"its {role.replace('_', ' ')} is {variable.shape}, expected {expected}"


LSTM = Companion(kind="LSTM", settings=GATED, without_effect=WITHOUT_EFFECT, faults=array_faults)
ROWS = (
    LSTM,
    # Files of the first versions do not say that they reset the state before its product.
    replace(LSTM, kind="GRU", settings=(*GATED, switch("reset_after", False))),
    replace(LSTM, kind="SimpleRNN", settings=(*OF_EVERY_KIND, *OWN_ACTIVATIONS)),
    *(replace(LSTM, kind=kind, settings=OF_EVERY_KIND, normalized=of_cudnn) for kind in ("CuDNNLSTM", "CuDNNGRU")),
)
