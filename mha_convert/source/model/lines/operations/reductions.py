"""Operations over some axes as one writes them with torch."""

from collections.abc import Callable, Mapping
from typing import Any

from .....records.layer import PlainLayer
from .....records.model import Term
from ...use import Use, Written, last
from .arguments import as_float, axes_text, called, number


def over(method: str, *more: str, sort: Callable[[str, str | None], str] | None = None) -> Callable[..., str]:
    """A method over some axes."""

    def line(layer: PlainLayer, use: Use, x: Term, axis: Any = None, keepdims: bool = False, **rest: Any) -> str:
        text = last(x) if sort is None else sort(last(x), x.spec.dtype)
        keepdim = ["keepdim=True"] if keepdims else []
        return called(text, method, *axes_text(axis, x.rank, keepdims), *more, *keepdim)

    return line


def spread(layer: PlainLayer, use: Use, x: Term, axis: Any = None, keepdims: bool = False) -> str:
    """The largest without the smallest."""
    rest = [*axes_text(axis, x.rank, keepdims), *(["keepdim=True"] if keepdims else [])]
    return f"{called(last(x), 'amax', *rest)} - {called(last(x), 'amin', *rest)}"


def log_sum(layer: PlainLayer, use: Use, x: Term, axis: Any = None, keepdims: bool = False) -> str:
    """All axes must be named."""
    axes = tuple(range(x.rank)) if axis is None else axis
    keepdim = ["keepdim=True"] if keepdims else []
    return called(as_float(last(x), x.spec.dtype), "logsumexp", *axes_text(axes, x.rank), *keepdim)


def product(layer: PlainLayer, use: Use, x: Term, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> str:
    """One axis after the other, as PyTorch takes no more."""
    if axis is None and not keepdims:
        return called(last(x), "prod")
    axes = range(x.rank) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    text = last(x)
    for place in sorted((one % x.rank for one in axes), reverse=True):
        text = called(text, "prod", repr(place), *(["keepdim=True"] if keepdims else []))
    return text


def counted(layer: PlainLayer, use: Use, x: Term, axis: Any = None) -> str:
    """How many are not 0."""
    return f"torch.count_nonzero({', '.join((last(x), *axes_text(axis, x.rank)))})"


def cumulated(method: str) -> Callable[..., str]:
    """So far, along an axis, or all in one."""

    def line(layer: PlainLayer, use: Use, x: Term, axis: int | None = None, dtype: str | None = None) -> str:
        text = called(last(x), "flatten") if axis is None else last(x)
        return called(text, method, repr(0 if axis is None else axis))

    return line


def place_of(method: str) -> Callable[..., str]:
    """Where the largest or the smallest is."""

    def line(layer: PlainLayer, use: Use, x: Term, axis: int | None = None, keepdims: bool = False) -> str:
        text = called(last(x), method, *axes_text(axis, x.rank), *(["keepdim=True"] if keepdims and axis is not None
                                                                   else []))  # fmt: skip
        return f"{text}.reshape({', '.join('1' * x.rank)})" if keepdims and axis is None else text

    return line


def moments(
    layer: PlainLayer, use: Use, x: Term, axes: Any, keepdims: bool = False, synchronized: bool = False
) -> Written:
    """Mean and variance."""
    rest = [*axes_text(axes, x.rank, keepdims), *(["keepdim=True"] if keepdims else [])]
    text = last(x)
    return Written(outputs=(called(text, "mean", *rest), called(text, "var", rest[0], "correction=0", *rest[1:])))


def norm(layer: PlainLayer, use: Use, x: Term, ord: Any = None, axis: Any = None, keepdims: bool = False) -> str:
    """Of vectors, or all numbers of matrices as one vector."""
    rest = [f"dim={text}" for text in axes_text(axis, x.rank, keepdims)] + (["keepdim=True"] if keepdims else [])
    order = ["ord=1"] if ord == 1 else []
    return f"torch.linalg.vector_norm({', '.join((as_float(last(x), x.spec.dtype), *order, *rest))})"


def normalized(
    layer: PlainLayer, use: Use, x: Term, axis: Any = -1, order: int = 2, epsilon: float | None = None
) -> str:
    """Vectors of length 1."""
    options = [*(["p=1"] if order == 1 else []), f"dim={axis}", f"eps={number(1e-7 if epsilon is None else epsilon)}"]
    return f"F.normalize({', '.join((as_float(last(x), x.spec.dtype), *options))})"


def sort(layer: PlainLayer, use: Use, x: Term, axis: int = -1) -> str:
    """The numbers alone."""
    return f"{called(last(x), 'sort', repr(axis))}.values"


def order(layer: PlainLayer, use: Use, x: Term, axis: int = -1) -> str:
    """Equal ones keep their order."""
    return called(last(x), "argsort", f"dim={axis}", "stable=True")


def top_k(layer: PlainLayer, use: Use, x: Term, k: int, sorted: bool = True) -> str:
    """The largest and their places."""
    return called(last(x), "topk", repr(k))


def quantile(
    layer: PlainLayer, use: Use, x: Term, q: float, axis: int | None = None, method: str = "linear",
    keepdims: bool = False,
) -> str:  # fmt: skip
    """Between the two nearest numbers."""
    text = as_float(last(x), x.spec.dtype)
    if axis is None and keepdims:
        return f"{called(text, 'quantile', number(q))}.reshape({', '.join('1' * x.rank)})"
    rest = [] if axis is None else [f"dim={axis}"]
    return called(text, "quantile", number(q), *rest, *(["keepdim=True"] if keepdims else []))


def median(layer: PlainLayer, use: Use, x: Term, axis: int | None = None, keepdims: bool = False) -> str:
    """Between two in the middle, of which PyTorch's own takes the smaller."""
    return quantile(layer, use, x, 0.5, axis, keepdims=keepdims)


LINES: Mapping[str, Any] = {
    "ops.mean": over("mean", sort=as_float),
    "ops.sum": over("sum"),
    "ops.std": over("std", "correction=0", sort=as_float),
    "ops.var": over("var", "correction=0", sort=as_float),
    **{f"ops.{name}": over("amax") for name in ("max", "amax")},
    **{f"ops.{name}": over("amin") for name in ("min", "amin")},
    "ops.ptp": spread,
    "ops.prod": product,
    "ops.any": over("any"),
    "ops.all": over("all"),
    "ops.logsumexp": log_sum,
    "ops.count_nonzero": counted,
    "ops.cumsum": cumulated("cumsum"),
    "ops.cumprod": cumulated("cumprod"),
    "ops.argmax": place_of("argmax"),
    "ops.argmin": place_of("argmin"),
    "ops.moments": moments,
    "ops.norm": norm,
    "ops.normalize": normalized,
    "ops.sort": sort,
    "ops.argsort": order,
    "ops.top_k": top_k,
    "ops.quantile": quantile,
    "ops.median": median,
}
