"""A Keras layer in memory, as a PyTorch module: read, planned, proven and loaded without a file."""

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
from .targets import Target

if TYPE_CHECKING:
    import torch
    from torch import nn


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
