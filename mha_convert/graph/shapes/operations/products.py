"""Products of matrices and of axes with letters."""

from collections.abc import Callable, Mapping
from typing import Any

from ....records.graph import TensorSpec
from ..sizes import ShapeError, Size, Sizes, broadcast, one, place, product, sizes, together
from .arguments import as_spec, dtype_of, refuse, refuse_unless


def matmul(layer: Any, x1: Any, x2: Any) -> TensorSpec:
    """Of vectors, or of the last two axes; those before broadcast."""
    first, second = sizes(as_spec(x1)), sizes(as_spec(x2))
    refuse_unless(len(first) > 0 and len(second) > 0, layer, "multiplies a number as a matrix")
    one(first[-1], second[-2 if len(second) > 1 else 0], "the axes that it sums over")
    outer = together(first[:-2], second[:-2])
    rows, columns = first[-2:-1], second[-1:] if len(second) > 1 else ()
    return TensorSpec((*outer, *rows, *columns), dtype_of((x1, x2)))


def dot(layer: Any, x1: Any, x2: Any) -> TensorSpec:
    """The last axis of one and the last but one of the other."""
    first, second = sizes(as_spec(x1)), sizes(as_spec(x2))
    if not first or not second:
        return TensorSpec(first or second, dtype_of((x1, x2)))
    number = max(0, len(second) - 2)
    one(first[-1], second[number], "the axes that it sums over")
    return TensorSpec((*first[:-1], *second[:number], *second[number + 1 :]), dtype_of((x1, x2)))


def inner(layer: Any, x1: Any, x2: Any) -> TensorSpec:
    """The last axes of both."""
    first, second = sizes(as_spec(x1)), sizes(as_spec(x2))
    one(first[-1], second[-1], "the axes that it sums over")
    return TensorSpec((*first[:-1], *second[:-1]), dtype_of((x1, x2)))


def summed_axes(axes: Any, first: int, second: int) -> tuple[list[int], list[int]]:
    """The axes of both that ``tensordot`` sums over."""
    if isinstance(axes, int):
        return list(range(first - axes, first)), list(range(axes))
    a, b = ([side] if isinstance(side, int) else list(side) for side in axes)
    return [place(axis, first) for axis in a], [place(axis, second) for axis in b]


def tensordot(layer: Any, x1: Any, x2: Any, axes: Any = 2) -> TensorSpec:
    """Some axes of each."""
    first, second = sizes(as_spec(x1)), sizes(as_spec(x2))
    a, b = summed_axes(axes, len(first), len(second))
    for left, right in zip(a, b, strict=True):
        one(first[left], second[right], "the axes that it sums over")
    rest = [size for number, size in enumerate(first) if number not in a]
    rest += [size for number, size in enumerate(second) if number not in b]
    return TensorSpec(tuple(rest), dtype_of((x1, x2)))


def outer(layer: Any, x1: Any, x2: Any) -> TensorSpec:
    """Every number with every other."""
    return TensorSpec((product(sizes(as_spec(x1))), product(sizes(as_spec(x2)))), dtype_of((x1, x2)))


def einsum(layer: Any, *operands: Any, subscripts: str) -> TensorSpec:
    """Axes with letters; an ellipsis stands for any number of them."""
    if not isinstance(subscripts, str) or len(subscripts) > 200:
        refuse(layer, "has no equation")
    taken, arrow, given = subscripts.replace(" ", "").partition("->")
    terms = taken.split(",")
    if not arrow or len(terms) != len(operands):
        refuse(layer, f"has the equation '{subscripts[:40]}', which has no rule")
    found: dict[str, Size] = {}
    rest: Sizes = ()
    for term, operand in zip(terms, operands, strict=True):
        shape = sizes(as_spec(operand))
        before, dots, after = term.partition("...")
        if (not dots and len(before) != len(shape)) or len(before) + len(after) > len(shape):
            raise ShapeError(f"has the equation '{subscripts[:40]}' for a tensor of {len(shape)} axes")
        end = len(shape) - len(after)
        for letter, size in [*zip(before, shape, strict=False), *zip(after, shape[end:], strict=True)]:
            found[letter] = broadcast(found[letter], size) if letter in found else size
        rest = together(rest, shape[len(before) : end]) if dots else rest
    before, dots, after = given.partition("...")
    made = (*(found[letter] for letter in before), *(rest if dots else ()), *(found[letter] for letter in after))
    return TensorSpec(made, dtype_of(operands))


SHAPES: Mapping[str, Callable[..., Any]] = {
    "ops.matmul": matmul,
    "ops.dot": dot,
    "ops.inner": inner,
    "ops.tensordot": tensordot,
    "ops.outer": outer,
    "ops.einsum": einsum,
}
