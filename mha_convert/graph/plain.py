"""Nested data of a configuration as immutable data, without the wrappers that Keras puts around what JSON lacks."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from ..records.graph import Constant, Value
from ..records.source import Array

DEEPEST = 100  # lists and objects in one another, within one layer's settings or one call's arguments
FLOATS = ("float16", "bfloat16", "float32", "float64")
WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *WHOLE, "bool")
Inner = Callable[[Any], Any]
Reference = Callable[[Any], Value | None]


class MalformedError(Exception):
    """A graph that Keras cannot have written; its text is the fact, without the file and the next step."""


def no_reference(data: Any) -> None:
    """For data that holds no tensors."""


def plain(data: Any, reference: Reference = no_reference, depth: int = 0) -> Any:
    """``data`` with tuples for lists, read-only mappings for objects, and what the wrappers hold.

    Args:
        data: as the JSON has it.
        reference: the value that a list or an object stands for, None where it is only a list or an object.
        depth: of ``data`` in what is read.

    Raises:
        MalformedError: it is nested too deeply, or a wrapper does not hold what it should.
    """
    if not isinstance(data, list | tuple | dict):
        return data
    if depth == DEEPEST:
        raise MalformedError(f"settings or arguments are nested more than {DEEPEST} deep")
    value = reference(data)
    if value is not None:
        return value

    def inner(part: Any) -> Any:
        return plain(part, reference, depth + 1)

    if not isinstance(data, dict):
        return tuple([inner(part) for part in data])
    kind = data.get("class_name")
    wrapper = WRAPPERS.get(kind) if isinstance(kind, str) else None
    if wrapper is not None:
        return wrapper(data, inner)
    return MappingProxyType({key: inner(part) for key, part in data.items()})


def within(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """What Keras 3 puts under ``config``, and Keras 2 beside the name of the wrapper."""
    config = data.get("config")
    return config if isinstance(config, dict) else data


def items(data: Mapping[str, Any], inner: Inner) -> Any:
    """A tuple, or TensorFlow's shape, which is None where its rank is unknown."""
    parts = within(data).get("items")
    if parts is None and data["class_name"] == "TensorShape":
        return None
    if not isinstance(parts, list | tuple):
        raise MalformedError(f"a {data['class_name']} holds no list of items")
    return inner(parts)


def array(data: Mapping[str, Any], inner: Inner) -> Constant:
    """An array of the graph, as nested lists of numbers."""
    config = within(data)
    name = config.get("dtype")
    if not isinstance(name, str) or name not in DTYPES:
        raise MalformedError(f"an array in the graph has the dtype {name}, which is not of numbers")
    return Constant(numbers(config.get("value"), name), name)


def numbers(value: Any, dtype: str | None) -> Array:
    """Nested lists of numbers as a read-only array; of NumPy's own choice where no dtype is told."""
    try:
        raw = np.array(value)
    except (ValueError, OverflowError):
        raise MalformedError("an array in the graph has rows of unequal lengths") from None
    if raw.dtype.kind not in "biuf" and raw.size:
        raise MalformedError("an array in the graph holds what is not a number")
    found = raw if dtype is None else converted(raw, dtype)
    found.flags.writeable = False
    return found


def converted(raw: Array, dtype: str) -> Array:
    """The array in its own dtype, which must hold every number of it."""
    kind: Any = dtype
    if dtype == "bfloat16":
        import ml_dtypes  # needs as long as all of this module, and is seldom needed

        kind = ml_dtypes.bfloat16
    with np.errstate(all="ignore"):
        found = raw.astype(kind)
    fits = np.isfinite(found) == np.isfinite(raw) if dtype in FLOATS else found == raw
    if not np.all(fits):
        raise MalformedError(f"an array in the graph holds a number that {dtype} does not have")
    return found


def part(data: Mapping[str, Any], inner: Inner) -> slice:
    """``start:stop:step``."""
    config = within(data)
    return slice(*(inner(config.get(key)) for key in ("start", "stop", "step")))


def ellipsis_(data: Mapping[str, Any], inner: Inner) -> Any:
    """``...``."""
    return Ellipsis


def text_bytes(data: Mapping[str, Any], inner: Inner) -> bytes:
    """Bytes, which JSON holds as text."""
    value = within(data).get("value")
    if not isinstance(value, str):
        raise MalformedError("bytes in the graph are not written as text")
    return value.encode("utf-8", "surrogatepass")


def policy_name(data: Mapping[str, Any], inner: Inner) -> Any:
    """A dtype policy by its name: ``float32``, ``mixed_bfloat16``, …"""
    name = within(data).get("name")
    return name if isinstance(name, str) else MappingProxyType({key: inner(part) for key, part in data.items()})


WRAPPERS: Mapping[str, Callable[[Mapping[str, Any], Inner], Any]] = {
    "__tuple__": items,
    "TensorShape": items,
    "__tensor__": array,
    "__numpy__": array,
    "__slice__": part,
    "__ellipsis__": ellipsis_,
    "__bytes__": text_bytes,
    "DTypePolicy": policy_name,
    "Policy": policy_name,
    "PolicyV1": policy_name,
}


def shape_of(data: Any) -> tuple[int | None, ...] | None:
    """A shape, in any form that Keras wrote; None for what is none."""
    shape = plain(data) if isinstance(data, list | tuple | dict) else None
    if isinstance(shape, tuple) and all(size is None or (type(size) is int and size >= 0) for size in shape):
        return shape
    return None
