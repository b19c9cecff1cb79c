"""The module of layout ``key-value``, which would be a file of the folder ``mha_convert/modules``."""

from typing import Any

from torch import Tensor, nn

from mha_convert.modules import KerasMultiheadAttention


class KeyValueMultiheadAttention(KerasMultiheadAttention):
    """Key and value in one ``kv_proj``, the rest as in layout ``linear``."""

    def __init__(self, num_heads: int, key_dim: int, value_dim: int, *, key_features: int, **sizes: Any) -> None:
        super().__init__(num_heads, key_dim, value_dim, key_features=key_features, value_features=key_features, **sizes)
        self.sizes = [num_heads * key_dim, num_heads * value_dim]
        self.kv_proj = nn.Linear(key_features, sum(self.sizes), bias=sizes["bias"])
        del self.k_proj, self.v_proj

    def projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values ``(batch, heads, positions, head_dim)``."""
        k, _ = self.kv_proj(key).split(self.sizes, -1)
        _, v = self.kv_proj(value).split(self.sizes, -1)
        q, k, v = (self.to_heads(part, self.num_heads) for part in (self.q_proj(query), k, v))
        return q, k, v
