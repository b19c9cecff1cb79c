"""Scores of a query and a key that are not projected: copied into the source of a whole model where it is used."""

import torch
from torch import Tensor, nn


class Scores(nn.Module):
    """What all have: the dropout of the weights that are made of the scores."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)


class ScaledScores(Scores):
    """The dot product of a query and a key, times a learned number."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__(dropout)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """``(..., query length, key length)``."""
        return self.scale * query @ key.transpose(-2, -1)


class ConcatenatedScores(Scores):
    """The sum of ``tanh(scale * (query + key))``, times a learned number.

    The scale is learned, too, or 1.
    """

    def __init__(self, use_scale: bool = False, dropout: float = 0.0) -> None:
        super().__init__(dropout)
        self.scale = nn.Parameter(torch.ones(())) if use_scale else None
        self.concat_score_weight = nn.Parameter(torch.ones(()))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """``(..., query length, key length)``."""
        pairs = query.unsqueeze(-2) + key.unsqueeze(-3)
        pairs = pairs if self.scale is None else self.scale * pairs
        return self.concat_score_weight * pairs.tanh().sum(-1)


class AdditiveScores(Scores):
    """The sum of ``scale * tanh(query + key)``, with a learned scale for each feature, or none."""

    def __init__(self, features: int | None = None, dropout: float = 0.0) -> None:
        super().__init__(dropout)
        self.scale = None if features is None else nn.Parameter(torch.ones(features))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """``(..., query length, key length)``."""
        pairs = (query.unsqueeze(-2) + key.unsqueeze(-3)).tanh()
        return pairs.sum(-1) if self.scale is None else pairs @ self.scale
