"""Arguments of operations as expressions: tensors, numbers, and arrays that stand in the graph."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .....graph.shapes.dtypes import BITS, is_float, is_whole, result_type
from .....graph.shapes.operations.arguments import as_spec
from .....records.graph import Constant
from .....records.model import Order, Term
from ...use import Use, atom, in_one_order, last

MODEL_DTYPE = "self.dtype"  # a property that a class has where a line uses it
WHOLE = "{}.long()"
BOOL = "{}.bool()"


def number(value: Any) -> str:
    """A number as Python writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "math.nan" if math.isnan(value) else "-math.inf" if value < 0 else "math.inf"
    return repr(value)


def dtype_of(item: Any) -> str | None:
    """What a tensor, an array or a number is."""
    return item.spec.dtype if isinstance(item, Term) else as_spec(item).dtype


def rank_of(item: Any) -> int:
    """How many axes it has."""
    return item.rank if isinstance(item, Term) else len(as_spec(item).shape or ())


def text_of(use: Use, item: Any) -> str:
    """An argument in Keras' order of axes, in its own dtype."""
    if isinstance(item, Term):
        return last(item)
    if isinstance(item, Constant) and item.array.ndim == 0:
        return number(item.array.item())
    if isinstance(item, Constant):
        text = use.constant(item)  # stored as floats
        sort = item.array.dtype.kind
        return BOOL.format(text) if sort == "b" else WHOLE.format(text) if sort in "iu" else text
    if isinstance(item, tuple):
        return f"[{', '.join(text_of(use, part) for part in item)}]"
    return number(item)


def is_tensor(item: Any) -> bool:
    """Whether it is a tensor in the source: a number is none, and an array is one."""
    return isinstance(item, Term) or (isinstance(item, Constant) and item.array.ndim > 0)


def as_float(text: str, dtype: str | None) -> str:
    """In the model's dtype."""
    return text if is_float(dtype) else f"{atom(text)}.to({MODEL_DTYPE})"


def as_whole(text: str, dtype: str | None) -> str:
    """As places, or numbers that are counted."""
    return text if is_whole(dtype) else f"{atom(text)}.long()"


def as_bits(text: str, dtype: str | None) -> str:
    """As true and false."""
    return text if dtype == BITS else f"{atom(text)}.bool()"


def float_text(use: Use, item: Any) -> str:
    """An argument in Keras' order of axes as floats."""
    return as_float(text_of(use, item), dtype_of(item)) if is_tensor(item) else text_of(use, item)


def together(
    use: Use, items: Sequence[Any], needs_float: bool | None = None, counted: int | None = None
) -> tuple[list[str], Order]:
    """Arguments that broadcast, in one order of axes, and in dtypes that PyTorch promotes as Keras does.

    Args:
        use: of the call.
        items: tensors, arrays and numbers.
        needs_float: whether the result is of floats; None where Keras' promotion says.
        counted: how many of them make the result, the first ones; None for all.
    """
    terms = [item for item in items if isinstance(item, Term)]
    ranks = {item.rank for item in terms if item.rank > 0}
    arrays = [item for item in items if is_tensor(item) and not isinstance(item, Term)]
    order: Order = "last"
    texts = [text_of(use, item) for item in items]
    if len(ranks) == 1 and not arrays and all(item.rank for item in terms):
        in_order, order = in_one_order(terms)
        ordered = iter(in_order)
        texts = [next(ordered) if isinstance(item, Term) else text for item, text in zip(items, texts, strict=True)]
    return [*in_dtype(texts[:counted], items[:counted], needs_float), *texts[len(items[:counted]) :]], order


def in_dtype(texts: Sequence[str], items: Sequence[Any], needs_float: bool | None) -> list[str]:
    """Tensors made floats where none is one and the result is; bits counted where the result is a whole number."""
    dtypes, tensors = [dtype_of(item) for item in items], [is_tensor(item) for item in items]
    result = result_type(dtypes)
    wants_float = is_float(result) if needs_float is None else needs_float
    has_float = any(flag and is_float(dtype) for flag, dtype in zip(tensors, dtypes, strict=True))
    if (wants_float and has_float) or (not wants_float and not is_whole(result)):
        return [*texts]
    change = as_float if wants_float else as_whole
    return [change(text, dtype) if flag else text for text, dtype, flag in zip(texts, dtypes, tensors, strict=True)]


def axes_text(axis: Any, rank: int, keepdims: bool = False) -> list[str]:
    """The arguments that name axes: nothing for all, unless they stay."""
    axis = tuple(range(rank)) if axis is None and keepdims else axis
    if axis is None:
        return []
    return [repr(axis[0] if isinstance(axis, tuple) and len(axis) == 1 else axis)]


def size_text(item: Any) -> str:
    """A size that is told, or that of a tensor's axis."""
    if not isinstance(item, Mapping):
        return str(item)
    return f"{atom(last(item['size_of']))}.shape[{item['axis']}]"


def device_of(items: Sequence[Any]) -> str:
    """The argument that puts a new tensor where those are whose sizes it has."""
    found = next((item["size_of"] for item in items if isinstance(item, Mapping)), None)
    return "" if found is None else f", device={atom(last(found))}.device"


def called(text: str, method: str, *arguments: str) -> str:
    """A method of an expression."""
    return f"{atom(text)}.{method}({', '.join(arguments)})"


def sizes_text(sizes: Sequence[Any]) -> str:
    """Sizes as a tuple."""
    texts = [*map(size_text, sizes)]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
