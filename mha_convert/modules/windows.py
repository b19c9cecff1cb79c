"""Windows along an axis as Keras lays them, where PyTorch has no option for it."""

import torch
from torch import Tensor
from torch.nn import functional as F


def same_padding(length: int, width: int, stride: int) -> tuple[int, int]:
    """How much ``padding="same"`` of Keras adds in front and behind, for windows of a width.

    There are ``ceil(length / stride)`` windows; of an odd number, the larger half is behind.
    """
    total = max((-(-length // stride) - 1) * stride + width - length, 0)
    return total // 2, total - total // 2


def average_of_kept(x: Tensor, width: int, stride: int) -> Tensor:
    """``F.avg_pool1d`` with ``padding="same"`` of Keras: averages leave out what was added.

    Takes ``(batch, channels, length)`` and returns ``(batch, channels, ceil(length / stride))``.
    """
    padding = same_padding(x.shape[2], width, stride)
    sums = F.avg_pool1d(F.pad(x, padding), width, stride)
    return sums / F.avg_pool1d(F.pad(torch.ones_like(x), padding), width, stride)
