"""Applies a plan. The only file that moves numbers.

Each tensor of the plan is described first (key, shape, dtype) and made when it is read, one at a time.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
from einops import rearrange, repeat

from .datatypes import Array, LayerPlan, Ledger, Piece, Plan, Rule, Tensor, Variable
from .errors import LayoutError, printable

HEAD_AXIS, GROUPS_AXIS = "head_dim", "groups"


def convert(plan: Plan) -> tuple[Tensor, ...]:
    """Describe every tensor of the target, in the order of the layers and their rules.

    A tensor's ``read()`` makes it: moved numbers keep their bits; rescaled and narrowed ones are computed in float64
    and rounded once. It raises ``LayoutError`` where a number does not fit the target's dtype.
    """
    return tuple(describe(rule, item, plan.dtype or item.layer.dtype) for item in plan.layers for rule in item.rules)


def describe(rule: Rule, item: LayerPlan, dtype: str) -> Tensor:
    """One row of the plan as a tensor to be made."""
    shapes = [target_shape(piece, item) for piece in rule.pieces]
    return Tensor(
        key=item.key(rule.target),
        shape=shapes[0] if len(shapes) == 1 else (sum(shape[0] for shape in shapes), *shapes[0][1:]),
        dtype=dtype,
        read=partial(apply, rule, item, dtype),
    )


def apply(rule: Rule, item: LayerPlan, dtype: str) -> Array:
    """Make one tensor, in C order and of ``dtype``."""
    blocks = [block(piece, item, dtype) for piece in rule.pieces]
    # ascontiguousarray would give a scalar an axis
    return np.asarray(blocks[0] if len(blocks) == 1 else np.concatenate(blocks), order="C")


def block(piece: Piece, item: LayerPlan, dtype: str) -> Array:
    """Make the rows that one piece contributes."""
    if piece.step == "identity":
        return np.eye(item.embed_dim, dtype=numpy_dtype(dtype))
    if piece.step == "zeros":
        return np.zeros(item.embed_dim, dtype=numpy_dtype(dtype))
    array = source_array(piece, item)
    if is_rescaled(piece, item):
        array = array.astype(np.float64) * item.scale
    array = round_once(array, dtype, f"{item.layer.name}: {piece.source}")
    return arranged(pad_heads(array, piece, item), piece, item)


def arranged(array: Array, piece: Piece, item: LayerPlan) -> Array:
    """The array by the piece's pattern; heads that others share are repeated for each of them."""
    if GROUPS_AXIS not in piece.pattern:
        moved: Array = rearrange(array, piece.pattern)
        return moved
    groups = item.layer.num_heads // item.layer.num_key_value_heads
    repeated: Array = repeat(array, piece.pattern, **{GROUPS_AXIS: groups})
    return repeated


def source_variable(piece: Piece, item: LayerPlan) -> Variable:
    """Keras' own variable."""
    return item.layer.arrays[piece.source]


def source_array(piece: Piece, item: LayerPlan) -> Array:
    """Keras' own array."""
    return np.asarray(source_variable(piece, item).read())


def is_rescaled(piece: Piece, item: LayerPlan) -> bool:
    """Whether the step changes numbers: with equal head sizes the factor is 1."""
    return piece.step == "rescale" and item.scale != 1


def pad_heads(array: Array, piece: Piece, item: LayerPlan) -> Array:
    """Zeros behind each head, up to the layout's head size."""
    wanted = padded_shape(array.shape, piece, item)
    if wanted == array.shape:
        return array
    padded = np.zeros(wanted, array.dtype)
    padded[tuple(slice(size) for size in array.shape)] = array
    return padded


def padded_shape(shape: tuple[int, ...], piece: Piece, item: LayerPlan) -> tuple[int, ...]:
    """Keras' shape with the head axis in the plan's head size, if it has one."""
    axes = piece.pattern.split(" -> ")[0].split()
    if HEAD_AXIS not in axes or item.head_size is None:
        return shape
    axis = axes.index(HEAD_AXIS)
    return (*shape[:axis], item.head_size, *shape[axis + 1 :])


def target_shape(piece: Piece, item: LayerPlan) -> tuple[int, ...]:
    """Shape of a piece, from shapes alone: a piece of no memory takes the array's way."""
    if piece.step == "identity":
        return (item.embed_dim, item.embed_dim)
    if piece.step == "zeros":
        return (item.embed_dim,)
    shape = source_variable(piece, item).shape
    hollow = np.broadcast_to(np.zeros((), np.int8), padded_shape(shape, piece, item))
    return arranged(hollow, piece, item).shape


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
        largest = np.abs(array[overflowed].astype(np.float64)).max()
        raise LayoutError(
            f"{printable(subject)}: {largest:g} is too large for {dtype}. Choose --dtype float32 or bfloat16."
        )
    return rounded


def via_odd_float32(array: Array) -> Array:
    """Float64 to float32, rounded to odd, so that rounding on to bfloat16 is as if done at once.

    ml_dtypes rounds float64 to float32 and then to bfloat16: twice. Rounding the first time to odd mends that
    (Boldo and Melquiond, "When double rounding is odd", 2005).
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
            size = int(np.prod(target_shape(piece, item)))
            if piece.step in ("identity", "zeros"):
                identity += size
                continue
            source = source_variable(piece, item)
            own, padded = source.size, int(np.prod(padded_shape(source.shape, piece, item)))
            padding += padded - own
            repeated += size - padded
            rescaled += own if is_rescaled(piece, item) else 0
            moved += 0 if is_rescaled(piece, item) else own
    target = sum(int(np.prod(tensors[item.key(rule.target)])) for rule in item.rules)
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
            f"Layer '{printable(item.layer.name)}': {entry.source} parameters in the source, {target} in the target, "
            f"of which {moved} moved, {rescaled} rescaled, {repeated} repeated, {padding} padding, {identity} "
            "identity. This is a bug of mha-convert; report it with the output of inspect --json."
        )
    return entry
