"""Normalizations.

https://keras.io/api/layers/normalization_layers/
https://keras.io/api/layers/preprocessing_layers/numerical/normalization/
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...records.layer import PlainLayer
from ...records.source import Array, Group
from ..companions import Companion, Settings
from ..layer_normalization import ROW as LAYER_NORMALIZATION
from ..layer_normalization import normalized as with_sorted_axes
from ..settings import Setting, is_axes, is_count, is_positive, is_rate, is_switch, switch

EPSILON = Setting(name="epsilon", is_valid=is_positive, expected="a positive number", default=1e-3)
AXES = Setting(name="axis", is_valid=is_axes, expected="an axis or a list of axes", default=-1)
SWITCHES = (switch("center", True), switch("scale", True))
OF_WEIGHTS = ("initializer", "regularizer", "constraint")
UNUSED = tuple(f"{role}_{part}" for role in ("beta", "gamma") for part in OF_WEIGHTS)
OF_TRAINING = (
    *UNUSED,
    "moving_mean_initializer",
    "moving_variance_initializer",
    "renorm_clipping",
    "renorm_momentum",
    "synchronized",
    "fused",
)
MOST_NUMBERS = 1 << 20  # in a list of settings
WITHOUT_BATCH = "one axis or several behind the batch"


def is_axis(value: Any) -> bool:
    """Whether it is one axis, which some versions put in a list."""
    return is_axes(value) and not (isinstance(value, list) and len(value) > 1)


def is_number_of_groups(value: Any) -> bool:
    """Whether it is a whole number from 1, or -1 for a group of each channel."""
    return is_count(value) or (type(value) is int and value == -1)


def is_off(value: Any) -> bool:
    """Whether it is false."""
    return is_switch(value) and not value


def is_kept(value: Any) -> bool:
    """Whether it names axes, none of which is the batch; none at all is one number for everything."""
    return value is None or value == [] or (is_axes(value) and 0 not in (value if isinstance(value, list) else [value]))


def is_numbers(value: Any) -> bool:
    """Whether it is a finite number, or a nested list of such with one shape."""
    return numbers(value) is not None


def numbers(value: Any) -> Array | None:
    """A number, or a nested list of numbers, as Keras computes with it; None for everything else."""
    try:
        found = np.asarray(value, dtype=np.float32)
        are_numbers = np.asarray(value).dtype.kind in "iuf"
    except (TypeError, ValueError, OverflowError):
        return None
    fits = are_numbers and 0 < found.size <= MOST_NUMBERS and found.ndim <= len(("batch", *"spatial"))
    return found if fits and bool(np.isfinite(found).all()) else None


def one_axis(settings: Settings) -> Settings:
    """The axis as a number."""
    axis = settings["axis"]
    return settings | {"axis": axis[0] if isinstance(axis, list) else axis}


def layer_normalization(settings: Settings) -> Settings:
    """With ``rms_scaling`` there is always a gamma, and never a beta, whatever the other settings say."""
    found = with_sorted_axes(settings)
    return found | {"scale": True, "center": False} if settings["rms_scaling"] else found


def normalization(settings: Settings) -> Settings:
    """Whether the layer was adapted to data, so that its numbers are variables; its axes as a list."""
    axis = settings["axis"]
    axes = [] if axis is None else sorted(axis) if isinstance(axis, list) else [axis]
    return settings | {"axis": axes, "is_adapted": settings["mean"] is None}


def mixed_axes(layer: PlainLayer, group: Group | None) -> Iterator[str]:
    """Keras sorts axes as they are written, and so mixes up the numbers of ``[-1, 1]``."""
    axes = layer.settings["axis"]
    if min(axes) < 0 <= max(axes):
        yield f"it normalizes the axes {axes}, of which some count from the front and some from the end"


def size_faults(layer: PlainLayer, group: Group | None) -> Iterator[str]:
    """All arrays of a layer that keeps one axis have a number for each channel."""
    shapes = {variable.shape for variable in layer.arrays.values()}
    if len(shapes) > 1 or any(len(shape) != 1 or 0 in shape for shape in shapes):
        yield f"its arrays are of shape {' and '.join(map(str, sorted(shapes)))}, expected one number a channel"


def group_faults(layer: PlainLayer, group: Group | None) -> Iterator[str]:
    """Channels are divided into groups of one size."""
    yield from size_faults(layer, group)
    for variable in layer.arrays.values():
        count = layer.settings["groups"]
        if count > 0 and len(variable.shape) == 1 and variable.shape[0] % count:
            yield f"it has {variable.shape[0]} channels in {count} groups"
            return


def statistics_faults(layer: PlainLayer, group: Group | None) -> Iterator[str]:
    """Mean and variance are both settings or both variables, of one shape."""
    mean, variance = layer.settings["mean"], layer.settings["variance"]
    if (mean is None) != (variance is None):
        yield "it has a mean or a variance, and not both"
    elif mean is None:
        stored = {layer.arrays[name].shape for name in ("mean", "variance")}
        if len(stored) > 1 or any(len(shape) != len(layer.settings["axis"]) for shape in stored):
            shown = " and ".join(map(str, sorted(stored)))
            yield f"its mean and variance are of shape {shown}, expected one size for each axis"
    elif np.shape(mean) != np.shape(variance) or np.ndim(mean) > len(layer.settings["axis"]):
        yield f"its mean is of shape {np.shape(mean)}, its variance of {np.shape(variance)}"


ROWS: tuple[Companion, ...] = (
    # What --layer NAME of convert refuses, the source of a model can say.
    replace(
        LAYER_NORMALIZATION,
        normalized=layer_normalization,
        faults=mixed_axes,
        cautions=lambda layer, group: (),
    ),
    Companion(
        kind="RMSNormalization",
        settings=(AXES, replace(EPSILON, default=1e-6)),
        normalized=with_sorted_axes,
        faults=mixed_axes,
    ),
    Companion(
        kind="BatchNormalization",
        settings=(
            Setting(name="axis", is_valid=is_axis, expected="one axis", default=-1),
            Setting(name="momentum", is_valid=is_rate, expected="a number between 0 and 1", default=0.99),
            EPSILON,
            *SWITCHES,
            Setting(name="renorm", is_valid=is_off, expected="false", default=False, may_be_null=True),
            Setting(
                name="virtual_batch_size",
                is_valid=lambda value: value is None,
                expected="null, as the layer computes in another way with it",
                may_be_null=True,
            ),
        ),
        without_effect=OF_TRAINING,
        normalized=one_axis,
        faults=size_faults,
    ),
    Companion(
        kind="GroupNormalization",
        settings=(
            Setting(name="axis", is_valid=is_axis, expected="one axis", default=-1),
            Setting(name="groups", is_valid=is_number_of_groups, expected="a whole number from 1, or -1", default=32),
            EPSILON,
            *SWITCHES,
        ),
        without_effect=UNUSED,
        normalized=one_axis,
        faults=group_faults,
    ),
    Companion(kind="UnitNormalization", settings=(AXES,)),
    Companion(
        kind="Rescaling",
        settings=(
            Setting(name="scale", is_valid=is_numbers, expected="a number or a list of numbers"),
            Setting(name="offset", is_valid=is_numbers, expected="a number or a list of numbers", default=0.0),
        ),
    ),
    Companion(
        kind="Normalization",
        settings=(
            Setting(name="axis", is_valid=is_kept, expected=WITHOUT_BATCH, default=-1),
            Setting(name="mean", is_valid=is_numbers, expected="numbers", may_be_null=True),
            Setting(name="variance", is_valid=is_numbers, expected="numbers", may_be_null=True),
            switch("invert", False),
        ),
        normalized=normalization,
        faults=statistics_faults,
    ),
)
