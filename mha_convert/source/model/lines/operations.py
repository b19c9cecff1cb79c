"""Operations: functions of ``keras.ops`` as one writes them with torch. All keep Keras' order of axes."""

from collections.abc import Callable, Mapping
from typing import Any

from ....records.graph import Constant
from ....records.layer import PlainLayer
from ....records.model import Term
from ..use import Use, atom, last


def text_of(use: Use, item: Any) -> str:
    """A tensor, a number, or an array that stands in the graph."""
    if isinstance(item, Term):
        return last(item)
    return use.constant(item) if isinstance(item, Constant) else repr(item)


def operator(sign: str) -> Callable[..., str]:
    """An operator between two arguments."""

    def line(layer: PlainLayer, use: Use, x1: Any, x2: Any) -> str:
        return f"{atom(text_of(use, x1))} {sign} {atom(text_of(use, x2))}"

    return line


def reduction(method: str) -> Callable[..., str]:
    """A method over some axes."""

    def line(layer: PlainLayer, use: Use, x: Term, axis: Any = None, keepdims: bool = False) -> str:
        options = [] if axis is None else [repr(axis)]
        options += ["keepdim=True"] if keepdims else []
        return f"{atom(last(x))}.{method}({', '.join(options)})"

    return line


LINES: Mapping[str, Any] = {
    "ops.add": operator("+"),
    "ops.multiply": operator("*"),
    "ops.not_equal": operator("!="),
    "ops.any": reduction("any"),
}
