"""Self-attention as it is written by hand around PyTorch's fused kernel: the baseline for the modules."""

from torch import Tensor, nn


class PlainAttention(nn.Module):
    """Four linear layers and one kernel.

    Args:
        features: width of the inputs and of the output.
        num_heads: number of heads.
        key_dim: size of one head.
    """

    def __init__(self, features: int, num_heads: int, key_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v = (nn.Linear(features, num_heads * key_dim) for _ in range(3))
        self.out = nn.Linear(num_heads * key_dim, features)

    def forward(self, x: Tensor, mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """``(batch, length, features)``; ``mask`` broadcasts to the scores and is True where a query attends."""
        q, k, v = (linear(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for linear in (self.q, self.k, self.v))
        context = nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal)
        output: Tensor = self.out(context.transpose(1, 2).flatten(2))
        return output


class PlainFusedAttention(nn.Module):
    """Plain attention with one linear layer for query, key and value, as in timm."""

    def __init__(self, features: int, num_heads: int, key_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(features, 3 * num_heads * key_dim)
        self.out = nn.Linear(num_heads * key_dim, features)

    def forward(self, x: Tensor, mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """``(batch, length, features)``; ``mask`` broadcasts to the scores and is True where a query attends."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        context = nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal)
        output: Tensor = self.out(context.transpose(1, 2).flatten(2))
        return output
