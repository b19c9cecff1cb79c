"""Mlp, written by mha-convert from 'mlp.keras' (Keras 3.15.1).

Takes features (batch, 8); returns (batch, 3).

Load it with:

    from safetensors.torch import load_file

    from model import Mlp

    model = Mlp()
    model.load_state_dict(load_file("model.safetensors"))
    model.eval()
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Mlp(nn.Module):
    """Keras' Sequential model "mlp"."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(8, 16)
        self.dropout = nn.Dropout(0.5)
        self.bottleneck = nn.Linear(16, 8)
        self.classes = nn.Linear(8, 3)

    def forward(self, features: Tensor) -> Tensor:
        """Take features (batch, 8); return (batch, 3)."""
        x = torch.relu(self.hidden(features))
        x = self.dropout(x)
        x = F.gelu(self.bottleneck(x))
        x = self.classes(x).softmax(-1)
        return x
