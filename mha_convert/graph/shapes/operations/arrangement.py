"""Operations that give numbers other places: another shape, another order, joined, parted, repeated, picked."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from ....records.graph import Constant, TensorSpec
from ..dtypes import FLOAT, as_number, is_whole
from ..sizes import ShapeError, Size, Sizes, of_shape, one, place, product, sizes, together
from .arguments import all_together, are_sizes, as_spec, axes_of, dtype_of, refuse, refuse_unless, size_of


def reshape(layer: Any, x: TensorSpec, newshape: Any) -> TensorSpec:
    """One size, -1, follows from the others."""
    wanted = newshape if isinstance(newshape, tuple) else (newshape,)
    refuse_unless(are_sizes(wanted), layer, "takes a shape that is computed, which has no rule")
    shape = sizes(x)
    if any(isinstance(size, Mapping) for size in wanted):
        found = tuple(map(size_of, wanted))
        return of_shape(x, following(shape, found) if -1 in found else found)
    known, total = product([size for size in wanted if size != -1]) or 0, product(shape)
    if total is not None and (known == 0 or total % known or (-1 not in wanted and total != known)):
        raise ShapeError(f"makes {newshape} of {shape}")
    return of_shape(x, [(None if total is None else total // known) if size == -1 else size for size in wanted])


def following(shape: Sizes, wanted: Sizes) -> list[Size]:
    """A shape in which -1 follows from the other sizes: those that are free are the same on both sides, if any."""
    free = [size for size in shape if size is None]
    others = [size for size in wanted if size != -1]
    known, left = (product([size for size in sizes if size is not None]) or 1 for sizes in (shape, others))
    rest = known // left if len(free) == others.count(None) else None
    return [rest if size == -1 else size for size in wanted]


def expand_dims(layer: Any, x: TensorSpec, axis: Any) -> TensorSpec:
    """New axes of size 1, at their places in the result."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    rank = len(sizes(x)) + len(axes)
    places, left = {place(one, rank) for one in axes}, iter(sizes(x))
    return of_shape(x, [1 if number in places else next(left) for number in range(rank)])


def squeeze(layer: Any, x: TensorSpec, axis: Any = None) -> TensorSpec:
    """Axes of size 1 go."""
    shape = sizes(x)
    gone = [number for number, size in enumerate(shape) if size == 1] if axis is None else axes_of(axis, len(shape))
    if any(shape[number] not in (1, None) for number in gone):
        raise ShapeError(f"drops axis {axis} of {shape}, whose size is not 1")
    return of_shape(x, [size for number, size in enumerate(shape) if number not in gone])


def transpose(layer: Any, x: TensorSpec, axes: Any = None) -> TensorSpec:
    """Axes in another order, or backwards."""
    shape = sizes(x)
    order = tuple(range(len(shape)))[::-1] if axes is None else axes_of(axes, len(shape))
    if sorted(order) != list(range(len(shape))):
        raise ShapeError(f"puts {len(shape)} axes in the order {axes}")
    return of_shape(x, [shape[number] for number in order])


def swapaxes(layer: Any, x: TensorSpec, axis1: int, axis2: int) -> TensorSpec:
    """Two axes change places."""
    shape = list(sizes(x))
    a, b = place(axis1, len(shape)), place(axis2, len(shape))
    shape[a], shape[b] = shape[b], shape[a]
    return of_shape(x, shape)


def moved(source: Any, destination: Any, rank: int) -> list[int]:
    """The order of axes of which some are moved."""
    sources, places = axes_of(source, rank), axes_of(destination, rank)
    order = [number for number in range(rank) if number not in sources]
    for target, number in sorted(zip(places, sources, strict=True)):
        order.insert(target, number)
    return order


def moveaxis(layer: Any, x: TensorSpec, source: Any, destination: Any) -> TensorSpec:
    """Some axes get other places."""
    shape = sizes(x)
    return of_shape(x, [shape[number] for number in moved(source, destination, len(shape))])


def ravel(layer: Any, x: TensorSpec) -> TensorSpec:
    """One axis."""
    return of_shape(x, [product(sizes(x))])


def flip(layer: Any, x: TensorSpec, axis: Any = None) -> TensorSpec:
    """The input's shape."""
    axes_of(axis, len(sizes(x)))
    return x


def roll(layer: Any, x: TensorSpec, shift: Any, axis: Any = None) -> TensorSpec:
    """The input's shape."""
    axes_of(axis, len(sizes(x)))
    return x


