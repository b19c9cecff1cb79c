"""Products of matrices, and of axes with letters, as one writes them with torch."""

from collections.abc import Callable, Mapping
from typing import Any

from .....graph.shapes.dtypes import is_float, result_type
from .....graph.shapes.operations.products import summed_axes
from .....records.layer import PlainLayer
from ...use import Use, atom
from .arguments import dtype_of, float_text, rank_of, text_of


def matrices(use: Use, items: tuple[Any, ...]) -> list[str]:
    """Tensors of one dtype: PyTorch's products promote nothing."""
    needs_float = is_float(result_type(dtype_of(item) for item in items))
    return [float_text(use, item) if needs_float else text_of(use, item) for item in items]


def matmul(layer: PlainLayer, use: Use, x1: Any, x2: Any) -> str:
    """``@``."""
    return " @ ".join(map(atom, matrices(use, (x1, x2))))


def dot(layer: PlainLayer, use: Use, x1: Any, x2: Any) -> str:
    """``@`` of matrices and vectors; of more axes a sum over the last and the last but one."""
    first, second = matrices(use, (x1, x2))
    if not rank_of(x1) or not rank_of(x2):
        return f"{atom(first)} * {atom(second)}"
    if rank_of(x2) <= len(("rows", "columns")):
        return f"{atom(first)} @ {atom(second)}"
    return f"torch.tensordot({first}, {second}, dims=([-1], [-2]))"


def inner(layer: PlainLayer, use: Use, x1: Any, x2: Any) -> str:
    """``torch.inner``."""
    return f"torch.inner({', '.join(matrices(use, (x1, x2)))})"


def outer(layer: PlainLayer, use: Use, x1: Any, x2: Any) -> str:
    """``torch.outer`` of vectors."""
    texts = [
        text if rank_of(item) == 1 else f"{atom(text)}.flatten()"
        for text, item in zip(matrices(use, (x1, x2)), (x1, x2), strict=True)
    ]
    return f"torch.outer({', '.join(texts)})"


def tensordot(layer: PlainLayer, use: Use, x1: Any, x2: Any, axes: Any = 2) -> str:
    """``torch.tensordot``."""
    dims = axes if isinstance(axes, int) else summed_axes(axes, rank_of(x1), rank_of(x2))
    return f"torch.tensordot({', '.join(matrices(use, (x1, x2)))}, dims={dims})"


def einsum(layer: PlainLayer, use: Use, *given: Any, subscripts: str) -> str:
    """``torch.einsum``."""
    return f'torch.einsum("{subscripts}", {", ".join(matrices(use, given))})'


LINES: Mapping[str, Callable[..., str]] = {
    "ops.matmul": matmul,
    "ops.dot": dot,
    "ops.inner": inner,
    "ops.outer": outer,
    "ops.tensordot": tensordot,
    "ops.einsum": einsum,
}
