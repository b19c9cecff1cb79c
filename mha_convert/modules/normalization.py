"""Normalizations that PyTorch has not: copied into the source of a whole model where it is used."""

import torch
from torch import Tensor, nn


class DeviationNorm(nn.Module):
    """Divides by the standard deviation over the last axes, and does not subtract the mean."""

    def __init__(self, normalized_shape: tuple[int, ...], eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(normalized_shape))

    def forward(self, x: Tensor) -> Tensor:
        """Keras' ``LayerNormalization(rms_scaling=True)``."""
        axes = tuple(range(-self.weight.dim(), 0))
        variance = x.var(axes, correction=0, keepdim=True)
        return x * (variance + self.eps).rsqrt() * self.weight


class Normalization(nn.Module):
    """Subtracts a mean and divides by a standard deviation, both of data seen before."""

    mean: Tensor
    variance: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("variance", torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` of any shape that ends like the mean's."""
        return (x - self.mean) / self.variance.sqrt().clamp_min(1e-7)


class Denormalization(Normalization):
    """Multiplies by a standard deviation and adds a mean, both of data seen before."""

    def forward(self, x: Tensor) -> Tensor:
        """``x`` of any shape that ends like the mean's."""
        return x * self.variance.sqrt().clamp_min(1e-7) + self.mean


class Rescaling(nn.Module):
    """``x * scale + offset`` with constant numbers for each channel."""

    scale: Tensor
    offset: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(shape))
        self.register_buffer("offset", torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` of any shape that ends like the scale's."""
        return x * self.scale + self.offset