def concatenate(layer: Any, xs: tuple[Any, ...], axis: int = 0) -> TensorSpec:
    """One axis is the sum."""
    shapes = [list(sizes(as_spec(x))) for x in xs]
    first, *others = shapes
    number = place(axis, len(first))
    for shape in others:
        if len(shape) != len(first):
            raise ShapeError(f"joins tensors of {len(first)} and {len(shape)} axes")
        a, b = first[number], shape[number]
        first = [one(size, other, f"axis {n}") if n != number else size for n, (size, other) in pairs(first, shape)]
        first[number] = None if a is None or b is None else a + b
    return TensorSpec(tuple(first), dtype_of(xs))


def pairs(first: Any, second: Any) -> Any:
    """The sizes of two shapes, numbered."""
    return enumerate(zip(first, second, strict=True))


def append(layer: Any, x1: Any, x2: Any, axis: int | None = None) -> TensorSpec:
    """Two behind each other; without an axis as vectors."""
    if axis is not None:
        return concatenate(layer, (x1, x2), axis)
    a, b = product(sizes(as_spec(x1))), product(sizes(as_spec(x2)))
    return TensorSpec((None if a is None or b is None else a + b,), dtype_of((x1, x2)))


def stack(layer: Any, x: tuple[Any, ...], axis: int = 0) -> TensorSpec:
    """A new axis."""
    first = sizes(as_spec(x[0]))
    for item in x[1:]:
        shape = sizes(as_spec(item))
        if len(shape) != len(first):
            raise ShapeError(f"stacks tensors of {len(first)} and {len(shape)} axes")
        first = tuple(one(a, b, f"axis {n}") for n, (a, b) in pairs(first, shape))
    number = place(axis, len(first) + 1)
    return TensorSpec((*first[:number], len(x), *first[number:]), dtype_of(x))


def hstack(layer: Any, xs: tuple[Any, ...]) -> TensorSpec:
    """Joined at the second axis, vectors at the first."""
    return concatenate(layer, xs, min(1, len(sizes(as_spec(xs[0]))) - 1))


def vstack(layer: Any, xs: tuple[Any, ...]) -> TensorSpec:
    """Joined at the first axis, vectors as rows."""
    refuse_unless(len(sizes(as_spec(xs[0]))) > 1, layer, "joins vectors as rows, which has no rule")
    return concatenate(layer, xs, 0)


