"""Settings of a Keras class as rows, and the one checker that reads them from a configuration.

A setting that a class does not have is refused like a value that it cannot have: what the file says of a layer must not
be lost in silence.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import printable

# What every layer has, and what makes no difference to a trained layer's output.
OF_EVERY_LAYER = ("name", "trainable", "dtype", "autocast", "batch_input_shape", "batch_shape")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One argument of a class.

    Args:
        name: Keras' own.
        is_valid: whether a value from a file can be its.
        expected: such values in words: ``"true or false"``.
        default: Keras' own, for files that do not say it.
    """

    name: str
    is_valid: Callable[[Any], bool]
    expected: str
    default: Any


def is_switch(value: Any) -> bool:
    """True or False."""
    return isinstance(value, bool)


def is_positive(value: Any) -> bool:
    """A finite number above 0."""
    return type(value) in (int, float) and 0 < value < float("inf")


def is_axes(value: Any) -> bool:
    """An axis, or a list of some that differ."""
    axes = value if isinstance(value, list) else [value]
    return 0 < len(axes) <= 32 and all(type(axis) is int and -32 <= axis < 32 for axis in axes)


def switch(name: str, default: bool) -> Setting:
    """True or False."""
    return Setting(name=name, is_valid=is_switch, expected="true or false", default=default)


def read_settings(
    rows: tuple[Setting, ...], without_effect: tuple[str, ...], config: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The values of the rows, and every fault in words: ``"epsilon is 'x', expected a positive number"``.

    Args:
        rows: the settings that make a difference.
        without_effect: other settings of the class, beside those of every layer.
        config: Keras' ``get_config()``.
    """
    return {row.name: config.get(row.name, row.default) for row in rows}, list(faults(rows, without_effect, config))


def faults(rows: tuple[Setting, ...], without_effect: tuple[str, ...], config: Mapping[str, Any]) -> Iterator[str]:
    """Values that a setting cannot have, and settings that the class does not have."""
    for row in rows:
        value = config.get(row.name, row.default)
        if not row.is_valid(value):
            yield f"{row.name} is {printable(repr(value), 40)}, expected {row.expected}"
    known = {row.name for row in rows} | set(without_effect) | set(OF_EVERY_LAYER)
    strangers = [printable(name, 40) for name in config if name not in known]
    if strangers:
        yield f"it has the setting {' and '.join(strangers[:3])}, which this class does not have"
