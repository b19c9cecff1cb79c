"""Activations of Keras that PyTorch has not: copied into the source of a whole model where it is used."""

import torch
from torch import Tensor
from torch.nn import functional as F


def squareplus(x: Tensor) -> Tensor:
    """A smooth ``relu``: ``(x + sqrt(x² + 4)) / 2`` (Barron, 2021)."""
    return (x + (x.square() + 4.0).sqrt()) / 2.0


def sparse_sigmoid(x: Tensor) -> Tensor:
    """0 up to -1, 1 from 1 on, and a line between them (Blondel, Martins and Niculae, 2019)."""
    return (x + 1.0).clamp(0.0, 2.0) / 2.0


def sparse_plus(x: Tensor) -> Tensor:
    """The integral of ``sparse_sigmoid``: 0 up to -1, ``x`` from 1 on."""
    return (x + 1.0).clamp(0.0, 2.0).square() / 4.0 + F.relu(x - 1.0)


def keras_sparsemax(x: Tensor, dim: int) -> Tensor:
    """What Keras calls ``sparsemax``.

    The threshold of the paper (Martins and Astudillo, 2016) is made of the last sum of its support; Keras, on each of
    its backends, adds up all of them. So the results are no probabilities, and may all be 0.
    """
    scores = x.movedim(dim, -1)
    largest_first = scores.sort(-1, descending=True).values
    sums = largest_first.cumsum(-1)
    counts = torch.arange(1, scores.shape[-1] + 1, dtype=x.dtype, device=x.device)
    support = largest_first - (sums - 1.0) / counts > 0.0
    threshold = ((sums * support).sum(-1, keepdim=True) - 1.0) / support.sum(-1, keepdim=True)
    return F.relu(scores - threshold).movedim(-1, dim)
