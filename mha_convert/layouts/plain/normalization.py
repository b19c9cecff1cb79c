"""Normalizations, of which most are modules of PyTorch.

https://docs.pytorch.org/docs/stable/nn.html#normalization-layers
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import LayerError, shortened
from ...layers.plain.normalization import numbers
from ...records.graph import TensorSpec
from ...records.layer import PlainLayer
from ...records.plan import LayerPlan, ModuleSpec, Piece, Rule
from ...records.source import Array, Variable
from ..layer_normalization import lay_out as last_axes

AS_IT_IS = "... -> ..."
BY_RANK = {2: "BatchNorm1d", 3: "BatchNorm1d", 4: "BatchNorm2d", 5: "BatchNorm3d"}
STATISTICS = (("running_mean", "moving_mean"), ("running_var", "moving_variance"))


def layer_normalization(layer: PlainLayer, prefix: str, spec: TensorSpec) -> LayerPlan:
    """``nn.LayerNorm``, or a module of our own for ``rms_scaling``; the axes are the last ones where it is called."""
    if not layer.settings["rms_scaling"]:
        plan = last_axes(layer, prefix)
        return plan if layer.arrays else replace(plan, module=without_numbers(layer, spec))
    shape = layer.arrays["gamma"].shape
    return LayerPlan(
        layer=layer,
        prefix=prefix,
        rules=(Rule("weight", (Piece("gamma", AS_IT_IS),)),),
        module=ModuleSpec(
            class_name="DeviationNorm", arguments={"normalized_shape": shape, "eps": layer.settings["epsilon"]}
        ),
    )


def without_numbers(layer: PlainLayer, spec: TensorSpec) -> ModuleSpec:
    """``nn.LayerNorm`` without weight and bias, whose sizes only the input tells."""
    shape = [size_of(layer, spec, axis) for axis in layer.settings["axis"]]
    arguments = {"normalized_shape": shape, "eps": layer.settings["epsilon"], "elementwise_affine": False}
    return ModuleSpec(class_name="LayerNorm", arguments=arguments)


def size_of(layer: PlainLayer, spec: TensorSpec, axis: int) -> int:
    """The size of an axis that a module must know."""
    size = (spec.shape or ())[axis]
    if size is None:
        raise LayerError(
            f"Layer '{shortened(layer.name, 80)}' normalizes an axis of free size, which PyTorch's module must know. "
            "Save the model with that size in its input's shape."
        )
    return size


def rms_normalization(layer: PlainLayer, prefix: str) -> LayerPlan:
    """``nn.RMSNorm``."""
    shape = list(layer.arrays["scale"].shape)
    return LayerPlan(
        layer=layer,
        prefix=prefix,
        rules=(Rule("weight", (Piece("scale", AS_IT_IS),)),),
        module=ModuleSpec(
            class_name="RMSNorm", arguments={"normalized_shape": shape, "eps": layer.settings["epsilon"]}
        ),
    )


def affine(layer: PlainLayer, size: int) -> tuple[Rule, ...]:
    """Weight and bias; ones and zeros where a layer has the other alone."""
    if not {"gamma", "beta"} & set(layer.arrays):
        return ()
    pieces = {
        "weight": Piece("gamma", AS_IT_IS) if "gamma" in layer.arrays else Piece(made="ones", shape=(size,)),
        "bias": Piece("beta", AS_IT_IS) if "beta" in layer.arrays else Piece(made="zeros", shape=(size,)),
    }
    return tuple(Rule(target, (piece,)) for target, piece in pieces.items())


def batch_normalization(layer: PlainLayer, prefix: str, spec: TensorSpec) -> LayerPlan:
    """``nn.BatchNorm1d``, ``2d`` or ``3d``, whose momentum is the share of the new batch, and not of the old mean.

    Its ``num_batches_tracked`` counts for no momentum but None, and has no source.
    """
    rank = len(spec.shape or ())
    if rank not in BY_RANK:
        raise LayerError(
            f"Layer '{shortened(layer.name, 80)}' (BatchNormalization) is called with {rank} axes, and PyTorch's "
            "modules take 2 to 5. Port this layer by hand."
        )
    size = layer.arrays["moving_mean"].shape[0]
    rules = affine(layer, size)
    arguments: dict[str, Any] = {
        "num_features": size,
        "eps": layer.settings["epsilon"],
        "momentum": round(1 - layer.settings["momentum"], 12),
    }
    return LayerPlan(
        layer=layer,
        prefix=prefix,
        rules=(*rules, *(Rule(target, (Piece(source, AS_IT_IS),)) for target, source in STATISTICS)),
        module=ModuleSpec(class_name=BY_RANK[rank], arguments=arguments | ({} if rules else {"affine": False})),
    )


def group_normalization(layer: PlainLayer, prefix: str, spec: TensorSpec) -> LayerPlan:
    """``nn.GroupNorm``; -1 groups are as many as there are channels."""
    size = next((found.shape[0] for found in layer.arrays.values()), None)
    channels = size_of(layer, spec, layer.settings["axis"]) if size is None else size
    count = layer.settings["groups"]
    rules = affine(layer, channels)
    return LayerPlan(
        layer=layer,
        prefix=prefix,
        rules=rules,
        module=ModuleSpec(
            class_name="GroupNorm",
            arguments={
                "num_groups": channels if count == -1 else count,
                "num_channels": channels,
                "eps": layer.settings["epsilon"],
            }
            | ({} if rules else {"affine": False}),
        ),
    )


def rescaling(layer: PlainLayer, prefix: str) -> LayerPlan | None:
    """Nothing for two numbers, which stand in the line; buffers for lists."""
    arrays = {name: np.asarray(numbers(layer.settings[name])) for name in ("scale", "offset")}
    if all(array.ndim == 0 for array in arrays.values()):
        return None
    shape = np.broadcast_shapes(*(array.shape for array in arrays.values()))
    return with_buffers(
        layer, prefix, {name: np.broadcast_to(array, shape) for name, array in arrays.items()}, "Rescaling"
    )


def normalization(layer: PlainLayer, prefix: str, spec: TensorSpec) -> LayerPlan:
    """Buffers ``mean`` and ``variance`` with the axes that the input has behind the batch."""
    rank = len(spec.shape or ())
    kept = sorted(axis % rank for axis in layer.settings["axis"])
    class_name = "Denormalization" if layer.settings["invert"] else "Normalization"
    ones = rank - kept[0] - len(kept) if kept else 0
    if kept != [*range(rank - ones - len(kept), rank - ones)]:
        raise LayerError(
            f"Layer '{shortened(layer.name, 80)}' keeps the axes {layer.settings['axis']}, between which is another. "
            "This has no rule; port this layer by hand."
        )
    if layer.settings["is_adapted"]:
        sizes = " ".join(f"axis_{axis}" for axis in kept)
        pattern = f"{sizes} -> {sizes}{' 1' * ones}" if ones else AS_IT_IS
        shape = (*layer.arrays["mean"].shape, *[1] * ones)
        return LayerPlan(
            layer=replace(layer, arrays={name: layer.arrays[name] for name in ("mean", "variance")}),
            prefix=prefix,
            rules=tuple(Rule(name, (Piece(name, pattern),)) for name in ("mean", "variance")),
            module=ModuleSpec(class_name=class_name, arguments={"shape": shape}),
        )
    arrays = {name: np.asarray(numbers(layer.settings[name])) for name in ("mean", "variance")}
    return with_buffers(
        layer,
        prefix,
        {name: array.reshape((*array.shape, *[1] * (ones if array.ndim else 0))) for name, array in arrays.items()},
        class_name,
    )


def with_buffers(layer: PlainLayer, prefix: str, arrays: Mapping[str, Array], class_name: str) -> LayerPlan:
    """Numbers that stand in the layer's settings as buffers, stored with the weights."""
    shape = next(iter(arrays.values())).shape
    stored = {
        name: Variable(path=f"{layer.path}/{name}", shape=array.shape, dtype=str(array.dtype), read=array.copy)
        for name, array in arrays.items()
    }
    return LayerPlan(
        layer=replace(layer, arrays=stored),
        prefix=prefix,
        rules=tuple(Rule(name, (Piece(name, AS_IT_IS),)) for name in arrays),
        module=ModuleSpec(class_name=class_name, arguments={"shape": shape}),
    )


LAY_OUT = {
    "LayerNormalization": layer_normalization,
    "RMSNormalization": rms_normalization,
    "BatchNormalization": batch_normalization,
    "GroupNormalization": group_normalization,
    "Rescaling": rescaling,
    "Normalization": normalization,
}
BY_INPUT = frozenset(("LayerNormalization", "BatchNormalization", "GroupNormalization", "Normalization"))
