"""Attention whose inputs are not projected; every class is called as ``torch.nn.MultiheadAttention`` is."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .masks import causal_mask


class AttentionWithoutProjections(nn.Module):
    """What Keras' ``Attention`` and ``AdditiveAttention`` share: one head, and inputs that are not projected."""

    dropout: float

    def raw_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """``(..., query_length, key_length)``, before masks."""
        raise NotImplementedError

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """``nn.MultiheadAttention.forward``, batch first; ``is_causal`` needs no ``attn_mask`` here.

        Args:
            query: ``(batch, query_length, features)``, or without batch.
            key: ``(batch, key_length, features)``.
            value: ``(batch, key_length, value_features)``.
            key_padding_mask: ``(batch, key_length)``, True where a key is blocked.
            need_weights: whether to return the attention weights.
            attn_mask: ``(query_length, key_length)`` or ``(batch, query_length, key_length)``. True blocks, a float is
                added to the scores.
            average_attn_weights: makes no difference: there is one head.
            is_causal: whether each query sees the keys up to its own position only.

        Returns:
            output ``(batch, query_length, value_features)``, and the weights ``(batch, query_length, key_length)`` or
            None.
        """
        if is_causal and attn_mask is None:
            attn_mask = causal_mask(query.shape[-2], key.shape[-2], query.device)
        padding = None if key_padding_mask is None else key_padding_mask.unsqueeze(-2)
        if not need_weights:
            return self.context(query, key, value, attn_mask, padding), None
        weights = self.weights(query, key, attn_mask, padding)
        return weights @ value, weights

    def weights(self, query: Tensor, key: Tensor, *masks: Tensor | None) -> Tensor:
        """Scores under the masks, turned into weights."""
        scores = self.raw_scores(query, key)
        for mask in masks:
            if mask is not None:
                scores = scores.masked_fill(mask, -math.inf) if mask.dtype == torch.bool else scores + mask
        return F.dropout(scores.softmax(-1), self.dropout, self.training)

    def context(self, query: Tensor, key: Tensor, value: Tensor, *masks: Tensor | None) -> Tensor:
        """The output, where nobody asks for the weights."""
        return self.weights(query, key, *masks) @ value


class DotProductAttention(AttentionWithoutProjections):
    """Keras' ``Attention``: a query and a key are scored by their dot product, which is not divided by anything.

    Args:
        use_scale: whether scores are multiplied by a learned number, ``scale``.
        score_mode: ``"dot"``, or ``"concat"``: ``concat_score_weight * sum(tanh(scale * (query + key)))``.
        dropout: probability to drop an attention weight while training.
    """

    def __init__(self, use_scale: bool = False, score_mode: str = "dot", dropout: float = 0.0) -> None:
        super().__init__()
        if score_mode not in ("dot", "concat"):
            raise ValueError(f"DotProductAttention: score_mode is {score_mode!r}, expected 'dot' or 'concat'.")
        self.dropout = dropout
        self.scale = nn.Parameter(torch.ones(())) if use_scale else None
        self.concat_score_weight = nn.Parameter(torch.ones(())) if score_mode == "concat" else None

    def raw_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """``(..., query_length, key_length)``; "concat" makes ``(..., query_length, key_length, features)`` first."""
        if self.concat_score_weight is None:
            return self.scaled(query) @ key.transpose(-2, -1)
        pairs = self.scaled(query.unsqueeze(-2) + key.unsqueeze(-3))
        return self.concat_score_weight * pairs.tanh().sum(-1)

    def scaled(self, x: Tensor) -> Tensor:
        """Multiplied by ``scale``, if there is one."""
        return x if self.scale is None else x * self.scale

    def context(self, query: Tensor, key: Tensor, value: Tensor, *masks: Tensor | None) -> Tensor:
        """For dot products by PyTorch's fused kernels."""
        if self.concat_score_weight is not None:
            return super().context(query, key, value, *masks)
        added = [
            torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask, -math.inf)
            if mask.dtype == torch.bool
            else mask.to(query.dtype)
            for mask in masks
            if mask is not None
        ]
        mask = sum(added[1:], added[0]) if added else None
        dropout = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(self.scaled(query), key, value, mask, dropout, scale=1.0)


class AdditiveAttention(AttentionWithoutProjections):
    """Keras' ``AdditiveAttention``: a query and a key are scored by ``sum(scale * tanh(query + key))``.

    Args:
        features: width of query and key, which is the length of ``scale``; None without ``scale``.
        dropout: probability to drop an attention weight while training.
    """

    def __init__(self, features: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.scale = None if features is None else nn.Parameter(torch.empty(features).uniform_(-1, 1) / features**0.5)

    def raw_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """``(..., query_length, key_length)``; makes ``(..., query_length, key_length, features)`` first."""
        pairs = (query.unsqueeze(-2) + key.unsqueeze(-3)).tanh()
        return pairs.sum(-1) if self.scale is None else pairs @ self.scale
