"""What the line of a call may ask for, and small pieces of expressions."""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...records.graph import Constant
from ...records.model import Order, Term
from ...records.plan import LayerPlan

MEMBERS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)


@dataclass(frozen=True, slots=True)
class Use:
    """How one call reaches its module, and what else it needs.

    ``constant`` makes the expression of an array that stands in the graph.
    """

    module: str
    plan: LayerPlan | None = None
    constant: Callable[[Constant], str] = repr


@dataclass(frozen=True, slots=True)
class Written:
    """What a call returns: one expression for all outputs, or statements and an expression for each output.

    ``outputs`` are expressions over what ``statements`` bind; ``{0}`` in both stands for a fresh local name.
    """

    text: str = ""
    order: Order = "last"
    statements: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    locals: tuple[str, ...] = ()


def atom(text: str) -> str:
    """An expression that may stand in front of a dot or between operators; in parentheses where it must."""
    return text if isinstance(ast.parse(text, mode="eval").body, MEMBERS) else f"({text})"


def operand(text: str) -> str:
    """An expression that may stand between operators of one sort."""
    return atom(text)


def last(term: Term) -> str:
    """A tensor in Keras' order: channels behind the other axes."""
    if term.order == "last" or term.rank < 3:
        return term.text
    return f"{atom(term.text)}.transpose(1, 2)" if term.rank == 3 else f"{atom(term.text)}.movedim(1, -1)"


def first(term: Term) -> str:
    """A tensor in PyTorch's order for convolutions: channels behind the batch."""
    if term.order == "first" or term.rank < 3:
        return term.text
    return f"{atom(term.text)}.transpose(1, 2)" if term.rank == 3 else f"{atom(term.text)}.movedim(-1, 1)"


def in_one_order(terms: Sequence[Term]) -> tuple[list[str], Order]:
    """Several tensors in the order that most of them are in."""
    count = sum(term.order == "first" for term in terms)
    order: Order = "first" if 2 * count > len(terms) else "last"
    return [(first if order == "first" else last)(term) for term in terms], order


def axis_in(term: Term, axis: int, order: Order) -> int:
    """An axis of Keras as the tensor has it in an order."""
    place = axis % term.rank
    if order == "last" or term.rank < 3 or place == 0:
        return axis
    return 1 if place == term.rank - 1 else place + 1
