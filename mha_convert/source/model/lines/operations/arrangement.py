"""Operations that give numbers other places, as one writes them with torch: all in Keras' order of axes."""

from collections.abc import Callable, Mapping
from typing import Any

from .....graph.shapes.operations.arguments import axes_of
from .....graph.shapes.operations.arrangement import moved, pad_widths, part_sizes
from .....records.graph import Constant
from .....records.layer import PlainLayer
from .....records.model import Term
from ...use import Use, Written, atom, in_one_order, last
from ...use import axis_in as place_in
from .arguments import as_whole, called, dtype_of, in_dtype, rank_of, size_text, sizes_text, text_of


def reshape(layer: PlainLayer, use: Use, x: Term, newshape: Any) -> str:
    """``reshape``."""
    sizes = newshape if isinstance(newshape, tuple) else (newshape,)
    return called(last(x), "reshape", *(map(size_text, sizes) if sizes else ("()",)))


def expand_dims(layer: PlainLayer, use: Use, x: Term, axis: Any) -> str:
    """``unsqueeze``, from the front on."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    text = last(x)
    if len(axes) == 1:
        return called(text, "unsqueeze", repr(axes[0]))
    for place in sorted(one % (x.rank + len(axes)) for one in axes):
        text = called(text, "unsqueeze", repr(place))
    return text


def squeeze(layer: PlainLayer, use: Use, x: Term, axis: Any = None) -> str:
    """The axes that are 1 for sure: a batch of 1 stays."""
    shape = x.spec.shape or ()
    axes = tuple(n for n, size in enumerate(shape) if size == 1) if axis is None else axis
    axes = axes[0] if isinstance(axes, tuple) and len(axes) == 1 else axes
    return called(last(x), "squeeze", repr(axes)) if axes != () else last(x)


def permuted(text: str, order: list[int]) -> str:
    """``transpose`` of two axes, or ``permute`` of all."""
    changed = [place for place, number in enumerate(order) if place != number]
    if not changed:
        return text
    if len(changed) == len(("one", "other")):
        return called(text, "transpose", *map(str, changed))
    return called(text, "permute", *map(str, order))


def transpose(layer: PlainLayer, use: Use, x: Term, axes: Any = None) -> str:
    """Axes in another order, or backwards."""
    return permuted(last(x), list(range(x.rank))[::-1] if axes is None else list(axes_of(axes, x.rank)))


def swapaxes(layer: PlainLayer, use: Use, x: Term, axis1: int, axis2: int) -> str:
    """Two axes change places."""
    return called(last(x), "transpose", repr(axis1), repr(axis2))


def moveaxis(layer: PlainLayer, use: Use, x: Term, source: Any, destination: Any) -> str:
    """Some axes get other places."""
    return permuted(last(x), moved(source, destination, x.rank))


def ravel(layer: PlainLayer, use: Use, x: Term) -> str:
    """One axis."""
    return called(last(x), "flatten")


def flip(layer: PlainLayer, use: Use, x: Term, axis: Any = None) -> str:
    """Backwards along some axes."""
    return called(last(x), "flip", *map(str, axes_of(axis, x.rank)))


def roll(layer: PlainLayer, use: Use, x: Term, shift: Any, axis: Any = None) -> str:
    """What leaves at one end comes in at the other."""
    return called(last(x), "roll", repr(shift), *([] if axis is None else [repr(axis)]))


def listed(use: Use, items: tuple[Any, ...]) -> list[str]:
    """Tensors of one dtype; numbers as tensors."""
    texts = [text_of(use, item) for item in items]
    return in_dtype(texts, items, None)


def concatenate(layer: PlainLayer, use: Use, xs: tuple[Any, ...], axis: int = 0) -> Written:
    """``torch.cat``."""
    if all(isinstance(x, Term) for x in xs):
        texts, order = in_one_order(xs)
        place = place_in(xs[0], axis, order)
        return Written(f"torch.cat([{', '.join(in_dtype(texts, xs, None))}], dim={place})", order)
    return Written(f"torch.cat([{', '.join(listed(use, xs))}], dim={axis})")


def append(layer: PlainLayer, use: Use, x1: Any, x2: Any, axis: int | None = None) -> str:
    """``torch.cat`` of two, of vectors without an axis."""
    texts = listed(use, (x1, x2))
    texts = [called(text, "flatten") for text in texts] if axis is None else texts
    return f"torch.cat([{', '.join(texts)}], dim={0 if axis is None else axis})"


def stack(layer: PlainLayer, use: Use, x: tuple[Any, ...], axis: int = 0) -> str:
    """``torch.stack``."""
    return f"torch.stack([{', '.join(listed(use, x))}], dim={axis})"


def hstack(layer: PlainLayer, use: Use, xs: tuple[Any, ...]) -> str:
    """``torch.hstack``."""
    return f"torch.hstack([{', '.join(listed(use, xs))}])"


def vstack(layer: PlainLayer, use: Use, xs: tuple[Any, ...]) -> str:
    """``torch.vstack``."""
    return f"torch.vstack([{', '.join(listed(use, xs))}])"


def split(layer: PlainLayer, use: Use, x: Term, indices_or_sections: Any, axis: int = 0) -> str:
    """``split`` into sizes."""
    sizes = part_sizes(layer, x.spec, indices_or_sections, axis)
    if len(sizes) == 1:
        return last(x)
    text = repr(sizes[0]) if len(set(sizes)) == 1 and sizes[0] else repr(sizes)
    return called(last(x), "split", text, f"dim={axis}")


def hsplit(layer: PlainLayer, use: Use, x: Term, indices_or_sections: Any) -> str:
    """Along the second axis."""
    return split(layer, use, x, indices_or_sections, 1)


def unstack(layer: PlainLayer, use: Use, x: Term, num: int | None = None, axis: int = 0) -> str:
    """``unbind``."""
    text = called(last(x), "unbind", repr(axis))
    return f"{text}[0]" if (x.spec.shape or ())[axis] == 1 or num == 1 else text


def tile(layer: PlainLayer, use: Use, x: Term, repeats: Any) -> str:
    """``tile``."""
    return called(last(x), "tile", sizes_text(repeats if isinstance(repeats, tuple) else (repeats,)))


def repeat(layer: PlainLayer, use: Use, x: Term, repeats: Any, axis: int | None = None) -> str:
    """``repeat_interleave``."""
    times = repeats.array.tolist() if isinstance(repeats, Constant) else repeats
    times = times[0] if isinstance(times, tuple | list) else times
    return called(last(x), "repeat_interleave", repr(times), *([] if axis is None else [f"dim={axis}"]))


def broadcast_to(layer: PlainLayer, use: Use, x: Term, shape: Any) -> str:
    """``expand``."""
    return called(last(x), "expand", *map(size_text, shape))


def pad(
    layer: PlainLayer, use: Use, x: Term, pad_width: Any, mode: str = "constant", constant_values: Any = None
) -> str:
    """``F.pad`` takes the last axis first."""
    widths = pad_widths(pad_width, x.rank)
    while len(widths) > 1 and widths[0] == (0, 0):
        widths = widths[1:]
    flat = [str(number) for pair in reversed(widths) for number in pair]
    value = [] if constant_values in (None, 0) else [f"value={text_of(use, constant_values)}"]
    return f"F.pad({', '.join((last(x), sizes_text(flat), *value))})"


def getitem(layer: PlainLayer, use: Use, x: Term, key: Any) -> str:
    """The same brackets; what goes backwards is turned first."""
    items = key if isinstance(key, tuple) else (key,)
    text, turned = last(x), []
    for number, item in enumerate(items):
        if isinstance(item, slice) and item.step == -1:
            turned.append(place_of(items, number, x.rank))
    text = called(text, "flip", *map(str, turned)) if turned else text
    shown = [slice(None) if isinstance(item, slice) and item.step == -1 else item for item in items]
    while shown and (shown[-1] is Ellipsis or shown[-1] == slice(None)):
        shown.pop()
    return f"{atom(text)}[{', '.join(item_text(use, item) for item in shown)}]" if shown else text


def place_of(items: tuple[Any, ...], number: int, rank: int) -> int:
    """Which axis an item in brackets is of."""
    before = [item for item in items[:number] if item is not None]
    if Ellipsis not in before:
        return len(before)
    return rank - sum(item is not None for item in items[number:])


def item_text(use: Use, item: Any) -> str:
    """One item in brackets."""
    if isinstance(item, slice):
        start, stop = ("" if bound is None else str(bound) for bound in (item.start, item.stop))
        return f"{start}:{stop}" + (f":{item.step}" if item.step not in (None, 1) else "")
    if item is Ellipsis:
        return "..."
    return text_of(use, item)


def places(use: Use, item: Any) -> str:
    """Places as whole numbers."""
    return as_whole(text_of(use, item), dtype_of(item)) if isinstance(item, Term) else text_of(use, item)


def take(layer: PlainLayer, use: Use, x: Any, indices: Any, axis: int | None = None) -> str:
    """Brackets."""
    text = called(text_of(use, x), "flatten") if axis is None else text_of(use, x)
    number = (axis or 0) % max(1, rank_of(x))
    return f"{atom(text)}[{', '.join((*[':'] * number, places(use, indices)))}]"


def take_along_axis(layer: PlainLayer, use: Use, x: Term, indices: Any, axis: int | None = None) -> str:
    """``torch.take_along_dim``."""
    rest = [] if axis is None else [f"dim={axis}"]
    return f"torch.take_along_dim({', '.join((last(x), places(use, indices), *rest))})"


def one_hot(
    layer: PlainLayer, use: Use, x: Term, num_classes: int, axis: int = -1, dtype: str | None = None,
    sparse: bool = False,
) -> str:  # fmt: skip
    """Equality with every class: a token that has none gets zeros."""
    text = as_whole(last(x), x.spec.dtype)
    rows = f"{atom(text)}.unsqueeze(-1) == torch.arange({num_classes}, device={atom(last(x))}.device)"
    text = f"({rows}).long()" if dtype and "int" in dtype else rows if dtype == "bool" else f"({rows}).to(self.dtype)"
    return text if axis in (-1, x.rank) else called(text, "movedim", "-1", repr(axis))


def triangle(method: str) -> Callable[..., str]:
    """``tril`` and ``triu``."""

    def line(layer: PlainLayer, use: Use, x: Term, k: int = 0) -> str:
        return called(last(x), method, *([repr(k)] if k else []))

    return line


def diagonal(layer: PlainLayer, use: Use, x: Term, offset: int = 0, axis1: int = 0, axis2: int = 1) -> str:
    """``diagonal``."""
    return called(last(x), "diagonal", repr(offset), repr(axis1), repr(axis2))


def trace(layer: PlainLayer, use: Use, x: Term, offset: int = 0, axis1: int = 0, axis2: int = 1) -> str:
    """The sum of the diagonal."""
    return f"{diagonal(layer, use, x, offset, axis1, axis2)}.sum(-1)"


def diff(layer: PlainLayer, use: Use, a: Term, n: int = 1, axis: int = -1) -> str:
    """``torch.diff``."""
    return f"torch.diff({last(a)}, {n}, dim={axis})"


def meshgrid(layer: PlainLayer, use: Use, *x: Term, indexing: str = "xy") -> str:
    """``torch.meshgrid``."""
    text = f'torch.meshgrid({", ".join(called(last(item), "flatten") for item in x)}, indexing="{indexing}")'
    return f"{text}[0]" if len(x) == 1 else text


def selected(layer: PlainLayer, use: Use, condlist: Any, choicelist: Any, default: Any = 0) -> str:
    """The first choice whose condition holds."""
    text = text_of(use, default)
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        text = f"torch.where({text_of(use, condition)}, {text_of(use, choice)}, {text})"
    return text


def block(layer: PlainLayer, use: Use, inputs: Term, start_indices: Any, shape: Any) -> str:
    """Brackets."""
    starts = start_indices.array.tolist() if isinstance(start_indices, Constant) else start_indices
    parts = [
        slice(start or None, None if size == -1 or (not start and size == whole) else start + size)
        for start, size, whole in zip(starts, shape, inputs.spec.shape or (), strict=True)
    ]
    return getitem(layer, use, inputs, tuple(parts))


LINES: Mapping[str, Any] = {
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
    "ops.tril": triangle("tril"),
    "ops.triu": triangle("triu"),
    "ops.diagonal": diagonal,
    "ops.trace": trace,
    "ops.diff": diff,
    "ops.meshgrid": meshgrid,
    "ops.select": selected,
    "ops.slice": block,
}