def part_sizes(layer: Any, x: TensorSpec, indices_or_sections: Any, axis: int) -> list[int]:
    """The size of each part along the axis."""
    size = sizes(x)[place(axis, len(sizes(x)))]
    if size is None:
        refuse(layer, "parts an axis whose size is free, which has no rule")
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1 or size % indices_or_sections:
            raise ShapeError(f"parts {size} into {indices_or_sections} equal parts")
        return [size // indices_or_sections] * indices_or_sections
    bounds = [0, *indices_or_sections, size]
    found = [end - start for start, end in pairwise(bounds)]
    refuse_unless(all(part >= 0 for part in found), layer, "parts an axis at places that do not ascend")
    return found


def split(layer: Any, x: TensorSpec, indices_or_sections: Any, axis: int = 0) -> tuple[TensorSpec, ...]:
    """Several tensors; equal parts, or parts between places."""
    number = place(axis, len(sizes(x)))
    shape = sizes(x)
    return tuple(
        of_shape(x, (*shape[:number], size, *shape[number + 1 :]))
        for size in part_sizes(layer, x, indices_or_sections, axis)
    )


def hsplit(layer: Any, x: TensorSpec, indices_or_sections: Any) -> tuple[TensorSpec, ...]:
    """Parts of the second axis."""
    return split(layer, x, indices_or_sections, 1)


def unstack(layer: Any, x: TensorSpec, num: int | None = None, axis: int = 0) -> tuple[TensorSpec, ...]:
    """A tensor for each place of an axis, which goes."""
    shape = sizes(x)
    number = place(axis, len(shape))
    count = shape[number] if num is None else num
    if count is None:
        refuse(layer, "takes an axis apart whose size is free, which has no rule")
    return (of_shape(x, (*shape[:number], *shape[number + 1 :])),) * count


def tile(layer: Any, x: TensorSpec, repeats: Any) -> TensorSpec:
    """Several times behind itself, along each axis."""
    times = repeats if isinstance(repeats, tuple) else (repeats,)
    refuse_unless(are_sizes(times), layer, "repeats as often as a tensor says")
    times = tuple(map(size_of, times))
    shape = sizes(x)
    rank = max(len(times), len(shape))
    padded = ((1,) * (rank - len(times)) + times, (1,) * (rank - len(shape)) + shape)
    return of_shape(
        x, [None if size is None or time is None else size * time for time, size in zip(*padded, strict=True)]
    )


def repeat(layer: Any, x: TensorSpec, repeats: Any, axis: int | None = None) -> TensorSpec:
    """Every number several times."""
    times = repeats.array.tolist() if isinstance(repeats, Constant) else repeats
    times = times[0] if isinstance(times, tuple | list) and len(times) == 1 else times
    refuse_unless(type(times) is int, layer, "repeats each place another number of times, which has no rule")
    shape = (product(sizes(x)),) if axis is None else sizes(x)
    number = 0 if axis is None else place(axis, len(shape))
    size = shape[number]
    return of_shape(x, (*shape[:number], None if size is None else size * times, *shape[number + 1 :]))


def broadcast_to(layer: Any, x: TensorSpec, shape: Any) -> TensorSpec:
    """Another shape that it broadcasts to."""
    refuse_unless(are_sizes(shape), layer, "takes a shape that is computed, which has no rule")
    return of_shape(x, together(tuple(map(size_of, shape)), sizes(x)))


def pad(layer: Any, x: TensorSpec, pad_width: Any, mode: str = "constant", constant_values: Any = None) -> TensorSpec:
    """More at both ends of each axis."""
    refuse_unless(mode == "constant", layer, f"pads in the mode '{mode}', which has no rule")
    widths = pad_widths(pad_width, len(sizes(x)))
    return of_shape(
        x, [None if size is None else size + sum(width) for size, width in zip(sizes(x), widths, strict=True)]
    )


def pad_widths(pad_width: Any, rank: int) -> list[tuple[int, int]]:
    """How many come before and after, of each axis."""
    given = pad_width.array.tolist() if isinstance(pad_width, Constant) else pad_width
    if isinstance(given, int):
        return [(given, given)] * rank
    rows = [tuple(row) if isinstance(row, tuple | list) else (row, row) for row in given]
    if len(given) == len(("before", "after")) and all(isinstance(item, int) for item in given):
        rows = [tuple(given)]
    return [(row[0], row[-1]) for row in (rows * rank if len(rows) == 1 else rows)]


def getitem(layer: Any, x: TensorSpec, key: Any) -> TensorSpec:
    """Slices, places, new axes, and no more than one tensor of places."""
    items = key if isinstance(key, tuple) else (key,)
    shape, made, at = list(sizes(x)), list[Size](), 0
    taken = sum(item is not None and item is not Ellipsis for item in items)
    if taken > len(shape):
        raise ShapeError(f"takes {taken} axes of {len(shape)}")
    tensors = 0
    for item in items:
        if item is None:
            made.append(1)
        elif item is Ellipsis:
            skipped = len(shape) - taken
            made += shape[at : at + skipped]
            at += skipped
        elif isinstance(item, slice):
            made.append(sliced(layer, shape[at], item))
            at += 1
        elif isinstance(item, TensorSpec | Constant):
            tensors += 1
            spec = as_spec(item)
            refuse_unless(tensors == 1 and is_whole(spec.dtype), layer, "picks places in a way that has no rule")
            made += sizes(spec)
            at += 1
        elif type(item) is int:
            at += 1
        else:
            refuse(layer, "picks places in a way that has no rule")
    return of_shape(x, [*made, *shape[at:]])


def sliced(layer: Any, size: Size, item: slice) -> Size:
    """The size of a slice of an axis."""
    bounds = (item.start, item.stop, item.step)
    refuse_unless(all(bound is None or type(bound) is int for bound in bounds), layer, "takes a slice up to a tensor")
    refuse_unless((item.step or 1) > 0 or (item.start is None and item.stop is None and item.step == -1), layer,
                  "takes a slice backwards, which has a rule for whole axes only")  # fmt: skip
    if size is None:
        return None
    return len(range(*item.indices(size)))


def take(layer: Any, x: Any, indices: Any, axis: int | None = None) -> TensorSpec:
    """The axis is replaced by those of the places."""
    spec, picked = as_spec(x), sizes(as_spec(indices))
    if axis is None:
        return TensorSpec(picked, spec.dtype)
    shape = sizes(spec)
    number = place(axis, len(shape))
    return TensorSpec((*shape[:number], *picked, *shape[number + 1 :]), spec.dtype)


def take_along_axis(layer: Any, x: TensorSpec, indices: Any, axis: int | None = None) -> TensorSpec:
    """The places' own shape."""
    picked = sizes(as_spec(indices))
    if axis is None:
        return TensorSpec((product(picked),), x.dtype)
    number = place(axis, len(picked))
    others = together((*sizes(x)[:number], 1, *sizes(x)[number + 1 :]), (*picked[:number], 1, *picked[number + 1 :]))
    return TensorSpec((*others[:number], picked[number], *others[number + 1 :]), x.dtype)


def one_hot(
    layer: Any, x: TensorSpec, num_classes: int, axis: int = -1, dtype: str | None = None, sparse: bool = False
) -> TensorSpec:
    """A new axis with a 1 at each token's place."""
    number = place(axis, len(sizes(x)) + 1)
    return TensorSpec((*sizes(x)[:number], num_classes, *sizes(x)[number:]), dtype or FLOAT)


def triangle(layer: Any, x: TensorSpec, k: int = 0) -> TensorSpec:
    """The input's shape."""
    return x


def diagonal(layer: Any, x: TensorSpec, offset: int = 0, axis1: int = 0, axis2: int = 1) -> TensorSpec:
    """Two axes become one at the end."""
    shape = sizes(x)
    rows, columns = place(axis1, len(shape)), place(axis2, len(shape))
    others = [size for number, size in enumerate(shape) if number not in (rows, columns)]
    a, b = shape[rows], shape[columns]
    size = None if a is None or b is None else max(0, min(a, b - offset) if offset >= 0 else min(a + offset, b))
    return of_shape(x, (*others, size))


def trace(layer: Any, x: TensorSpec, offset: int = 0, axis1: int = 0, axis2: int = 1) -> TensorSpec:
    """The sum of ``diagonal``."""
    return TensorSpec(sizes(diagonal(layer, x, offset, axis1, axis2))[:-1], as_number(x.dtype))


def diff(layer: Any, a: TensorSpec, n: int = 1, axis: int = -1) -> TensorSpec:
    """An axis is shorter by ``n``."""
    shape = list(sizes(a))
    number = place(axis, len(shape))
    size = shape[number]
    shape[number] = None if size is None else max(0, size - n)
    return of_shape(a, shape)


def meshgrid(layer: Any, *x: TensorSpec, indexing: str = "xy") -> tuple[TensorSpec, ...]:
    """Each vector along an axis of its own."""
    lengths = [product(sizes(item)) for item in x]
    if indexing == "xy" and len(lengths) > 1:
        lengths[:2] = lengths[1::-1]
    return tuple(TensorSpec(tuple(lengths), item.dtype) for item in x)


def selected(layer: Any, condlist: Any, choicelist: Any, default: Any = 0) -> TensorSpec:
    """All broadcast."""
    return TensorSpec(all_together((*condlist, *choicelist, default)), dtype_of((*choicelist, default)))


def slice_(layer: Any, inputs: TensorSpec, start_indices: Any, shape: Any) -> TensorSpec:
    """A block of this shape."""
    starts = start_indices.array.tolist() if isinstance(start_indices, Constant) else start_indices
    refuse_unless(isinstance(starts, tuple | list) and all(type(n) is int for n in starts), layer,
                  "starts where a tensor says, which has no rule")  # fmt: skip
    found: Sizes = tuple(
        (None if size is None else size - start) if count == -1 else count
        for size, start, count in zip(sizes(inputs), starts, shape, strict=True)
    )
    return of_shape(inputs, found)


SHAPES: Mapping[str, Callable[..., Any]] = {
    "ops.reshape": reshape,
    "ops.expand_dims": expand_dims,
    "ops.squeeze": squeeze,
    "ops.transpose": transpose,
    "ops.swapaxes": swapaxes,
    "ops.moveaxis": moveaxis,
    "ops.ravel": ravel,
    "ops.flip": flip,
    "ops.roll": roll,
    "ops.concatenate": concatenate,
    "ops.append": append,
    "ops.stack": stack,
    "ops.hstack": hstack,
    "ops.vstack": vstack,
    "ops.split": split,
    "ops.hsplit": hsplit,
    "ops.unstack": unstack,
    "ops.tile": tile,
    "ops.repeat": repeat,
    "ops.broadcast_to": broadcast_to,
    "ops.pad": pad,
    "ops.getitem": getitem,
    "ops.take": take,
    "ops.take_along_axis": take_along_axis,
    "ops.one_hot": one_hot,
    "ops.tril": triangle,
    "ops.triu": triangle,
    "ops.diagonal": diagonal,
    "ops.trace": trace,
    "ops.diff": diff,
    "ops.meshgrid": meshgrid,
    "ops.select": selected,
    "ops.slice": slice_,
}
