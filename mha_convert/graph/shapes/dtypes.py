"""Which dtype has the result of an operation? Keras' rules, which are those of JAX, for numbers of 32 bits.

https://keras.io/api/utils/backend_utils/#result_type-function; a Python number is weak: it takes the tensor's dtype
where that can hold it.
"""

from collections.abc import Iterable
from functools import reduce

FLOAT, WHOLE, BITS = "float32", "int32", "bool"
WEAK_WHOLE, WEAK_FLOAT = "int", "float"
WIDER = {
    "bool": ("int",),
    "uint8": ("int16", "uint16"),
    "uint16": ("int32", "uint32"),
    "uint32": ("int64", "uint64"),
    "uint64": ("float",),
    "int": ("uint8", "int8"),
    "int8": ("int16",),
    "int16": ("int32",),
    "int32": ("int64",),
    "int64": ("float",),
    "float": ("bfloat16", "float16"),
    "bfloat16": ("float32",),
    "float16": ("float32",),
    "float32": ("float64",),
    "float64": (),
}


def wider(dtype: str) -> frozenset[str]:
    """Every dtype that one of this dtype may become, itself included."""
    return frozenset((dtype,)).union(*map(wider, WIDER[dtype]))


UPPER = {dtype: wider(dtype) for dtype in WIDER}


def result_type(dtypes: Iterable[str | None]) -> str:
    """The least dtype that all may become; None, which layers return, is a float."""
    found = reduce(common, (FLOAT if dtype is None else dtype for dtype in dtypes))
    return {WEAK_WHOLE: WHOLE, WEAK_FLOAT: FLOAT}.get(found, found)


def common(first: str, second: str) -> str:
    """Of two."""
    shared = UPPER[first] & UPPER[second]
    return next(dtype for dtype in shared if shared <= UPPER[dtype])


def is_float(dtype: str | None) -> bool:
    """Whether it is of numbers with a fraction; a file that says nothing means such."""
    return dtype is None or "float" in dtype


def is_whole(dtype: str | None) -> bool:
    """Whether it is of whole numbers."""
    return dtype is not None and "int" in dtype


def as_float(dtype: str | None) -> str:
    """What functions such as the square root return."""
    return FLOAT if dtype is None or not is_float(dtype) or dtype == WEAK_FLOAT else dtype


def as_number(dtype: str | None) -> str:
    """What sums return: bits are counted."""
    return WHOLE if dtype == BITS else dtype or FLOAT
