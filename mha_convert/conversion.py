"""Applies a plan. The only file that moves numbers; it knows arrays and axes, and no kind of layer.

Each tensor of the plan is described first (key, shape, dtype) and made when it is read: in blocks of rows that stay in
the processor's cache, so that memory does not grow with the model, and is no copy of the tensor.
"""

import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from types import EllipsisType

import numpy as np
from einops import rearrange, repeat

from .errors import LayoutError
from .records.plan import LayerPlan, Piece, Plan, Rule, TargetTensor
from .records.proof import Ledger
from .records.source import Array, Variable

ROWS = 64  # of float32, four cache lines of 64 bytes: 16, 32 and 128 measured slower
BLOCK = 256 << 10  # bytes, where rows are short
LARGEST = {"float32": 3.40282346e38, "bfloat16": 3.38953138e38, "float64": 1.79769313e308}  # each a little below


def convert(plan: Plan) -> tuple[TargetTensor, ...]:
    """Describe every tensor of the target, in the order of the layers and their rules.

    A tensor's ``blocks()`` and ``read()`` make it: moved numbers keep their bits; rescaled and narrowed ones are
    computed in float64 and rounded once. Both raise ``LayoutError`` where a number does not fit the target's dtype.
    """
    return tuple(describe(rule, item, plan.dtype or item.layer.dtype) for item in plan.layers for rule in item.rules)


def describe(rule: Rule, item: LayerPlan, dtype: str) -> TargetTensor:
    """One row of the plan as a tensor to be made."""
    return TargetTensor(
        key=item.key(rule.target),
        shape=rule_shape(rule, item),
        dtype=dtype,
        read=partial(apply, rule, item, dtype),
        blocks=partial(blocks, rule, item, dtype),
    )


def rule_shape(rule: Rule, item: LayerPlan) -> tuple[int, ...]:
    """Shape of the target: the pieces are stacked along its first axis."""
    shapes = [target_shape(piece, item) for piece in rule.pieces]
    return shapes[0] if len(shapes) == 1 else (sum(shape[0] for shape in shapes), *shapes[0][1:])


def apply(rule: Rule, item: LayerPlan, dtype: str) -> Array:
    """Make one tensor as a whole, in C order and of ``dtype``."""
    whole = np.empty(rule_shape(rule, item), numpy_dtype(dtype))
    flat, start = whole.reshape(-1), 0
    for block in blocks(rule, item, dtype):
        flat[start : start + block.size] = block.reshape(-1)
        start += block.size
    return whole


def blocks(rule: Rule, item: LayerPlan, dtype: str) -> Iterator[Array]:
    """Make one tensor in blocks of rows, each in C order and of ``dtype``."""
    for piece in rule.pieces:
        yield from piece_blocks(piece, item, dtype)


def piece_blocks(piece: Piece, item: LayerPlan, dtype: str) -> Iterator[Array]:
    """Make the rows that one piece contributes, block by block."""
    if piece.made:
        yield from made_blocks(piece, dtype)
        return
    whole = arranged(padded(taken(source_array(piece, item), piece), piece), piece)
    subject = f"Layer '{item.layer.name}': its {str(piece.source).replace('.', ' ')}"
    for rows in row_blocks(whole.shape, whole.itemsize):
        block = in_order(whole[rows])
        if is_rescaled(piece):
            with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
                block = block.astype(np.float64) * piece.factor
        yield round_once(block, dtype, subject)


def made_rows(piece: Piece, start: int, rows: int, dtype: np.dtype[np.generic]) -> Array:
    """Some rows of what has no source."""
    if piece.made == "identity":
        return np.eye(rows, piece.shape[1], start, dtype)
    return np.full((rows, *piece.shape[1:]), {"zeros": 0, "ones": 1}[str(piece.made)], dtype)


