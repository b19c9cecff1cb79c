"""Operations that give numbers other places, in NumPy. https://keras.io/api/ops/numpy/"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .....records.source import Array
from .arguments import converted, plain


def arranged(function: Callable[..., Any]) -> Callable[..., Any]:
    """A formula of one tensor, or of several in a tuple, and options."""

    def formula(layer: Any, arrays: Mapping[str, Array], *given: Any, **options: Any) -> Any:
        named = {name: plain(value) for name, value in options.items()}
        return function(*map(plain, given), **named)

    return formula


def one_hot(x: Array, num_classes: int, axis: int = -1, dtype: str | None = None, sparse: bool = False) -> Array:
    """1 at each token's place in a new axis; nothing for a token that has none."""
    rows = np.equal(np.trunc(x)[..., None], np.arange(num_classes))
    return np.moveaxis(converted(rows, dtype or "float32"), -1, axis)


def getitem(x: Array, key: Any) -> Array:
    """NumPy's own meaning."""
    return x[key]


def split(x: Array, indices_or_sections: Any, axis: int = 0) -> tuple[Array, ...]:
    """Equal parts, or parts between places."""
    places = list(indices_or_sections) if isinstance(indices_or_sections, tuple) else indices_or_sections
    return tuple(np.split(x, places, axis))


def unstack(x: Array, num: int | None = None, axis: int = 0) -> tuple[Array, ...]:
    """An array for each place of an axis."""
    return tuple(np.moveaxis(x, axis, 0))


def pad(x: Array, pad_width: Any, mode: str = "constant", constant_values: Any = None) -> Array:
    """More at both ends."""
    return np.pad(x, pad_width, constant_values=0 if constant_values is None else constant_values)


def take(x: Array, indices: Any, axis: int | None = None) -> Array:
    """By places."""
    return np.take(x, np.asarray(indices).astype(np.int64), axis)


def take_along_axis(x: Array, indices: Any, axis: int | None = None) -> Array:
    """A place of each row."""
    return np.take_along_axis(x, np.asarray(indices).astype(np.int64), axis)


def moved(x: Array, source: Any, destination: Any) -> Array:
    """Some axes elsewhere."""
    return np.moveaxis(x, source, destination)


def block(inputs: Array, start_indices: Any, shape: Any) -> Array:
    """A part of the array."""
    bounds = [
        slice(start, None if size == -1 else start + size) for start, size in zip(start_indices, shape, strict=True)
    ]
    return inputs[tuple(bounds)]


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "reshape": lambda x, newshape: np.reshape(x, newshape),
    "expand_dims": np.expand_dims,
    "squeeze": np.squeeze,
    "transpose": np.transpose,
    "swapaxes": np.swapaxes,
    "moveaxis": moved,
    "ravel": np.ravel,
    "flip": np.flip,
    "roll": np.roll,
    "concatenate": lambda xs, axis=0: np.concatenate(xs, axis),
    "append": lambda x1, x2, axis=None: np.append(x1, x2, axis),
    "stack": lambda x, axis=0: np.stack(x, axis),
    "hstack": np.hstack,
    "vstack": np.vstack,
    "split": split,
    "hsplit": lambda x, indices_or_sections: split(x, indices_or_sections, 1),
    "unstack": unstack,
    "tile": lambda x, repeats: np.tile(x, repeats),
    "repeat": lambda x, repeats, axis=None: np.repeat(x, repeats, axis),
    "broadcast_to": lambda x, shape: np.broadcast_to(x, shape),
    "pad": pad,
    "getitem": getitem,
    "take": take,
    "take_along_axis": take_along_axis,
    "one_hot": one_hot,
    "tril": lambda x, k=0: np.tril(x, k),
    "triu": lambda x, k=0: np.triu(x, k),
    "diagonal": np.diagonal,
    "trace": np.trace,
    "diff": lambda a, n=1, axis=-1: np.diff(a, n, axis),
    "meshgrid": lambda *x, indexing="xy": tuple(np.meshgrid(*x, indexing=indexing)),
    "select": lambda condlist, choicelist, default=0: np.select(condlist, choicelist, default),
    "slice": block,
}
FORMULAS: Mapping[str, Any] = {f"ops.{name}": arranged(function) for name, function in FUNCTIONS.items()}
