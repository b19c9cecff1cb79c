"""``keras.layers.LayerNormalization``: the mean and the variance of each position's features, ``gamma`` and ``beta``.

https://keras.io/api/layers/normalization_layers/layer_normalization/
"""

from collections.abc import Iterator
from typing import Any

from ..records.layer import PlainLayer
from ..records.source import Group
from .calls import input_rank
from .companions import Companion
from .settings import Setting, is_axes, is_positive, switch

KIND = "LayerNormalization"


def faults(layer: PlainLayer, group: Group) -> Iterator[str]:
    """What ``nn.LayerNorm`` does not compute: other axes than the last ones, and Keras' ``rms_scaling``."""
    if layer.settings["rms_scaling"]:
        yield "it has rms_scaling=True, which divides by the deviation and does not subtract the mean"
    if not layer.arrays:
        yield "it has no variables (center and scale are off): there is nothing to convert"
    axes = layer.settings["axis"]
    rank = input_rank(group.config)
    if trailing(axes, rank) is False:
        where = f"axis {axes} of an input of rank {rank or 'unknown'}"
        yield f"it normalizes {where}, and nn.LayerNorm normalizes the last ones"
    shapes = {variable.shape for variable in layer.arrays.values()}
    if len(shapes) > 1 or any(len(shape) != len(axes) or 0 in shape for shape in shapes):
        yield f"its gamma and beta are of shape {' and '.join(map(str, sorted(shapes)))}, expected one size per axis"


def cautions(layer: PlainLayer, group: Group) -> Iterator[str]:
    """A positive axis is known to be the last only where the rank of the input is known."""
    axes = layer.settings["axis"]
    if trailing(axes, input_rank(group.config)) is None:
        yield f"it normalizes axis {axes}, which is assumed to be the last: the file does not hold its input's rank"


def trailing(axes: list[int], rank: int | None) -> bool | None:
    """Whether the axes are the last ones, in their order; None where only the rank of the input would tell."""
    if all(axis < 0 for axis in axes):
        return axes == list(range(-len(axes), 0))
    if rank is None:
        consecutive = all(axis > 0 for axis in axes) and axes == list(range(axes[0], axes[0] + len(axes)))
        return None if consecutive else False
    return axes == list(range(rank - len(axes), rank))


def normalized(settings: dict[str, Any]) -> dict[str, Any]:
    """``axis`` is a number in files of layers that were not built, and a list in others."""
    axis = settings["axis"]
    return settings | {"axis": sorted(axis) if isinstance(axis, list) else [axis]}


ROW = Companion(
    kind=KIND,
    settings=(
        Setting(name="axis", is_valid=is_axes, expected="an axis or a list of axes", default=-1),
        Setting(name="epsilon", is_valid=is_positive, expected="a positive number", default=1e-3),
        switch("center", True),
        switch("scale", True),
        switch("rms_scaling", False),
    ),
    without_effect=tuple(
        f"{role}_{part}" for role in ("beta", "gamma") for part in ("initializer", "regularizer", "constraint")
    ),
    normalized=normalized,
    faults=faults,
    cautions=cautions,
)
