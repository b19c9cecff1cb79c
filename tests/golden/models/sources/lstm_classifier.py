"""LstmClassifier, written by mha-convert from 'lstm_classifier.keras' (Keras 3.15.1).

Takes steps (batch, 12, 6); returns (batch, 1).

Load it with:

    from safetensors.torch import load_file

    from model import LstmClassifier

    model = LstmClassifier()
    model.load_state_dict(load_file("model.safetensors"))
    model.eval()
"""

import torch
from torch import Tensor, nn


class LstmClassifier(nn.Module):
    """Keras' Sequential model "lstm_classifier"."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm_1 = nn.LSTM(6, 10, batch_first=True)
        self.norm = nn.BatchNorm1d(10, eps=0.001, momentum=0.01)
        self.lstm_2 = nn.LSTM(10, 5, batch_first=True, bidirectional=True)
        self.probability = nn.Linear(10, 1)

    def forward(self, steps: Tensor) -> Tensor:
        """Take steps (batch, 12, 6); return (batch, 1)."""
        x = self.lstm_1(steps)[0]
        x = self.norm(x.transpose(1, 2))
        forward, backward = self.lstm_2(x.transpose(1, 2))[0].chunk(2, -1)
        x = torch.cat([forward[:, -1], backward[:, 0]], -1)
        x = torch.sigmoid(self.probability(x))
        return x
