"""Functions of TensorFlow that ``keras.ops`` has not, as one writes them with torch."""

from collections.abc import Mapping
from functools import reduce
from typing import Any

from .....graph.shapes.dtypes import BITS, is_float
from .....records.layer import PlainLayer
from .....records.model import Term
from ...use import Use, Written, atom, in_one_order, last
from .arguments import as_float, axes_text, called, device_of, number, size_text, sizes_text, text_of, together
from .arrangement import take
from .products import matrices


def squared_difference(layer: PlainLayer, use: Use, x1: Any, x2: Any) -> Written:
    """The square of the difference."""
    texts, order = together(use, (x1, x2))
    return Written(f"({' - '.join(map(atom, texts))}) ** 2", order)


def counted(layer: PlainLayer, use: Use, x: Term, axis: Any = None, keepdims: bool = False) -> str:
    """How many are not 0."""
    rest = [*axes_text(axis, x.rank, keepdims), *(["keepdim=True"] if keepdims else [])]
    return f"({atom(last(x))} != 0).sum({', '.join(rest)})"


def l2_normalize(layer: PlainLayer, use: Use, x: Term, axis: Any = None, epsilon: float = 1e-12) -> str:
    """The squares sum to 1; the sum that is divided by is bounded, and not its root."""
    text = last(x)
    axes = axes_text(axis, x.rank, keepdims=True)[0]
    return f"{atom(text)} * {atom(text)}.square().sum({axes}, keepdim=True).clamp(min={number(epsilon)}).rsqrt()"


def silu(layer: PlainLayer, use: Use, x: Term, beta: float = 1.0) -> Written:
    """With a slope."""
    text = as_float(x.text, x.spec.dtype)
    return Written(
        f"F.silu({text})" if beta == 1 else f"{atom(text)} * torch.sigmoid({number(beta)} * {atom(text)})", x.order
    )


def product(layer: PlainLayer, use: Use, x1: Any, x2: Any, transpose_a: bool = False, transpose_b: bool = False) -> str:
    """``@``, of matrices that are turned before."""
    texts = matrices(use, (x1, x2))
    turned = [
        called(text, "transpose", "-2", "-1") if turn else text
        for text, turn in zip(texts, (transpose_a, transpose_b), strict=True)
    ]
    return " @ ".join(map(atom, turned))


def trace(layer: PlainLayer, use: Use, x: Term) -> str:
    """The sum of the diagonal."""
    return f"{called(last(x), 'diagonal', '0', '-2', '-1')}.sum(-1)"


def matrix_transpose(layer: PlainLayer, use: Use, x: Term) -> str:
    """The last two axes change places."""
    return called(last(x), "transpose", "-2", "-1")


def band_part(layer: PlainLayer, use: Use, x: Term, num_lower: int, num_upper: int) -> str:
    """Some diagonals; all on a side whose number is negative."""
    text = last(x)
    text = text if num_lower < 0 else called(text, "triu", repr(-num_lower))
    return text if num_upper < 0 else called(text, "tril", repr(num_upper))


def gather(layer: PlainLayer, use: Use, x: Any, indices: Any, axis: int = 0) -> str:
    """Brackets."""
    return take(layer, use, x, indices, axis)


def total(layer: PlainLayer, use: Use, inputs: tuple[Any, ...]) -> Written:
    """The sum of all."""
    if all(isinstance(item, Term) for item in inputs):
        texts, order = in_one_order(inputs)
        return Written(reduce(lambda first, second: f"{first} + {second}", map(atom, texts)), order)
    return Written(" + ".join(atom(text_of(use, item)) for item in inputs))


def counted_up(layer: PlainLayer, use: Use, start: Any, limit: Any = None, delta: Any = 1) -> str:
    """``torch.arange``."""
    items = [start] if limit is None else [limit] if start == 0 and delta == 1 else [start, limit]
    items += [] if delta == 1 else [delta]
    return f"torch.arange({', '.join(map(size_text, items))}{device_of(items)})"


def full(layer: PlainLayer, use: Use, dims: Any, value: Any) -> str:
    """``torch.full``."""
    dtype = ", dtype=self.dtype" if isinstance(value, float) else ""
    return f"torch.full({sizes_text(dims)}, {number(value)}{dtype}{device_of(dims)})"


def sequence_mask(layer: PlainLayer, use: Use, lengths: Term, maxlen: Any = None, dtype: str = BITS) -> str:
    """True below each length."""
    steps = f"torch.arange({size_text(maxlen)}, device={atom(last(lengths))}.device)"
    text = f"{steps} < {atom(last(lengths))}.unsqueeze(-1)"
    return text if dtype == BITS else as_float(f"({text})", BITS) if is_float(dtype) else f"({text}).long()"


LINES: Mapping[str, Any] = {
    "ops.tf.squared_difference": squared_difference,
    "ops.tf.count_nonzero": counted,
    "ops.tf.l2_normalize": l2_normalize,
    "ops.tf.silu": silu,
    "ops.tf.matmul": product,
    "ops.tf.trace": trace,
    "ops.tf.matrix_transpose": matrix_transpose,
    "ops.tf.band_part": band_part,
    "ops.tf.gather": gather,
    "ops.tf.add_n": total,
    "ops.tf.range": counted_up,
    "ops.tf.fill": full,
    "ops.tf.sequence_mask": sequence_mask,
}
