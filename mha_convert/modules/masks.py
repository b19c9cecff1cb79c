"""Masks: those of Keras as PyTorch takes them, and those of PyTorch as one."""

import math

import torch
from torch import Tensor


def to_attn_mask(
    attention_mask: Tensor | None = None,
    query_mask: Tensor | None = None,
    value_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    causal: bool = False,
    *,
    num_heads: int,
    query_length: int | None = None,
    key_length: int | None = None,
    dtype: torch.dtype = torch.float32,
    attended_axes: int = 1,
    other_axes: int = 0,
) -> Tensor | None:
    """Keras' masks as the ``attn_mask`` of ``nn.MultiheadAttention`` and of the modules here.

    In Keras True attends; all masks must agree. The result is added to the scores: 0 where a query may attend, half
    the most negative number of ``dtype`` elsewhere. It is finite, so a row without any key is not NaN but the uniform
    average, as in Keras 2 and on most paths of Keras 3 (from 3.10 on, a layer that returns its scores or has dropout
    gives zeros there instead; in float16 the average is a rough one, in Keras, too). Pass it alone: together with
    ``key_padding_mask`` it would become infinite.

    Args:
        attention_mask: ``(query_length, key_length)``, ``(batch, query_length, key_length)``, or with heads
            ``(batch, num_heads, query_length, key_length)``. With several attended axes ``(batch, *query axes, *key
            axes)``.
        query_mask: ``(batch, query_length)``; padded queries, whose rows Keras masks as a whole.
        value_mask: ``(batch, key_length)``.
        key_mask: ``(batch, key_length)``.
        causal: Keras' ``use_causal_mask``.
        num_heads: of the layer.
        query_length: needed where no mask shows it.
        key_length: needed where no mask shows it.
        dtype: of the layer's computation; must be the inputs' where the weights are not asked for.
        attended_axes: how many ``attention_axes`` the layer has; with more than one pass ``attention_mask`` alone.
        other_axes: how many axes between the batch and the features are not attended over.

    Returns:
        ``(query_length, key_length)`` where no mask has a batch axis, else ``(batch * num_heads, query_length,
        key_length)``; None without any mask. For a layer with other than one time axis ``(batch, 1, …, 1, *query axes,
        *key axes)``, which broadcasts to its scores.

    Raises:
        ValueError: a length is needed and not known.
    """
    if attended_axes > 1 or other_axes:
        return mask_over_axes(
            attention_mask, query_mask, value_mask, key_mask, causal, dtype, attended_axes, other_axes
        )
    # Every mask as ``(batch, heads, queries, keys)`` with axes of size 1, or ``(queries, keys)``; True attends.
    masks = [] if attention_mask is None else [torch.as_tensor(attention_mask).bool()]
    masks = [mask[:, None] if mask.dim() == 3 else mask for mask in masks]
    masks += [] if query_mask is None else [torch.as_tensor(query_mask).bool()[:, None, :, None]]
    masks += [torch.as_tensor(mask).bool()[:, None, None, :] for mask in (value_mask, key_mask) if mask is not None]
    # The lengths, which a causal mask needs and padding masks show one of.
    length = query_length or max((mask.shape[-2] for mask in masks), default=1)
    width = key_length or max((mask.shape[-1] for mask in masks), default=1)
    shows_length = query_length or attention_mask is not None or query_mask is not None
    shows_width = key_length or attention_mask is not None or value_mask is not None or key_mask is not None
    if (causal or masks) and not (shows_length and shows_width):
        raise ValueError(f"to_attn_mask: {'key' if shows_length else 'query'}_length is not shown by a mask; pass it.")
    if causal:
        masks.append(~causal_mask(length, width, masks[0].device if masks else torch.device("cpu")))
    if not masks:
        return None
    # All must agree; a mask with a batch axis is one for each head of each sample.
    attends = masks[0]
    for mask in masks[1:]:
        attends = attends & mask
    if attends.dim() == 4:
        attends = attends.expand(-1, num_heads, length, width).flatten(0, 1)
    else:
        attends = attends.expand(length, width)
    return added_to_scores(attends, dtype)


def mask_over_axes(
    attention_mask: Tensor | None,
    query_mask: Tensor | None,
    value_mask: Tensor | None,
    key_mask: Tensor | None,
    causal: bool,
    dtype: torch.dtype,
    attended_axes: int,
    other_axes: int,
) -> Tensor | None:
    """Keras' masks for a layer with ``attention_axes``: axes of size 1 stand for heads and axes not attended over."""
    queries = [] if query_mask is None else [torch.as_tensor(query_mask).bool()[:, :, None]]
    keys = [torch.as_tensor(mask).bool()[:, None, :] for mask in (value_mask, key_mask) if mask is not None]
    masks = [] if attention_mask is None else [torch.as_tensor(attention_mask).bool()]
    if (queries or keys) and attended_axes > 1:
        raise ValueError("to_attn_mask: padding masks have one axis; pass attention_mask for several attended axes.")
    if causal:
        raise ValueError("to_attn_mask: pass is_causal=True to the module for a causal mask over its time axis.")
    attends = None
    for mask in (*masks, *queries, *keys):
        attends = mask if attends is None else attends & mask
    if attends is None:
        return None
    batch, *places = attends.shape
    return added_to_scores(attends.reshape(batch, *[1] * (other_axes + 1), *places), dtype)


