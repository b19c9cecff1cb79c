"""From queries, keys and values in heads to each head's result: with the weights, or by PyTorch's fused kernels."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from .masks import over_batch


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """``(…, heads, queries, keys)``; a key head serves as many query heads as there are for each."""
    groups = q.shape[-3] // k.shape[-3]
    grouped = (q * scale).unflatten(-3, (-1, groups)).flatten(-3, -2)
    scores = (grouped @ k.transpose(-2, -1)).unflatten(-2, (groups, -1)).flatten(-4, -3)
    if mask is not None:
        scores = scores.masked_fill(mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1)


def weighted(weights: Tensor, v: Tensor) -> Tensor:
    """``(…, heads, queries, head_dim)``: the sum of values under weights ``(…, heads, queries, keys)``."""
    groups = weights.shape[-3] // v.shape[-3]
    grouped = weights.unflatten(-3, (-1, groups)).flatten(-3, -2)
    return (grouped @ v).unflatten(-2, (groups, -1)).flatten(-4, -3)


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """``(…, heads, queries, head_dim)`` by PyTorch's fused kernels, which keep no scores.

    They take four axes, heads of one size and masks in which True attends; the zeros that widen a head change nothing.

    Args:
        q: ``(batch, *other axes, heads, queries, head_dim)``.
        k: the same with keys; it may have fewer heads.
        v: the same; its heads may have another size.
        mask: of ``merged_mask``, or None.
        is_causal: whether each query sees the keys up to its own position only; without a mask.
        dropout: probability to drop an attention weight.
        scale: factor of the scores, one over the root of ``head_dim`` for None.
    """
    others, key_dim, value_dim = q.shape[:-3], q.shape[-1], v.shape[-1]
    scale = key_dim**-0.5 if scale is None else scale
    if len(others) > 1:
        mask = over_batch(mask, list(others)) if mask is not None and mask.dim() > 2 else mask
        q, k, v = q.flatten(0, -4), k.flatten(0, -4), v.flatten(0, -4)
    if mask is not None and mask.dtype == torch.bool:
        mask = ~mask
    if key_dim < value_dim:
        q, k = F.pad(q, (0, value_dim - key_dim)), F.pad(k, (0, value_dim - key_dim))
    if value_dim < key_dim:
        v = F.pad(v, (0, key_dim - value_dim))
    grouped = q.shape[-3] != k.shape[-3]
    context = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, scale=scale, enable_gqa=grouped)
    context = context if value_dim >= key_dim else context[..., :value_dim]
    return context if len(others) == 1 else context.unflatten(0, others)
