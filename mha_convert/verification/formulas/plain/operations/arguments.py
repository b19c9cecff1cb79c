"""Arguments of operations as NumPy takes them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .....records.graph import Constant
from .....records.source import Array


def plain(item: Any) -> Any:
    """An array that stands in the graph as NumPy's: floats in float64, whole numbers in int64."""
    if isinstance(item, tuple):
        return tuple(plain(part) for part in item)
    if isinstance(item, Mapping):
        return np.shape(item["size_of"])[item["axis"]]  # a size of a tensor
    if not isinstance(item, Constant):
        return item
    array = np.asarray(item.array)
    wide: Any = {"b": bool, "i": np.int64, "u": np.int64}.get(array.dtype.kind, np.float64)
    return array.astype(wide)


def converted(array: Any, dtype: str | None) -> Array:
    """An array in the widest dtype of a sort: floats, whole numbers (cut towards 0), bits."""
    found = np.asarray(plain(array))
    if dtype is None:
        return found
    if dtype == "bool":
        return found != 0
    return found.astype(np.float64) if "float" in dtype else np.trunc(found).astype(np.int64)
