"""Merging of masked sequences, as Keras does it from 3.4 on: copied into the source of a whole model where used."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def product_of_kept(tensors: Sequence[Tensor], masks: Sequence[Tensor | None]) -> Tensor:
    """What Keras multiplies: 1 in the place of what is masked, and 0 where no tensor is kept.

    Tensors ``(batch, length, features)``, masks ``(batch, length)``, True where a step is kept.
    """
    product, *factors = (
        x if keep is None else x.masked_fill(~keep[..., None], 1) for x, keep in zip(tensors, masks, strict=True)
    )
    for factor in factors:
        product = product * factor
    kept = [keep for keep in masks if keep is not None]
    return product if len(kept) < len(masks) else product.masked_fill(~torch.stack(kept).any(0)[..., None], 0)


def extreme_of_kept(
    function: Callable[[Tensor, Tensor], Tensor], tensors: Sequence[Tensor], masks: Sequence[Tensor | None]
) -> Tensor:
    """``torch.maximum`` or ``torch.minimum`` of what is kept; a step that is masked has the other tensor's numbers.

    Tensors ``(batch, length, features)``, masks ``(batch, length)``, True where a step is kept.
    """
    result, kept = tensors[0], masks[0]
    for x, keep in zip(tensors[1:], masks[1:], strict=True):
        other = x if keep is None else torch.where(keep[..., None], x, result)
        result = function(result if kept is None else torch.where(kept[..., None], result, other), other)
        kept = None if kept is None or keep is None else kept | keep
    return result
