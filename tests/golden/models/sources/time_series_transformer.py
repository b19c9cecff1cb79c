"""TimeSeriesTransformer, written by mha-convert.

From 'time_series_transformer.keras' (Keras 3.15.1).

Takes series (batch, 48, 1); returns (batch, 2).

Load it with:

    from safetensors.torch import load_file

    from model import TimeSeriesTransformer

    model = TimeSeriesTransformer()
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


class MultiHeadAttention(Projections):
    """Attention without masks, as Keras computes it."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Inputs ``(batch, length, features)``."""
        q, k, v = self.heads(query, key, value)
        dropout = self.dropout if self.training else 0.0
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        return self.out_proj(x.transpose(1, 2).flatten(2))


class TimeSeriesTransformer(nn.Module):
    """Keras' Functional model "time_series_transformer"."""

    def __init__(self) -> None:
        super().__init__()
        self.multi_head_attention = MultiHeadAttention(1, num_heads=2, key_dim=8, dropout=0.25)
        self.dropout_1 = nn.Dropout(0.25)
        self.layer_normalization = nn.LayerNorm(1, eps=1e-6)
        self.conv1d = nn.Conv1d(1, 4, 1)
        self.dropout_2 = nn.Dropout(0.25)
        self.conv1d_1 = nn.Conv1d(4, 1, 1)
        self.layer_normalization_1 = nn.LayerNorm(1, eps=1e-6)
        self.multi_head_attention_1 = MultiHeadAttention(1, num_heads=2, key_dim=8, dropout=0.25)
        self.dropout_4 = nn.Dropout(0.25)
        self.layer_normalization_2 = nn.LayerNorm(1, eps=1e-6)
        self.conv1d_2 = nn.Conv1d(1, 4, 1)
        self.dropout_5 = nn.Dropout(0.25)
        self.conv1d_3 = nn.Conv1d(4, 1, 1)
        self.layer_normalization_3 = nn.LayerNorm(1, eps=1e-6)
        self.dense = nn.Linear(1, 16)
        self.dropout_6 = nn.Dropout(0.4)
        self.dense_1 = nn.Linear(16, 2)

    def forward(self, series: Tensor) -> Tensor:
        """Take series (batch, 48, 1); return (batch, 2)."""
        x = self.multi_head_attention(series, series, series)
        x = self.dropout_1(x)
        x = self.layer_normalization(x)
        add = x + series
        x = torch.relu(self.conv1d(add.transpose(1, 2)))
        x = self.dropout_2(x)
        x = self.conv1d_1(x)
        x = self.layer_normalization_1(x.transpose(1, 2))
        add_1 = x + add
        x = self.multi_head_attention_1(add_1, add_1, add_1)
        x = self.dropout_4(x)
        x = self.layer_normalization_2(x)
        add_2 = x + add_1
        x = torch.relu(self.conv1d_2(add_2.transpose(1, 2)))
        x = self.dropout_5(x)
        x = self.conv1d_3(x)
        x = self.layer_normalization_3(x.transpose(1, 2))
        x = x + add_2
        x = x.mean(1)
        x = torch.relu(self.dense(x))
        x = self.dropout_6(x)
        x = self.dense_1(x).softmax(-1)
        return x
