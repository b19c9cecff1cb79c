"""``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` where they compute the same; else modules that go step by step.

https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html: the gates of LSTM are in Keras' order, those of GRU
are not; there are two biases, whose sum acts.
"""

from collections.abc import Mapping
from typing import Any

from ...layers.plain.activations import Activation, activation_of
from ...layers.plain.wrappers import BACKWARD, FORWARD
from ...records.layer import PlainLayer
from ...records.plan import LayerPlan, ModuleSpec, Piece, Rule

TURNED = "features units -> units features"
AS_IT_IS = "... -> ..."
ONE_ROW = "rows units -> (rows units)"
TANH, SIGMOID, RELU = Activation("tanh"), Activation("sigmoid"), Activation("relu")
STOCK = {"LSTM": "LSTM", "GRU": "GRU", "SimpleRNN": "RNN"}
OWN = {"LSTM": "KerasLSTM", "GRU": "KerasGRU", "SimpleRNN": "KerasRNN"}
GATES: Mapping[str, tuple[int, ...]] = {
    "LSTM": (0, 1, 2, 3),
    "GRU": (1, 0, 2),
    "SimpleRNN": (0,),
}  # as PyTorch has them
NUMBER_OF_BIASES = 2  # input and recurrent


def recurrent(layer: PlainLayer, prefix: str, *, is_masked: bool = False) -> LayerPlan:
    """One direction."""
    if is_masked or not is_stock(layer):
        return LayerPlan(
            layer=layer, prefix=prefix, rules=tuple(own_rules(layer, "", "")), module=own_module(layer, is_masked)
        )
    return LayerPlan(layer=layer, prefix=prefix, rules=tuple(stock_rules(layer, "", "")), module=stock_module(layer))


def bidirectional(layer: PlainLayer, prefix: str, *, is_masked: bool = False) -> LayerPlan:
    """Both directions in one module where they differ in nothing else."""
    forward, backward = layer.inside
    rules: list[Rule]
    if not is_masked and all(map(is_stock, layer.inside)) and of_one_form(forward) == of_one_form(backward):
        rules = [*stock_rules(forward, FORWARD, ""), *stock_rules(backward, BACKWARD, "_reverse")]
        spec = stock_module(forward)
        module = ModuleSpec(class_name=spec.class_name, arguments={**spec.arguments, "bidirectional": True})
        return LayerPlan(layer=layer, prefix=prefix, rules=tuple(rules), module=module)
    rules = [*own_rules(forward, FORWARD, "forward_layer."), *own_rules(backward, BACKWARD, "backward_layer.")]
    module = ModuleSpec(
        class_name="Bidirectional",
        arguments={"forward_layer": own_module(forward, is_masked), "backward_layer": own_module(backward, is_masked)},
    )
    return LayerPlan(layer=layer, prefix=prefix, rules=tuple(rules), module=module)


def cell_of(layer: PlainLayer) -> str:
    """The kind, whichever processor it was made for."""
    return layer.kind.removeprefix("CuDNN")


def activations_of(layer: PlainLayer) -> dict[str, Activation | None]:
    """The activations by what PyTorch's arguments are called."""
    names = ("activation", "recurrent_activation") if cell_of(layer) != "SimpleRNN" else ("activation",)
    return {name: activation_of(layer.settings[name], layer.version) for name in names}


def is_stock(layer: PlainLayer) -> bool:
    """Whether PyTorch's own module computes the same, without a mask."""
    found = activations_of(layer)
    if cell_of(layer) == "SimpleRNN":
        return found["activation"] in (TANH, RELU)
    is_usual = found == {"activation": TANH, "recurrent_activation": SIGMOID}
    return is_usual and (cell_of(layer) == "LSTM" or layer.settings["reset_after"])


def of_one_form(layer: PlainLayer) -> Any:
    """What two directions must share to be one module of PyTorch."""
    return stock_module(layer), layer.arrays["kernel"].shape


def sizes_of(layer: PlainLayer) -> dict[str, Any]:
    """Of the constructor."""
    features, _ = layer.arrays["kernel"].shape
    return {"input_size": features, "hidden_size": layer.settings["units"]} | (
        {} if "bias" in layer.arrays else {"bias": False}
    )


def stock_module(layer: PlainLayer) -> ModuleSpec:
    """PyTorch's own."""
    nonlinearity = {"nonlinearity": "relu"} if activations_of(layer)["activation"] == RELU else {}
    return ModuleSpec(
        class_name=STOCK[cell_of(layer)], arguments=sizes_of(layer) | nonlinearity | {"batch_first": True}
    )


