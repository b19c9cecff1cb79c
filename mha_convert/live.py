"""A Keras layer in memory, as a PyTorch module: read, planned, proven and loaded without a file."""

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import layouts
from .conversion import convert
from .errors import LayerError
from .layers import survey
from .layers.selection import convertible, refuse_more
from .options import Dtype, Layout
from .records.plan import Plan
from .records.source import KERAS_MODULES
from .targets import Target

if TYPE_CHECKING:
    import torch
    from torch import nn

WORD = "Attention"  # in the name of every attention class of Keras


def from_keras_layer(
    layer: Any,
    *,
    layout: Layout = "mha",
    dtype: "Dtype | torch.dtype | None" = None,
    strict: bool = False,
) -> "nn.Module":
    """A live ``keras.layers.MultiHeadAttention`` as a PyTorch module in evaluation mode, proven by the formula.

    Neither Keras nor TensorFlow is imported here: the layer's own ``weights`` and ``get_config()`` are read. What a
    report would say of the layer (a class that computes more, a subclass under Keras' name) is a ``UserWarning``.

    Args:
        layer: a built layer of Keras 2 or 3, on any backend.
        layout: a word of ``--layout``, see ``docs/layouts.md``.
        dtype: of the module; None keeps the layer's own.
        strict: whether a class that computes more than attention with its projections is an error.

    Returns:
        ``torch.nn.MultiheadAttention`` where it fits alone, else a module of ``mha_convert.modules``; called in the
        same way, batch first.

    Raises:
        LayerError: not an attention layer, or not built.
        LayoutError: the layer does not fit the layout.
        VerificationError: PyTorch does not reproduce the formula.
    """
    from .readers.live_layer import read_layer

    refuse_others(layer, type(layer).__name__)
    checkpoint = read_layer(layer)
    findings = survey(checkpoint)
    if not findings.layers and not any(item.blocking for item in findings.not_converted):
        raise LayerError(
            f"{checkpoint.path}: its class is {type(layer).__name__}, expected attention with weights of "
            "its own. Pass a keras.layers.MultiHeadAttention."
        )
    found = convertible(checkpoint, findings, None)
    if strict:
        refuse_more(found)
    chosen = layouts.plan(found, layout=layout, prefix="", dtype=dtype)
    module = prove_in_memory(chosen)
    for item in found:
        for caution in item.cautions:
            warnings.warn(f"{checkpoint.path}: {caution}", stacklevel=2)
    return module


def prove_in_memory(chosen: Plan) -> "nn.Module":
    """Make the tensors, prove them as if they had been read from a file, and load them."""
    from .targets.loading import build_module
    from .targets.torch_file import as_tensor
    from .verification import verify

    tensors = {tensor.key: as_tensor(tensor.read()) for tensor in convert(chosen)}
    target = Target(
        path=Path("memory"),
        description=None,
        shapes={key: tuple(tensor.shape) for key, tensor in tensors.items()},
        dtypes={key: str(tensor.dtype).removeprefix("torch.") for key, tensor in tensors.items()},
        read=tensors.__getitem__,
    )
    verify(chosen, target)
    return build_module(chosen.layers[0].module, tensors)


def refuse_others(layer: Any, title: str) -> None:
    """Whatever is no single layer of Keras, or has no weights, is named, with the way on."""
    if isinstance(layer, str | os.PathLike):
        raise LayerError(
            f"'{layer}' is a path, expected a layer in memory. Pass it to convert_file, or a layer of "
            "the loaded model here."
        )
    if not is_of_keras(layer):
        raise LayerError(
            f"{title} is not a layer of Keras ({type(layer).__module__}.{title}). "
            "Pass a built keras.layers.MultiHeadAttention."
        )
    if isinstance(layer, type):
        raise LayerError(f"{layer.__name__} is the class, expected a built layer. Pass the layer itself.")
    if hasattr(layer, "layers"):
        raise LayerError(f"{title} is a model, expected one layer. Pass one of its layers, model.get_layer(name).")
    if not hasattr(layer, "weights"):
        raise LayerError(f"{title} is not a layer. Pass a built keras.layers.MultiHeadAttention.")
    if not layer.weights:
        raise LayerError(no_weights(layer, title))


def is_of_keras(layer: Any) -> bool:
    """Whether an object, or a class, comes from Keras, by itself or by a class that it extends."""
    kind = layer if isinstance(layer, type) else type(layer)
    return any(base.__module__.split(".")[0] in KERAS_MODULES for base in kind.__mro__)


def no_weights(layer: Any, title: str) -> str:
    """Why a layer has none, and the next step: only attention that is not built yet is to be called."""
    if not any(WORD in base.__name__ for base in type(layer).__mro__):
        return f"{title} is not an attention layer, and has no weights. Pass a built keras.layers.MultiHeadAttention."
    if getattr(layer, "built", False):
        return (
            f"{title} has no weights of its own, so there is nothing to convert. "
            "Call torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=1.0) instead."
        )
    return (
        f"{title} has no weights, expected a built keras.layers.MultiHeadAttention. "
        "Call the layer once on inputs of the right widths."
    )
