"""LSTM, GRU and SimpleRNN: all steps, the last one, and states, as PyTorch's modules or our own return them."""

from collections.abc import Sequence

from ....errors import LayerError
from ....graph.shapes.recurrent import states_of
from ....records.layer import PlainLayer
from ....records.model import Term
from ..use import Use, Written, atom, last

States = Term | Sequence[Term]
MERGED = {"sum": "{0} + {1}", "mul": "{0} * {1}", "ave": "({0} + {1}) / 2"}


def recurrent(
    layer: PlainLayer, use: Use, sequences: Term, initial_state: States = (), mask: Term | None = None
) -> Written:
    """The module's outputs of all steps, or of the last one."""
    settings, is_stock = layer.settings, is_stock_module(use)
    flipped = ".flip(1)" if settings["go_backwards"] else ""
    text = called(layer, use, sequences, terms_of(initial_state), mask, flipped)
    steps = "" if settings["return_sequences"] else "[:, -1]"
    if not settings["return_state"]:
        return Written(f"{text}[0]{steps}")
    names = ("output", "state", "cell_state")[: 1 + states_of(layer)]
    places = [f"{{{number}}}" for number in range(1, len(names))]
    states = ", ".join(places) if is_stock and len(places) == 1 else f"({', '.join(places)}{',' * (len(places) == 1)})"
    return Written(
        statements=(f"{{0}}, {states} = {braced(text)}",),
        outputs=(f"{{0}}{steps}", *(f"{place}[0]" if is_stock else place for place in places)),
        locals=names,
    )


def bidirectional(
    layer: PlainLayer, use: Use, sequences: Term, initial_state: States = (), mask: Term | None = None
) -> Written:
    """The outputs of both directions, merged."""
    first, is_stock, mode = layer.inside[0], is_stock_module(use), layer.settings["merge_mode"]
    settings = first.settings
    text = called(layer, use, sequences, terms_of(initial_state), mask, "")
    if not settings["return_state"] and settings["return_sequences"] and mode == "concat":
        return Written(f"{text}[0]" if is_stock else f"torch.cat({text}[0], -1)")
    count = states_of(first) * 2 if settings["return_state"] else 0
    names = ["forward", "backward", *(f"state_{number}" for number in range(1, count + 1))]
    first_step, last_step = ("", "") if settings["return_sequences"] else ("[:, 0]", "[:, -1]")
    ends = [f"{{0}}{last_step}", f"{{1}}{first_step}"]
    statements, states = statements_of(text, count, is_stock=is_stock, names=names)
    if is_stock and settings["return_sequences"] and mode == "concat":  # as PyTorch returns them
        return Written(statements=statements[:1], outputs=("{2}", *states), locals=tuple(names))
    return Written(statements=statements, outputs=(*merged(ends, mode), *states), locals=tuple(names))


def statements_of(text: str, count: int, *, is_stock: bool, names: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """Statements that bind the outputs of both directions, and expressions of ``count`` states in Keras' order."""
    if not is_stock:
        places = [f"{{{number}}}" for number in range(2, 2 + count)]
        bound = f", ({', '.join(places)})" if count else ", _"
        return (f"({{0}}, {{1}}){bound} = {braced(text)}",), places
    if not count:
        return (f"{{0}}, {{1}} = {braced(text)}[0].chunk(2, -1)",), []
    # PyTorch keeps the states of both directions in one tensor, of each sort.
    kinds = count // 2
    names[2:] = ["steps", *("state", "cell_state")[:kinds]]
    places = [f"{{{3 + number}}}" for number in range(kinds)]
    bound = places[0] if kinds == 1 else f"({', '.join(places)})"
    statements = (f"{{2}}, {bound} = {braced(text)}", "{0}, {1} = {2}.chunk(2, -1)")
    return statements, [f"{place}[{direction}]" for direction in (0, 1) for place in places]


def merged(ends: list[str], mode: str | None) -> list[str]:
    """Two tensors as Keras merges them."""
    if mode is None:
        return ends
    return [f"torch.cat([{', '.join(ends)}], -1)" if mode == "concat" else MERGED[mode].format(*ends)]


def called(
    layer: PlainLayer, use: Use, sequences: Term, states: Sequence[Term], mask: Term | None, flipped: str
) -> str:
    """The call of the module."""
    text = f"{atom(last(sequences))}{flipped}" if flipped else last(sequences)
    given = [text]
    if is_stock_module(use):
        if mask is not None:
            raise LayerError(
                f"Layer '{layer.name}' is shared by calls with a mask and calls without one in different models. "
                "This has no rule yet; build one model without the nesting from the same layers, and save it."
            )
        given += [stock_states(layer, states)] if states else []
    else:
        given += [f"[{', '.join(state.text for state in states)}]"] if states else []
        given += [f"mask={as_bits(mask)}{flipped}"] if mask is not None else []
    return f"{use.module}({', '.join(given)})"


def stock_states(layer: PlainLayer, states: Sequence[Term]) -> str:
    """States as PyTorch takes them: those of both directions in one tensor, of each sort."""
    directions = len(layer.inside) or 1
    kinds = len(states) // directions
    texts = [
        f"torch.stack([{', '.join(state.text for state in states[kind::kinds])}])"
        if directions > 1
        else f"{atom(states[kind].text)}[None]"
        for kind in range(kinds)
    ]
    return texts[0] if kinds == 1 else f"({', '.join(texts)})"


def terms_of(given: States) -> Sequence[Term]:
    """The initial states."""
    return (given,) if isinstance(given, Term) else given


def as_bits(mask: Term) -> str:
    """The mask, which Keras takes as numbers, too."""
    return atom(mask.text) if mask.spec.dtype == "bool" else f"{atom(mask.text)}.bool()"


def is_stock_module(use: Use) -> bool:
    """Whether the layer's module is one of PyTorch's own."""
    return use.plan is not None and use.plan.module.is_stock


def braced(text: str) -> str:
    """Text of an expression in a statement with places for names."""
    return text.replace("{", "{{").replace("}", "}}")


LINES = {
    **dict.fromkeys(("LSTM", "GRU", "SimpleRNN", "CuDNNLSTM", "CuDNNGRU"), recurrent),
    "Bidirectional": bidirectional,
}
