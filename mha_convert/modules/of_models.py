"""What PyTorch has no module for, as small as it can be: copied into a model's source where used."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .masks import added_to_scores


class Projections(nn.Module):
    """The projections of attention with heads of any size.

    All widths are ``features`` but those that are given.
    """

    def __init__(
        self,
        features: int,
        num_heads: int,
        key_dim: int,
        *,
        value_dim: int | None = None,
        key_features: int | None = None,
        value_features: int | None = None,
        output_features: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        value_dim = value_dim or key_dim
        self.q_proj = nn.Linear(features, num_heads * key_dim, bias)
        self.k_proj = nn.Linear(key_features or features, num_heads * key_dim, bias)
        self.v_proj = nn.Linear(value_features or features, num_heads * value_dim, bias)
        self.out_proj = nn.Linear(num_heads * value_dim, output_features or features, bias)

    def heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values ``(batch, heads, length, size)``."""
        q = self.q_proj(query).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        k = self.k_proj(key).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        v = self.v_proj(value).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        return q, k, v


class MultiHeadAttention(Projections):
    """Attention without masks, as Keras computes it."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Inputs ``(batch, length, features)``."""
        q, k, v = self.heads(query, key, value)
        dropout = self.dropout if self.training else 0.0
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        return self.out_proj(x.transpose(1, 2).flatten(2))


class CausalMultiHeadAttention(Projections):
    """Attention of each query to the keys that do not come after it, as Keras computes it."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Inputs ``(batch, length, features)``."""
        q, k, v = self.heads(query, key, value)
        dropout = self.dropout if self.training else 0.0
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.out_proj(x.transpose(1, 2).flatten(2))


class MaskedMultiHeadAttention(Projections):
    """Attention as Keras computes it: ``mask`` is True where a query may attend to a key.

    A query that may attend to no key gets the average of all.
    """

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Inputs ``(batch, length, features)``, mask ``(batch, query length, key length)``."""
        q, k, v = self.heads(query, key, value)
        dropout = self.dropout if self.training else 0.0
        scores = added_to_scores(mask, q.dtype).unsqueeze(1)
        x = F.scaled_dot_product_attention(q, k, v, scores, dropout)
        return self.out_proj(x.transpose(1, 2).flatten(2))


class MultiHeadAttentionWithScores(Projections):
    """Attention as Keras computes it: ``mask`` is True where a query may attend to a key.

    A query that may attend to no key gets the average of all. The scores are returned, too.
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Inputs ``(batch, length, features)``, mask ``(batch, query length, key length)``."""
        q, k, v = self.heads(query, key, value)
        scores = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores + added_to_scores(mask, q.dtype).unsqueeze(1)
        scores = scores.softmax(-1)
        x = F.dropout(scores, self.dropout, self.training) @ v
        return self.out_proj(x.transpose(1, 2).flatten(2)), scores


class MultiHeadAttentionOrZeros(Projections):
    """Attention as Keras computes it: ``mask`` is True where a query may attend to a key.

    A query that may attend to no key gets zeros, as from Keras 3.10 on in layers with dropout. The
    scores are returned, too.
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Inputs ``(batch, length, features)``, mask ``(batch, query length, key length)``."""
        q, k, v = self.heads(query, key, value)
        scores = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
        if mask is None:
            scores = scores.softmax(-1)
        else:
            mask = mask.unsqueeze(1)
            scores = (scores + added_to_scores(mask, q.dtype)).softmax(-1)
            scores = scores * mask.any(-1, keepdim=True)
        x = F.dropout(scores, self.dropout, self.training) @ v
        return self.out_proj(x.transpose(1, 2).flatten(2)), scores


class GroupedAttention(nn.Module):
    """Attention of several query heads to each key head, with a gate or without, as in Keras.

    Args:
        num_key_value_heads: each serves ``num_heads / num_key_value_heads`` query heads.
        gate: whether each head's result is multiplied by a sigmoid of the query's own projection.
        zeros: whether a query that may attend to no key gets zeros, and not the average of all.
    """

    def __init__(
        self,
        features: int,
        num_heads: int,
        key_dim: int,
        *,
        num_key_value_heads: int,
        value_dim: int | None = None,
        key_features: int | None = None,
        value_features: int | None = None,
        output_features: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        gate: bool = False,
        zeros: bool = False,
    ) -> None:
        super().__init__()
        self.num_heads, self.num_key_value_heads = num_heads, num_key_value_heads
        self.dropout, self.zeros = dropout, zeros
        value_dim = value_dim or key_dim
        self.q_proj = nn.Linear(features, num_heads * key_dim, bias)
        self.k_proj = nn.Linear(key_features or features, num_key_value_heads * key_dim, bias)
        self.v_proj = nn.Linear(value_features or features, num_key_value_heads * value_dim, bias)
        self.gate_proj = nn.Linear(features, num_heads * value_dim, bias) if gate else None
        self.out_proj = nn.Linear(num_heads * value_dim, output_features or features, bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Inputs ``(batch, length, features)``, mask ``(batch, query length, key length)``."""
        groups = self.num_heads // self.num_key_value_heads
        q = self.q_proj(query).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        k = self.k_proj(key).unflatten(-1, (self.num_key_value_heads, -1)).transpose(1, 2)
        v = self.v_proj(value).unflatten(-1, (self.num_key_value_heads, -1)).transpose(1, 2)
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores + added_to_scores(mask, q.dtype).unsqueeze(1)
        scores = scores.softmax(-1)
        if mask is not None and self.zeros:
            scores = scores * mask.any(-1, keepdim=True).unsqueeze(1)
        x = F.dropout(scores, self.dropout, self.training) @ v
        x = x.transpose(1, 2).flatten(2)
        x = x if self.gate_proj is None else x * self.gate_proj(query).sigmoid()
        return self.out_proj(x), scores


def causal(query: Tensor, key: Tensor) -> Tensor:
    """``(1, query length, key length)``, True where the key does not come after the query."""
    shape = (1, query.shape[1], key.shape[1])
    return torch.ones(shape, dtype=torch.bool, device=query.device).tril()


def within(window: int, query: Tensor, key: Tensor) -> Tensor:
    """``(1, query length, key length)``, True where the key is less than so many positions away."""
    rows = torch.arange(query.shape[1], device=query.device)[:, None]
    columns = torch.arange(key.shape[1], device=query.device)
    return ((rows - columns).abs() < window)[None]


class EinsumDense(nn.Module):
    """``torch.einsum`` with a kernel, and perhaps a bias, in Keras' axes."""

    def __init__(
        self,
        equation: str,
        kernel_shape: tuple[int, ...],
        bias_shape: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.equation = equation
        self.kernel = nn.Parameter(nn.init.xavier_uniform_(torch.empty(kernel_shape)))
        self.bias = None if bias_shape is None else nn.Parameter(torch.zeros(bias_shape))

    def forward(self, inputs: Tensor) -> Tensor:
        """As the equation says."""
        result = torch.einsum(self.equation, inputs, self.kernel)
        return result if self.bias is None else result + self.bias