def causal_mask(query_length: int, key_length: int, device: torch.device) -> Tensor:
    """``(query_length, key_length)``, True (blocked) where the key comes after the query, as Keras counts."""
    return torch.ones(query_length, key_length, dtype=torch.bool, device=device).triu(1)


def outside_window(query_length: int, key_length: int, window: int, device: torch.device) -> Tensor:
    """``(query_length, key_length)``, True (blocked) outside a band on the diagonal, as Keras' ``sliding_window``."""
    rows = torch.arange(query_length, device=device)[:, None]
    columns = torch.arange(key_length, device=device)
    return (rows - columns).abs() >= window


def flat_masks(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, others: list[int], axes: int
) -> tuple[Tensor | None, Tensor | None]:
    """Masks for a batch that counts the other axes, too: of four axes, the second for heads, where one has more."""
    if attn_mask is not None and attn_mask.dim() > 3:
        attn_mask = over_batch(joined(attn_mask, axes), others)
    if key_padding_mask is not None:
        padding = key_padding_mask.reshape(others[0], *[1] * (len(others) - 1), -1)
        key_padding_mask = padding.expand(*others, -1).flatten(0, -2)
    return attn_mask, key_padding_mask


def joined(mask: Tensor, axes: int) -> Tensor:
    """A mask ``(…, *query axes, *key axes)`` with one axis for all queries and one for all keys."""
    return mask.flatten(-axes, -1).flatten(-1 - axes, -2)


def over_batch(mask: Tensor, others: list[int]) -> Tensor:
    """A mask ``(*others, heads, queries, keys)`` or what broadcasts to it, its other axes as one; heads may stay 1."""
    sizes = [1] * (3 - mask.dim()) + list(mask.shape[-3:])
    return mask.expand(*others, *sizes).flatten(0, -4)


def merged_mask(
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    is_causal: bool,
    q: Tensor,
    k: Tensor,
    window: int | None = None,
    axes: int = 1,
) -> Tensor | None:
    """PyTorch's masks, and the window, as one that broadcasts to the scores of ``q`` and ``k``.

    True blocks; or a float that is added to the scores, where one of the masks is a float or there is a window.
    """
    masks = []
    if attn_mask is not None and attn_mask.dim() == 3:
        attn_mask = attn_mask.reshape(*q.shape[:-2], *attn_mask.shape[-2:])
    elif attn_mask is not None and attn_mask.dim() > 3:
        attn_mask = joined(attn_mask, axes)
    elif attn_mask is None and is_causal:
        attn_mask = causal_mask(q.shape[-2], k.shape[-2], q.device)
    if attn_mask is not None:
        masks.append(attn_mask)
    if key_padding_mask is not None:
        masks.append(key_padding_mask.reshape(key_padding_mask.shape[0], *[1] * (q.dim() - 2), -1))
    if window is not None:
        return windowed_mask(masks, outside_window(q.shape[-2], k.shape[-2], window, q.device), q)
    if not masks:
        return None
    merged, *others = masks if all(mask.dtype == torch.bool for mask in masks) else [added(mask, q) for mask in masks]
    for mask in others:
        merged = merged | mask if mask.dtype == torch.bool else merged + mask
    return merged


def windowed_mask(masks: list[Tensor], blocked: Tensor, like: Tensor) -> Tensor:
    """A window and masks as one that is added to scores.

    All that block are merged before they become a number, as in Keras: a key that is blocked twice counts like one
    that is blocked once, and a query without any key left gets the average of all. A float is added as it is.
    """
    bias = None
    for mask in masks:
        if mask.dtype == torch.bool:
            blocked = blocked | mask
        else:
            bias = mask if bias is None else bias + mask
    if bias is None:
        return added_to_scores(~blocked, like.dtype)
    lowest = max(torch.finfo(bias.dtype).min, torch.finfo(like.dtype).min) / 2  # what to_attn_mask gave in its dtype
    return torch.where(blocked, bias.clamp(max=lowest), bias).to(like.dtype)


def added(mask: Tensor, like: Tensor) -> Tensor:
    """A mask that is added to scores, in the type of ``like``."""
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)


def added_to_scores(attends: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a query may attend, half the most negative number elsewhere.

    Twice that would be infinite.
    """
    scores = torch.zeros(attends.shape, dtype=dtype, device=attends.device)
    return scores.masked_fill(~attends, torch.finfo(dtype).min / 2)
