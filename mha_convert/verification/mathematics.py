"""What the proof needs to know of one kind of layer: the form that every kind fills in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..records.source import Array
from .genuine_keras import Request

Values = Mapping[str, Array]  # what one call returns, by name


class Call(Protocol):
    """One call: its inputs are the kind's own."""

    @property
    def name(self) -> str:
        """What messages call it: ``"padding mask"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mathematics:
    """What one kind of layer computes.

    Args:
        cases: the calls, for a layer and Keras' arrays in float64.
        formula: what each call returns, in NumPy float64.
        arithmetic: how far that can be off by the rounding of each operation, in float64 or in genuine Keras' own.
        rounding: how far it can move when arrays are rounded once to the dtypes that are given by name.
        run: what a module of PyTorch returns for one call.
        keras_request: how genuine Keras makes the layer and is called.
        telling: the values whose bounds must be small for a comparison to mean anything.
    """

    cases: Callable[[Any, Mapping[str, Array]], Sequence[Any]]
    formula: Callable[[Mapping[str, Array], Sequence[Any]], Sequence[Values]]
    arithmetic: Callable[..., Sequence[Values]]
    rounding: Callable[[Mapping[str, Array], Sequence[Any], Mapping[str, str]], Sequence[Values]]
    run: Callable[[Any, Any, Any], Values]
    keras_request: Callable[[Any, Sequence[Any]], Request]
    telling: tuple[str, ...]
