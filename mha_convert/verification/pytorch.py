"""Runs a real module on a case, in float64."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from ..records.plan import ModuleSpec
from ..records.source import Array
from ..targets.loading import build_module
from .cases import Case
from .formulas.multi_head_attention import Result

if TYPE_CHECKING:
    import torch
    from torch import nn


def module_in_float64(spec: ModuleSpec, tensors: "Mapping[str, torch.Tensor]") -> "nn.Module":
    """The module with exactly these numbers."""
    return build_module(spec, {key: tensor.double() for key, tensor in tensors.items()})


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch's matrices are small here, and its threads and NumPy's would wait for each other, spinning."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def run(module: "nn.Module", case: Case, num_heads: int) -> tuple[Result, Array]:
    """Output and per-head weights, and the output of the path without weights (PyTorch's fused kernels)."""
    import torch

    query, key, value = (torch.from_numpy(a) for a in (case.call.query, case.call.key, case.call.value))
    masks = masks_for(case, num_heads)
    with torch.no_grad():
        output, weights = module(query, key, value, need_weights=True, average_attn_weights=False, **masks)
        fused, _ = module(query, key, value, need_weights=False, **masks)
    return Result(output=output.numpy(), scores=weights.numpy()), fused.numpy()


def masks_for(case: Case, num_heads: int) -> "dict[str, torch.Tensor]":
    """The mask in the form that a user would give it in; in PyTorch True blocks."""
    import torch

    from ..modules import to_attn_mask

    attends = case.call.attends
    if attends is None:
        return {}
    if case.mask == "padding mask":
        return {"key_padding_mask": torch.from_numpy(~attends[:, 0])}
    if case.mask == "causal mask":
        return {"attn_mask": torch.from_numpy(~attends[0])}
    mask = to_attn_mask(
        torch.from_numpy(np.array(attends)),
        num_heads=num_heads,
        dtype=torch.float64,
        attended_axes=len(case.axes),
        other_axes=case.call.query.ndim - 2 - len(case.axes),
    )
    return {} if mask is None else {"attn_mask": mask}
