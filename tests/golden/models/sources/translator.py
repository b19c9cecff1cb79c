"""Translator, written by mha-convert from 'translator.keras' (Keras 3.15.1).

Takes source (batch, length), target (batch, length); returns (batch, length, 40).

Load it with:

    from safetensors.torch import load_file

    from model import Translator

    model = Translator()
    model.load_state_dict(load_file("model.safetensors"))
    model.eval()
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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


def added_to_scores(attends: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a query may attend, half the most negative number elsewhere.

    Twice that would be infinite.
    """
    scores = torch.zeros(attends.shape, dtype=dtype, device=attends.device)
    return scores.masked_fill(~attends, torch.finfo(dtype).min / 2)


def causal(query: Tensor, key: Tensor) -> Tensor:
    """``(1, query length, key length)``, True where the key does not come after the query."""
    shape = (1, query.shape[1], key.shape[1])
    return torch.ones(shape, dtype=torch.bool, device=query.device).tril()


class Translator(nn.Module):
    """Keras' Functional model "translator"."""

    def __init__(self) -> None:
        super().__init__()
        self.target_embedding = nn.Embedding(40, 16)
        self.decoder_attention = MaskedMultiHeadAttention(16, num_heads=4, key_dim=4)
        self.decoder_norm_1 = nn.LayerNorm(16, eps=0.001)
        self.source_embedding = nn.Embedding(30, 16)
        self.encoder_attention = MaskedMultiHeadAttention(16, num_heads=4, key_dim=4)
        self.encoder_norm = nn.LayerNorm(16, eps=0.001)
        self.cross_attention = MaskedMultiHeadAttention(16, num_heads=4, key_dim=4)
        self.decoder_norm_2 = nn.LayerNorm(16, eps=0.001)
        self.next_token = nn.Linear(16, 40)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Take source (batch, length), target (batch, length); return (batch, length, 40)."""
        target_embedding = self.target_embedding(target)
        keep = target != 0
        mask = keep[:, :, None] & keep[:, None]
        x = self.decoder_attention(
            target_embedding,
            target_embedding,
            target_embedding,
            mask=mask & causal(target_embedding, target_embedding),
        )
        x = x + target_embedding
        decoder_norm_1 = self.decoder_norm_1(x)
        source_embedding = self.source_embedding(source)
        keep_2 = source != 0
        mask_2 = keep_2[:, :, None] & keep_2[:, None]
        x = self.encoder_attention(
            source_embedding, source_embedding, source_embedding, mask=mask_2
        )
        encoder_norm = self.encoder_norm(x)
        mask_3 = keep_2[:, None]
        x = self.cross_attention(decoder_norm_1, encoder_norm, encoder_norm, mask=mask_3)
        x = x + decoder_norm_1
        x = self.decoder_norm_2(x)
        x = self.next_token(x).softmax(-1)
        return x
