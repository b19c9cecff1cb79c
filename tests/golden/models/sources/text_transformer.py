"""TextTransformer, written by mha-convert from 'text_transformer.keras' (Keras 3.15.1).

Takes tokens (batch, 20), positions (batch, 20); returns (batch, 2).

Load it with:

    from safetensors.torch import load_file

    from model import TextTransformer

    model = TextTransformer()
    model.load_state_dict(load_file("model.safetensors"))
    model.eval()
"""

import torch
from torch import Tensor, nn


class TextTransformer(nn.Module):
    """Keras' Functional model "text_transformer"."""

    def __init__(self) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(50, 16)
        self.position_embedding = nn.Embedding(20, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm_1 = nn.LayerNorm(16, eps=1e-6)
        self.ffn_1 = nn.Linear(16, 32)
        self.ffn_2 = nn.Linear(32, 16)
        self.norm_2 = nn.LayerNorm(16, eps=1e-6)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(16, 20)
        self.classes = nn.Linear(20, 2)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Take tokens (batch, 20), positions (batch, 20); return (batch, 2)."""
        token_embedding = self.token_embedding(tokens)
        x = self.position_embedding(positions)
        embedded = token_embedding + x
        x = self.attention(embedded, embedded, embedded, need_weights=False)[0]
        x = embedded + x
        norm_1 = self.norm_1(x)
        x = torch.relu(self.ffn_1(norm_1))
        x = self.ffn_2(x)
        x = norm_1 + x
        x = self.norm_2(x)
        x = x.mean(1)
        x = self.dropout(x)
        x = torch.relu(self.head(x))
        x = self.classes(x).softmax(-1)
        return x
