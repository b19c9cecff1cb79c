"""Activations, as layers of their own and as settings of other layers.

https://keras.io/api/layers/activations/
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...records.source import Version
from ..companions import Companion
from ..settings import Setting, is_axes, is_not_negative, is_number

NAMES = frozenset(
    """
    linear relu relu6 sigmoid tanh softmax log_softmax softplus softsign elu selu silu gelu mish exponential
    leaky_relu hard_sigmoid hard_silu hard_tanh hard_shrink soft_shrink tanh_shrink celu log_sigmoid squareplus
    sparse_plus sparse_sigmoid sparsemax
    """.split()  # noqa: SIM905 - one line a word would be long
)
ALIASES = {"swish": "silu", "hard_swish": "hard_silu", "exp": "exponential"}
KERAS_3 = (3,)
OF_RELU = {"max_value": None, "negative_slope": 0.0, "threshold": 0.0}


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of every number, or of one axis: Keras' name, and what differs from its usual form."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


def is_activation(value: Any) -> bool:
    """Whether a setting names an activation that is known, in any form that Keras wrote."""
    return activation_of(value) is not None


def activation_of(value: Any, version: Version = KERAS_3) -> Activation | None:
    """The activation that a setting names; None where it is not known.

    A name, a wrapped name (``{"class_name": "function", "config": "relu"}``), or a layer object. ``hard_sigmoid`` of
    Keras 2 is ``clip(0.2 x + 0.5, 0, 1)``, of every Keras 3 ``relu6(x + 3) / 6``; a file without a version is of
    Keras 2.
    """
    if value is None:
        return Activation("linear")
    if isinstance(value, Mapping):
        return activation_of_object(value, version)
    if not isinstance(value, str):
        return None
    name = ALIASES.get(value, value)
    if name == "hard_sigmoid" and version < KERAS_3:
        return Activation("hard_sigmoid", {"slope": 0.2})
    return Activation(name) if name in NAMES else None


def activation_of_object(value: Mapping[str, Any], version: Version) -> Activation | None:
    """A function that is written with its class, or a layer in an activation's place."""
    name, config = value.get("class_name"), value.get("config")
    if name == "function" or isinstance(config, str):
        return activation_of(config, version) if isinstance(config, str) else None
    layer = OF_LAYERS.get(str(name))
    return layer(config, version) if layer and isinstance(config, Mapping) else None


def leaky_relu(settings: Mapping[str, Any], version: Version) -> Activation | None:
    """``LeakyReLU``: its slope is ``alpha`` in Keras 2, ``negative_slope`` in Keras 3; 0.3 where it is not told."""
    slope = settings.get("negative_slope", settings.get("alpha", 0.3))
    return Activation("leaky_relu", {"negative_slope": float(slope)}) if is_number(slope) else None


def elu(settings: Mapping[str, Any], version: Version) -> Activation | None:
    """``ELU``."""
    alpha = settings.get("alpha", 1.0)
    return Activation("elu", {"alpha": float(alpha)}) if is_number(alpha) else None


def relu(settings: Mapping[str, Any], version: Version) -> Activation | None:
    """``ReLU`` with a largest value, a slope below and a threshold."""
    options = {name: settings.get(name) for name in OF_RELU}
    if not all(value is None or is_not_negative(value) for value in options.values()):
        return None
    return Activation(
        "relu", {name: float(value) for name, value in options.items() if value not in (None, OF_RELU[name])}
    )


def softmax(settings: Mapping[str, Any], version: Version) -> Activation | None:
    """``Softmax`` over one axis, or several at once."""
    axis = settings.get("axis", -1)
    axes = list(axis) if isinstance(axis, list | tuple) else axis
    return Activation("softmax", {} if axes == -1 else {"axis": axes}) if is_axes(axes) else None


def named(settings: Mapping[str, Any], version: Version) -> Activation | None:
    """``Activation``."""
    return activation_of(settings.get("activation"), version)


OF_LAYERS = {"Activation": named, "ReLU": relu, "LeakyReLU": leaky_relu, "ELU": elu, "Softmax": softmax}


def setting(name: str = "activation", default: Any = None) -> Setting:
    """A setting that names an activation."""
    return Setting(
        name=name, is_valid=is_activation, expected="an activation of Keras that keeps shapes", default=default
    )


def number(name: str, default: float | None) -> Setting:
    """A setting that is a number, or null."""
    return Setting(name=name, is_valid=is_number, expected="a number", default=default, may_be_null=True)


AXES = Setting(name="axis", is_valid=is_axes, expected="an axis or a list of axes", default=-1)
ROWS = (
    Companion(kind="Activation", settings=(setting(),)),
    Companion(
        kind="ReLU",
        settings=tuple(
            Setting(name=name, is_valid=is_not_negative, expected="a number from 0", default=default, may_be_null=True)
            for name, default in OF_RELU.items()
        ),
    ),
    Companion(kind="LeakyReLU", settings=(number("negative_slope", None), number("alpha", None))),
    Companion(kind="ELU", settings=(number("alpha", 1.0),)),
    Companion(kind="Softmax", settings=(AXES,)),
    Companion(kind="Identity", settings=()),
)