def made_blocks(piece: Piece, dtype: str) -> Iterator[Array]:
    """What has no source, block by block."""
    step = max(ROWS, BLOCK // (math.prod(piece.shape[1:]) * 8))
    for start in range(0, piece.shape[0], step):
        yield made_rows(piece, start, min(step, piece.shape[0] - start), numpy_dtype(dtype))


def row_blocks(shape: tuple[int, ...], itemsize: int) -> Iterator[slice | EllipsisType]:
    """Rows of a tensor, so many at a time that reading them crosswise uses whole cache lines; all of a scalar."""
    if not shape:
        return iter([...])
    row = int(np.prod(shape[1:])) * itemsize
    step = max(ROWS, BLOCK // max(row, 1))
    return (slice(start, min(start + step, shape[0])) for start in range(0, shape[0], step))


def in_order(block: Array) -> Array:
    """The block in C order: gathered in its own order first, so that the crosswise copy stays in the cache.

    Without that step, widths that are powers of two put all its lines into a few places of the cache: for
    4096 × 4096 float32, 0.5 GB/s instead of 3.
    """
    if block.flags.c_contiguous:
        return block
    return np.asarray(block.copy(order="K"), order="C")


def axes(piece: Piece) -> list[str]:
    """The array's axes by the pattern's names; ``...`` stands for any number of them."""
    return re.findall(r"\([^)]*\)|\S+", piece.pattern.partition(" -> ")[0])


def pads(piece: Piece) -> dict[str, int]:
    """The sizes to which axes of the array are padded."""
    own = axes(piece)
    return {axis: size for axis, size in piece.sizes.items() if axis in own}


def arranged(array: Array, piece: Piece) -> Array:
    """The array by the piece's pattern; sizes that are no padding split an axis or repeat one."""
    others = {axis: size for axis, size in piece.sizes.items() if axis not in pads(piece)}
    move = repeat if others else rearrange
    moved: Array = move(array, piece.pattern, **others)
    return moved


def source_variable(piece: Piece, item: LayerPlan) -> Variable:
    """Keras' own variable."""
    return item.layer.arrays[str(piece.source)]


def source_array(piece: Piece, item: LayerPlan) -> Array:
    """Keras' own array."""
    return np.asarray(source_variable(piece, item).read())


def is_rescaled(piece: Piece) -> bool:
    """Whether the piece changes numbers."""
    return piece.factor != 1


def taken(array: Array, piece: Piece) -> Array:
    """The part of the array that the piece moves, a view."""
    bounds = (piece.parts.get(axis, (None, None)) for axis in axes(piece))
    return array[tuple(slice(*pair) for pair in bounds)] if piece.parts else array


def padded(array: Array, piece: Piece) -> Array:
    """Zeros after an axis' own numbers, up to the piece's size."""
    wanted = padded_shape(array.shape, piece)
    if wanted == array.shape:
        return array
    whole = np.zeros(wanted, array.dtype)
    whole[tuple(slice(size) for size in array.shape)] = array
    return whole


def padded_shape(shape: tuple[int, ...], piece: Piece) -> tuple[int, ...]:
    """The shape of what is taken, with the piece's own sizes."""
    if not pads(piece):
        return shape
    own, rest = axes(piece), len(shape)
    named = own[: own.index("...")] if "..." in own else own
    return (*(piece.sizes.get(axis, size) for axis, size in zip(named, shape, strict=False)), *shape[len(named) : rest])


def hollow(shape: tuple[int, ...]) -> Array:
    """An array of this shape that takes no memory."""
    return np.broadcast_to(np.zeros((), np.int8), shape)


def target_shape(piece: Piece, item: LayerPlan) -> tuple[int, ...]:
    """Shape of a piece, from shapes alone: a piece of no memory takes the array's way."""
    if piece.made:
        return piece.shape
    part = taken(hollow(source_variable(piece, item).shape), piece)
    return arranged(hollow(padded_shape(part.shape, piece)), piece).shape


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """NumPy's dtype; bfloat16 comes from ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def round_once(array: Array, dtype: str, subject: str) -> Array:
    """The array in ``dtype``: each number the nearest one, ties to even, rounded from its exact value once.

    Raises:
        LayoutError: a finite number becomes infinite.
    """
    target = numpy_dtype(dtype)
    if array.dtype == target:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = via_odd_float32(array).astype(target) if dtype == "bfloat16" else array.astype(target)
    overflowed = np.isinf(rounded) & np.isfinite(array)
    if overflowed.any():
        largest = float(np.abs(array[overflowed].astype(np.float64)).max())
        wide = [name for name, limit in LARGEST.items() if largest <= limit and name != dtype]
        raise LayoutError(
            f"{subject} holds {largest:g}, which is too large for {dtype}. "
            + (f"Choose --dtype {' or '.join(wide)}." if wide else "No dtype holds it; leave the layer out.")
        )
    return rounded


def via_odd_float32(array: Array) -> Array:
    """Float64 to float32, rounded to odd, so that rounding on to bfloat16 is as if done at once.

    ml_dtypes before 0.7 rounds float64 to float32 and then to bfloat16: twice. Rounding to odd the first time gives
    the same numbers with every version (Boldo and Melquiond, "When double rounding is odd", 2005).
    """
    if array.dtype != np.float64:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        near = array.astype(np.float32)
    exact = near.astype(np.float64) == array
    outward = np.abs(near.astype(np.float64)) > np.abs(array)
    bits = near.view(np.uint32)
    toward_zero = np.where(outward, bits - np.uint32(1), bits)
    odd = np.where(exact | ~np.isfinite(array), bits, toward_zero | np.uint32(1))
    return odd.view(np.float32)


def ledger(item: LayerPlan, tensors: Mapping[str, tuple[int, ...]]) -> Ledger:
    """Count where the numbers of a layer went; ``tensors`` are the shapes found in the target, by key.

    Raises:
        LayoutError: a number of the layer is in no tensor, or in two.
    """
    moved = rescaled = repeated = padding = identity = 0
    for rule in item.rules:
        for piece in rule.pieces:
            size = math.prod(target_shape(piece, item))
            if piece.made:
                identity += size
                continue
            part = taken(hollow(source_variable(piece, item).shape), piece)
            with_zeros = math.prod(padded_shape(part.shape, piece))
            padding += with_zeros - part.size
            repeated += size - with_zeros
            rescaled += part.size if is_rescaled(piece) else 0
            moved += 0 if is_rescaled(piece) else part.size
    target = sum(math.prod(tensors[item.key(rule.target)]) for rule in item.rules)
    entry = Ledger(
        source=item.layer.parameters,
        moved=moved,
        rescaled=rescaled,
        repeated=repeated,
        padding=padding,
        identity=identity,
        target=target,
    )
    if entry.source != moved + rescaled or target != moved + rescaled + repeated + padding + identity:
        raise LayoutError(
            f"Layer '{item.layer.name}': {entry.source} parameters in the source, {target} in the target, "
            f"of which {moved} moved, {rescaled} rescaled, {repeated} repeated, {padding} padding, {identity} "
            "identity. This is a bug of mha-convert; report it with the output of inspect --json."
        )
    return entry
