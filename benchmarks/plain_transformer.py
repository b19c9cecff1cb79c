"""The benchmark's transformer as it is written by hand: the baseline for the source of a whole model."""

from torch import Tensor, nn

from .plain_attention import PlainAttention


class Block(nn.Module):
    """A pre-norm layer: attention, and a perceptron.

    Args:
        features: width, a multiple of 64, which is the size of a head.
        mlp: width inside the perceptron.
    """

    def __init__(self, features: int, mlp: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = (nn.LayerNorm(features, eps=1e-3) for _ in range(2))
        self.attention = PlainAttention(features, features // 64, 64)
        self.fc_1, self.fc_2 = nn.Linear(features, mlp), nn.Linear(mlp, features)

    def forward(self, x: Tensor) -> Tensor:
        """``(batch, length, features)``."""
        x = x + self.attention(self.norm_1(x))
        output: Tensor = x + self.fc_2(nn.functional.gelu(self.fc_1(self.norm_2(x))))
        return output


def plain_transformer(layers: int, features: int, mlp: int, width: int = 768, classes: int = 1000) -> nn.Sequential:
    """What ``keras_model.build`` builds."""
    blocks = (Block(features, mlp) for _ in range(layers))
    return nn.Sequential(nn.Linear(width, features), *blocks, nn.Linear(features, classes))
