"""Arrays in messages: the words say how they are called and stored, the blocks are their bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def rows_of(arrays: Mapping[str, NDArray[Any]]) -> list[list[Any]]:
    """Name, dtype and shape of each array."""
    return [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]


def blocks_of(arrays: Mapping[str, NDArray[Any]]) -> list[memoryview]:
    """The bytes of each array, in C order; copied only where they lie otherwise."""
    return [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays.values()]


def arrays_of(rows: Sequence[Sequence[Any]], blocks: Sequence[bytes]) -> dict[str, NDArray[Any]]:
    """The arrays of a message, read-only."""
    pairs = zip(rows, blocks, strict=True)
    return {name: np.ndarray(shape, dtype, block) for (name, dtype, shape), block in pairs}
