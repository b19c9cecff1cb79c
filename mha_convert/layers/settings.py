"""Settings of a Keras class as rows, and the one checker that reads them from a configuration.

A value that a setting cannot have is refused, and so is a setting that a plain layer's class does not have: what the
file says of a layer must not be lost silently.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from ..errors import shortened

# What every layer has, and what makes no difference to a trained layer's output.
OF_EVERY_LAYER = ("name", "trainable", "dtype", "autocast", "batch_input_shape", "batch_shape")
MOST_SHOWN = 40  # letters of a value in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One argument of a class.

    Args:
        name: Keras' own.
        is_valid: whether a value from a file can be its.
        expected: such values in words: ``"true or false"``.
        default: Keras' own, for files that do not say it.
        may_be_null: whether null in a file means the default.
    """

    name: str
    is_valid: Callable[[Any], bool]
    expected: str
    default: Any = None
    may_be_null: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """A value that a setting cannot have."""

    name: str
    value: Any
    expected: str

    @property
    def shown(self) -> str:
        """The value as Python writes it, cut."""
        return shortened(repr(self.value), MOST_SHOWN)

    def __str__(self) -> str:
        """``"epsilon is 'x', expected a positive number"``."""
        return f"{self.name} is {self.shown}, expected {self.expected}"


def is_switch(value: Any) -> bool:
    """Whether it is true or false."""
    return isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a number, which ``True`` is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: Any) -> TypeGuard[int]:
    """Whether it is a whole number from 1."""
    return type(value) is int and value > 0


def is_rate(value: Any) -> bool:
    """Whether it is a number between 0 and 1."""
    return type(value) in (int, float) and 0 <= value <= 1


def is_positive(value: Any) -> bool:
    """Whether it is a finite number above 0."""
    return type(value) in (int, float) and 0 < value < float("inf")


def is_not_negative(value: Any) -> bool:
    """Whether it is a finite number from 0."""
    return type(value) in (int, float) and 0 <= value < float("inf")


def is_axes(value: Any) -> bool:
    """Whether it is an axis, or a list of different ones."""
    axes = value if isinstance(value, list) else [value]
    are_axes = 0 < len(axes) <= 32 and all(type(axis) is int and -32 <= axis < 32 for axis in axes)
    return are_axes and len(set(axes)) == len(axes)


def switch(name: str, default: bool = False, *, may_be_null: bool = False) -> Setting:
    """A setting that is true or false."""
    return Setting(name=name, is_valid=is_switch, expected="true or false", default=default, may_be_null=may_be_null)


# The share of scores that training drops; every attention class has it, and files may hold null.
DROPOUT = Setting(name="dropout", is_valid=is_rate, expected="a number between 0 and 1", default=0.0, may_be_null=True)


def values(rows: Iterable[Setting], config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings' values; the default where a file has none, or one that ``faults`` reports."""
    given = {row.name: config.get(row.name, row.default) for row in rows}
    return {row.name: given[row.name] if row.is_valid(given[row.name]) else row.default for row in rows}


def faults(rows: Iterable[Setting], config: Mapping[str, Any]) -> Iterator[Fault]:
    """Values that a setting cannot have, in the order of the rows."""
    for row in rows:
        value = config.get(row.name, row.default)
        is_absent = value is None and (row.may_be_null or row.name not in config)
        if not is_absent and not row.is_valid(value):
            yield Fault(row.name, value, row.expected)


def strangers(rows: Iterable[Setting], without_effect: Iterable[str], config: Mapping[str, Any]) -> Iterator[str]:
    """Settings that the class does not have, in words.

    Args:
        rows: the settings that make a difference.
        without_effect: other settings of the class, besides those of every layer.
        config: Keras' ``get_config()``.
    """
    known = {row.name for row in rows} | set(without_effect) | set(OF_EVERY_LAYER)
    found = [shortened(name, MOST_SHOWN) for name in config if name not in known]
    if found:
        yield f"it has the setting {' and '.join(found[:3])}, which this class does not have"


def compute_dtype(policy: Any) -> str | None:
    """What the layer computes in: ``mixed_float16`` stores float32 and computes in float16.

    A policy of quantization (``int8_from_mixed_float16``) names the one that it was made from.
    """
    if isinstance(policy, dict):
        inner = policy.get("config")
        policy = (inner.get("source_name") or inner.get("name")) if isinstance(inner, dict) else None
    return policy.rpartition("_from_")[2].removeprefix("mixed_") if isinstance(policy, str) else None