def own_module(layer: PlainLayer, is_masked: bool) -> ModuleSpec:
    """Step by step, with whatever is not as usual."""
    usual = {"activation": TANH, "recurrent_activation": SIGMOID}
    others = {name: found for name, found in activations_of(layer).items() if found != usual[name]}
    zeros = {"zero_where_masked": True} if is_masked and layer.settings["zero_output_for_mask"] else {}
    is_first_form = cell_of(layer) == "GRU" and not layer.settings["reset_after"]
    name = "KerasGRUResetBefore" if is_first_form else OWN[cell_of(layer)]
    return ModuleSpec(class_name=name, arguments=sizes_of(layer) | others | zeros)


def gates(layer: PlainLayer, source: str, pattern: str, order: tuple[int, ...], **more: tuple[int, int]) -> list[Piece]:
    """The rows of each gate, one after the other."""
    units = layer.settings["units"]
    return [Piece(source, pattern, parts={"units": (gate * units, (gate + 1) * units), **more}) for gate in order]


def bias_pieces(layer: PlainLayer, prefix: str, side: int, order: tuple[int, ...]) -> list[Piece]:
    """The bias of one side, 0 for the input and 1 for the state: zeros for the state where Keras has one bias."""
    bias, units = layer.arrays["bias"], layer.settings["units"]
    width = layer.arrays["kernel"].shape[1]
    source = f"{prefix}bias"
    if len(bias.shape) == NUMBER_OF_BIASES:
        return gates(layer, source, ONE_ROW, order, rows=(side, side + 1))
    if bias.shape[0] == NUMBER_OF_BIASES * width:
        return gates(layer, source, "units -> units", tuple(side * width // units + gate for gate in order))
    if side:
        return [Piece(made="zeros", shape=(width,))]
    return gates(layer, source, "units -> units", order)


def stock_rules(layer: PlainLayer, prefix: str, suffix: str) -> list[Rule]:
    """Of PyTorch's module; ``suffix`` is that of the direction."""
    order = GATES[cell_of(layer)]
    whole = len(order) == 1 or cell_of(layer) == "LSTM"

    def kernel(name: str) -> tuple[Piece, ...]:
        return (Piece(name, TURNED),) if whole else tuple(gates(layer, name, TURNED, order))

    def bias(side: int) -> tuple[Piece, ...]:
        is_plain = whole and not side and len(layer.arrays["bias"].shape) == 1 and not is_double(layer)
        return (Piece(f"{prefix}bias", AS_IT_IS),) if is_plain else tuple(bias_pieces(layer, prefix, side, order))

    rules = [
        Rule(f"weight_ih_l0{suffix}", kernel(f"{prefix}kernel")),
        Rule(f"weight_hh_l0{suffix}", kernel(f"{prefix}recurrent_kernel")),
    ]
    if "bias" in layer.arrays:
        rules += [Rule(f"bias_ih_l0{suffix}", bias(0)), Rule(f"bias_hh_l0{suffix}", bias(1))]
    return rules


def is_double(layer: PlainLayer) -> bool:
    """Whether one axis holds the biases of both sides."""
    return layer.arrays["bias"].shape[0] != layer.arrays["kernel"].shape[1]


def own_rules(layer: PlainLayer, prefix: str, place: str) -> list[Rule]:
    """Of the modules that go step by step, with the gates in Keras' order; ``place`` is that of the direction."""
    order = tuple(range(len(GATES[cell_of(layer)])))
    rules = [Rule(f"{place}input.weight", (Piece(f"{prefix}kernel", TURNED),))]
    rules += [Rule(f"{place}input.bias", tuple(bias_pieces(layer, prefix, 0, order)))] if "bias" in layer.arrays else []
    rules.append(Rule(f"{place}recurrent.weight", (Piece(f"{prefix}recurrent_kernel", TURNED),)))
    if "bias" in layer.arrays and cell_of(layer) == "GRU" and layer.settings["reset_after"]:
        rules.append(Rule(f"{place}recurrent.bias", tuple(bias_pieces(layer, prefix, 1, order))))
    return rules


# Kinds whose module depends on whether some call of the layer has a mask.
BY_MASK: Mapping[str, Any] = {
    **dict.fromkeys(("LSTM", "GRU", "SimpleRNN", "CuDNNLSTM", "CuDNNGRU"), recurrent),
    "Bidirectional": bidirectional,
}
LAY_OUT = BY_MASK
