"""The ``nn.Module``s that converted layers load into.

This file needs torch alone and nothing of this package: ``mha-convert convert --module FILE.py`` copies classes out of
it. All are called as ``torch.nn.MultiheadAttention(..., batch_first=True)`` is, and return what it returns.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ProjectedMultiheadAttention(nn.Module):
    """A stock ``nn.MultiheadAttention`` between linear layers, for any Keras ``heads * key_dim``.

    ``query_projection`` is there where ``query_features != embed_dim``; the query weight of ``attention`` is then an
    identity. ``output_projection`` is there where ``output_shape != [embed_dim]``; ``out_proj`` is then an identity.

    Without weights, the parameters of ``attention`` go to PyTorch's fused kernels directly: its own forward moves the
    batch axis behind the length and copies masks for every head.

    Args:
        embed_dim: heads times the size of one head.
        num_heads: number of heads.
        query_features: width of the query input.
        output_shape: shape of one output position.
        kdim: width of the key input, ``embed_dim`` for None.
        vdim: width of the value input, ``embed_dim`` for None.
        dropout: probability to drop an attention weight while training.
        bias: whether the projections have biases.
        attention_axes: axes of the inputs that are attended over, Keras' ``attention_axes``; ``[1]`` for None. The
            other axes but the last are treated like the batch.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        query_features: int,
        output_shape: list[int],
        kdim: int | None = None,
        vdim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        attention_axes: list[int] | None = None,
    ) -> None:
        super().__init__()
        self.output_shape, self.attention_axes = list(output_shape), attention_axes
        needs_query, needs_output = query_features != embed_dim, self.output_shape != [embed_dim]
        self.query_projection = nn.Linear(query_features, embed_dim, bias=bias) if needs_query else nn.Identity()
        self.attention = nn.MultiheadAttention(
            embed_dim, num_heads, dropout=dropout, bias=bias, kdim=kdim, vdim=vdim, batch_first=True
        )
        output_features = math.prod(self.output_shape)
        self.output_projection = nn.Linear(embed_dim, output_features, bias=bias) if needs_output else nn.Identity()

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

        With ``attention_axes``, a position is one place on the attended axes, counted row by row.

        Args:
            query: ``(batch, query_length, query_features)``, or without batch; ``(batch, *axes, query_features)``
                with ``attention_axes``.
            key: ``(batch, key_length, kdim)``, or with axes.
            value: ``(batch, key_length, vdim)``, or with axes.
            key_padding_mask: ``(batch, key_length)``, True where a key is blocked.
            need_weights: whether to return the attention weights; without, PyTorch's fused kernels are used.
            attn_mask: ``(query_length, key_length)`` or ``(batch * num_heads, query_length, key_length)``; or, with
                ``attention_axes``, anything of four axes or more that broadcasts to the weights before they are
                averaged. True blocks, a float is added to the scores.
            average_attn_weights: whether the weights are averaged over heads.
            is_causal: whether each query sees the keys up to its own position only.

        Returns:
            output ``(batch, query_length, *output_shape)``, and the weights ``(batch, query_length, key_length)``,
            with ``num_heads`` as second axis if not averaged, or None. With axes the weights are
            ``(batch, *other axes, num_heads, *query axes, *key axes)``.
        """
        if self.attention_axes is not None:
            axes = self.attention_axes
            others, queries, keys = shapes_of(query, key, axes)
            attn_mask, key_padding_mask = flat_masks(attn_mask, key_padding_mask, others, len(axes))
            query, key, value = flat(query, axes), flat(key, axes), flat(value, axes)
        query = self.query_projection(query)
        if need_weights:
            output, weights = self.with_weights(
                query, key, value, key_padding_mask, attn_mask, average_attn_weights, is_causal
            )
        else:
            output, weights = self.without_weights(query, key, value, key_padding_mask, attn_mask, is_causal), None
        output = self.output_projection(output)
        if self.attention_axes is not None:
            output = unflat(output, others, queries, self.attention_axes)
            if weights is not None:
                weights = weights.reshape(*others, *weights.shape[1:-2], *queries, *keys)
        return output if len(self.output_shape) == 1 else output.unflatten(-1, self.output_shape), weights

    def with_weights(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        average_attn_weights: bool,
        is_causal: bool,
    ) -> tuple[Tensor, Tensor]:
        """``attention`` as it is; it takes a mask for all heads or one for each."""
        if is_causal and attn_mask is None:
            attn_mask = causal_mask(query.shape[-2], key.shape[-2], query.device)
        if attn_mask is not None and attn_mask.dim() == 4:
            attn_mask = attn_mask.expand(query.shape[0], self.attention.num_heads, -1, -1).flatten(0, 1)
        output, weights = self.attention(
            query,
            key,
            value,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            average_attn_weights=average_attn_weights,
        )
        return output, weights

    def without_weights(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        is_causal: bool,
    ) -> Tensor:
        """What ``attention`` computes, by ``fused_attention``."""
        batched = query.dim() > 2
        if not batched:
            query, key, value = query[None], key[None], value[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        stock = self.attention
        if stock.in_proj_weight is None:
            matrices: tuple[Tensor, ...] = (stock.q_proj_weight, stock.k_proj_weight, stock.v_proj_weight)
        else:
            matrices = stock.in_proj_weight.chunk(3)
        biases = (None, None, None) if stock.in_proj_bias is None else stock.in_proj_bias.chunk(3)
        q, k, v = (
            F.linear(x, matrix, bias).unflatten(-1, (stock.num_heads, -1)).transpose(1, 2)
            for x, matrix, bias in zip((query, key, value), matrices, biases, strict=True)
        )
        in_order = is_causal and attn_mask is None and key_padding_mask is None
        mask = None if in_order else merged_mask(attn_mask, key_padding_mask, is_causal, q, k)
        context = fused_attention(q, k, v, mask, in_order, stock.dropout if self.training else 0.0)
        output: Tensor = stock.out_proj(context.transpose(1, 2).flatten(2))
        return output if batched else output[0]


def shapes_of(query: Tensor, key: Tensor, axes: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Sizes of the axes that are not attended (batch first), and of the query's and the key's attended axes."""
    others = [size for axis, size in enumerate(query.shape[:-1]) if axis not in axes]
    return others, [query.shape[axis] for axis in axes], [key.shape[axis] for axis in axes]


def flat(x: Tensor, axes: list[int]) -> Tensor:
    """``(batch, *axes, features)`` as ``(batch and other axes, positions, features)``."""
    others = [axis for axis in range(x.dim() - 1) if axis not in axes]
    moved = x.permute(*others, *axes, -1)
    return moved.flatten(len(others), -2).flatten(0, len(others) - 1)


def unflat(x: Tensor, others: list[int], positions: list[int], axes: list[int]) -> Tensor:
    """The way back."""
    rank = len(others) + len(positions) + 1
    order = [axis for axis in range(rank - 1) if axis not in axes] + [*axes, rank - 1]
    return x.reshape(*others, *positions, x.shape[-1]).permute([order.index(axis) for axis in range(rank)])


def flat_masks(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, others: list[int], axes: int
) -> tuple[Tensor | None, Tensor | None]:
    """Masks for a batch that counts the other axes, too: of four axes, the second for heads, where one has more."""
    if attn_mask is not None and attn_mask.dim() > 3:
        attn_mask = over_batch(joined(attn_mask, axes), others)
    if key_padding_mask is not None:
        padding = key_padding_mask.reshape(others[0], *[1] * (len(others) - 1), -1)
        key_padding_mask = padding.expand(*others, -1).flatten(0, -2)
    return attn_mask, key_padding_mask


class KerasMultiheadAttention(nn.Module):
    """The projections of a Keras ``MultiHeadAttention`` or ``GroupQueryAttention`` in Keras' own sizes.

    Args:
        num_heads: number of query heads.
        key_dim: size of one query or key head (not ``kdim``).
        value_dim: size of one value head (not ``vdim``).
        query_features: width of the query input.
        key_features: width of the key input.
        value_features: width of the value input.
        output_shape: shape of one output position.
        dropout: probability to drop an attention weight while training.
        bias: whether the projections have biases.
        num_key_value_heads: number of key and value heads, each for ``num_heads / num_key_value_heads`` query heads;
            ``num_heads`` for None.
        gate: whether each head's result is multiplied by a sigmoid of the query's own projection.
        sliding_window: each query sees the keys less than so many positions away, on either side; all for None.
        attention_axes: axes of the inputs that are attended over, Keras' ``attention_axes``; ``[1]`` for None. The
            other axes but the last are treated like the batch.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int,
        *,
        query_features: int,
        key_features: int,
        value_features: int,
        output_shape: list[int],
        dropout: float = 0.0,
        bias: bool = True,
        num_key_value_heads: int | None = None,
        gate: bool = False,
        sliding_window: int | None = None,
        attention_axes: list[int] | None = None,
    ) -> None:
        super().__init__()
        self.num_heads, self.key_dim, self.value_dim = num_heads, key_dim, value_dim
        self.num_key_value_heads = num_key_value_heads or num_heads
        self.output_shape, self.dropout, self.sliding_window = list(output_shape), dropout, sliding_window
        self.attention_axes = list(attention_axes or [1])
        self.q_proj = nn.Linear(query_features, num_heads * key_dim, bias=bias)
        self.k_proj = nn.Linear(key_features, self.num_key_value_heads * key_dim, bias=bias)
        self.v_proj = nn.Linear(value_features, self.num_key_value_heads * value_dim, bias=bias)
        self.gate_proj = nn.Linear(query_features, num_heads * value_dim, bias=bias) if gate else None
        self.out_proj = nn.Linear(num_heads * value_dim, math.prod(self.output_shape), bias=bias)
        self.scale = key_dim**-0.5

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

        With several axes, a position is one place on the attended axes, counted row by row.

        Args:
            query: ``(batch, query_length, query_features)``, or without batch; ``(batch, *axes, query_features)``
                where ``attention_axes`` say so.
            key: ``(batch, key_length, key_features)``, or with axes.
            value: ``(batch, key_length, value_features)``, or with axes.
            key_padding_mask: ``(batch, key_length)``, True where a key is blocked.
            need_weights: whether to return the attention weights; without, PyTorch's fused kernels are used.
            attn_mask: ``(query_length, key_length)`` or ``(batch * num_heads, query_length, key_length)``; or, with
                four axes or more, anything that broadcasts to the weights before they are averaged. True blocks, a
                float is added to the scores.
            average_attn_weights: whether the weights are averaged over heads.
            is_causal: whether each query sees the keys up to its own position only.

        Returns:
            output ``(batch, query_length, *output_shape)``, or with axes, and the weights ``(batch, query_length,
            key_length)``, with ``num_heads`` as second axis if not averaged, or None. With axes the weights are
            ``(batch, *other axes, num_heads, *query axes, *key axes)``.
        """
        batched = query.dim() > 2
        if not batched:
            query, key, value = query[None], key[None], value[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        q, k, v = self.projected(query, key, value)
        axes, window, dropout = self.attention_axes, self.sliding_window, self.dropout if self.training else 0.0
        in_order = is_causal and not need_weights and attn_mask is None and key_padding_mask is None and window is None
        mask = None if in_order else merged_mask(attn_mask, key_padding_mask, is_causal, q, k, window, len(axes))
        weights = None
        if need_weights:
            weights = F.dropout(attention_weights(q, k, mask, self.scale), dropout)
            context = weighted(weights, v)
            weights = weights.mean(-3) if average_attn_weights else weights
            queries, keys = ([x.shape[axis] for axis in axes] for x in (query, key))
            weights = weights.unflatten(-1, keys).unflatten(-1 - len(keys), queries)
        else:
            context = fused_attention(q, k, v, mask, in_order, dropout, self.scale)
        context = self.from_heads(context, query)
        if self.gate_proj is not None:
            context = context * self.gate_proj(query).sigmoid()
        output = self.out_proj(context)
        output = output if len(self.output_shape) == 1 else output.unflatten(-1, self.output_shape)
        if not batched:
            return output[0], None if weights is None else weights[0]
        return output, weights

    def projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values ``(batch, *other axes, heads, positions, head_dim)``."""
        return (
            self.to_heads(self.q_proj(query), self.num_heads),
            self.to_heads(self.k_proj(key), self.num_key_value_heads),
            self.to_heads(self.v_proj(value), self.num_key_value_heads),
        )

    def order(self, rank: int) -> list[int]:
        """Axes of ``(batch, *axes, heads, head_dim)``, as attention needs them: attended axes behind the heads."""
        others = [axis for axis in range(1, rank - 2) if axis not in self.attention_axes]
        return [0, *others, rank - 2, *self.attention_axes, rank - 1]

    def to_heads(self, features: Tensor, num_heads: int) -> Tensor:
        """``(batch, *axes, heads * head_dim)`` as ``(batch, *other axes, heads, positions, head_dim)``."""
        x = features.unflatten(-1, (num_heads, -1))
        if x.dim() == 4:
            return x.transpose(1, 2)
        return x.permute(self.order(x.dim())).flatten(-1 - len(self.attention_axes), -2)

    def from_heads(self, context: Tensor, query: Tensor) -> Tensor:
        """The way back: ``(batch, *axes, heads * head_dim)``, with the axes of ``query``."""
        if query.dim() == 3:
            return context.transpose(1, 2).flatten(2)
        x = context.unflatten(-2, [query.shape[axis] for axis in self.attention_axes])
        order = self.order(x.dim())
        return x.permute([order.index(axis) for axis in range(x.dim())]).flatten(-2)


class NamedMultiheadAttention(KerasMultiheadAttention):
    """``KerasMultiheadAttention`` with its projections under other names, as models elsewhere have them.

    Args:
        names: where each projection is, by its name in ``KerasMultiheadAttention``: ``{"q_proj": "self.query"}``.
        divides_scores: whether scores are divided by ``sqrt(key_dim)``; T5 has that factor in its query weight.
        sizes: of ``KerasMultiheadAttention``.
    """

    def __init__(self, *, names: dict[str, str], divides_scores: bool = True, **sizes: Any) -> None:
        super().__init__(**sizes)
        self.scale = self.scale if divides_scores else 1.0
        moved = {own: name for own, name in names.items() if own != name}
        for own, name in moved.items():
            self.move(own, name)
        self.names = moved

    def move(self, own: str, name: str) -> None:
        """Put a projection where its keys are, in containers of the names on the way."""
        *containers, last = name.split(".")
        place: nn.Module = self
        for container in containers:
            if container not in dict(place.named_children()):
                place.add_module(container, nn.Module())
            place = place.get_submodule(container)
        place.add_module(last, self.get_submodule(own))
        delattr(self, own)

    def __getattr__(self, name: str) -> Any:
        """A projection by the name that ``forward`` knows."""
        path = self.__dict__.get("names", {}).get(name)
        if path is None:
            return super().__getattr__(name)
        place: Any = self
        for part in path.split("."):  # get_submodule is slow, and this is on the way of every call
            place = place._modules[part]
        return place


class FusedMultiheadAttention(KerasMultiheadAttention):
    """Query, key and value in one ``qkv``, the output in ``proj``, as in timm's ``Attention``.

    It is called with query, key and value like the others: each goes through its own third of ``qkv``.

    Args:
        num_heads: number of heads.
        key_dim: size of one head (timm's ``attn_head_dim``).
        features: width of the inputs (timm's ``dim``).
        output_features: width of the output (timm's ``dim_out``).
        dropout: probability to drop an attention weight while training.
        bias: whether ``qkv`` and ``proj`` have biases.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        *,
        features: int,
        output_features: int,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_heads,
            key_dim,
            key_dim,
            query_features=features,
            key_features=features,
            value_features=features,
            output_shape=[output_features],
            dropout=dropout,
            bias=bias,
        )
        self.qkv = nn.Linear(features, 3 * num_heads * key_dim, bias=bias)
        self.proj = self.out_proj
        del self.q_proj, self.k_proj, self.v_proj, self.out_proj

    def projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values ``(batch, heads, positions, head_dim)``."""
        if query is key and key is value:
            parts = self.qkv(query).chunk(3, -1)
        else:
            biases = (None, None, None) if self.qkv.bias is None else self.qkv.bias.chunk(3)
            thirds = zip((query, key, value), self.qkv.weight.chunk(3), biases, strict=True)
            parts = tuple(F.linear(x, weight, bias) for x, weight, bias in thirds)
        q, k, v = (self.to_heads(part, self.num_heads) for part in parts)
        return q, k, v

    def __getattr__(self, name: str) -> Any:
        """``proj`` by the name that ``forward`` knows."""
        is_built = "proj" in self.__dict__.get("_modules", {})
        return super().__getattr__("proj" if name == "out_proj" and is_built else name)


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


def causal_mask(query_length: int, key_length: int, device: torch.device) -> Tensor:
    """``(query_length, key_length)``, True (blocked) where the key comes after the query, as Keras counts."""
    return torch.ones(query_length, key_length, dtype=torch.bool, device=device).triu(1)


def outside_window(query_length: int, key_length: int, window: int, device: torch.device) -> Tensor:
    """``(query_length, key_length)``, True (blocked) outside a band on the diagonal, as Keras' ``sliding_window``."""
    rows = torch.arange(query_length, device=device)[:, None]
    columns = torch.arange(key_length, device=device)
    return (rows - columns).abs() >= window


def joined(mask: Tensor, axes: int) -> Tensor:
    """A mask ``(…, *query axes, *key axes)`` with one axis for all queries and one for all keys."""
    return mask.flatten(-axes, -1).flatten(-1 - axes, -2)


def over_batch(mask: Tensor, others: list[int]) -> Tensor:
    """A mask ``(*others, heads, queries, keys)`` or what broadcasts to it, its other axes as one; heads may stay 1."""
    sizes = [1] * (3 - mask.dim()) + list(mask.shape[-3:])
    return mask.expand(*others, *sizes).flatten(0, -4)


def merged_mask(
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    is_causal: bool,
    q: Tensor,
    k: Tensor,
    window: int | None = None,
    axes: int = 1,
) -> Tensor | None:
    """PyTorch's masks, and the window, as one that broadcasts to the scores of ``q`` and ``k``.

    True blocks; or a float that is added to the scores, where one of the masks is a float or there is a window.
    """
    masks = []
    if attn_mask is not None and attn_mask.dim() == 3:
        attn_mask = attn_mask.reshape(*q.shape[:-2], *attn_mask.shape[-2:])
    elif attn_mask is not None and attn_mask.dim() > 3:
        attn_mask = joined(attn_mask, axes)
    elif attn_mask is None and is_causal:
        attn_mask = causal_mask(q.shape[-2], k.shape[-2], q.device)
    if attn_mask is not None:
        masks.append(attn_mask)
    if key_padding_mask is not None:
        masks.append(key_padding_mask.reshape(key_padding_mask.shape[0], *[1] * (q.dim() - 2), -1))
    if window is not None:
        return windowed_mask(masks, outside_window(q.shape[-2], k.shape[-2], window, q.device), q)
    if not masks:
        return None
    merged, *others = masks if all(mask.dtype == torch.bool for mask in masks) else [added(mask, q) for mask in masks]
    for mask in others:
        merged = merged | mask if mask.dtype == torch.bool else merged + mask
    return merged


def windowed_mask(masks: list[Tensor], blocked: Tensor, like: Tensor) -> Tensor:
    """A window and masks as one that is added to scores.

    All that block are merged before they become a number, as in Keras: a key that is blocked twice counts like one
    that is blocked once, and a query without any key left gets the average of all. A float is added as it is.
    """
    bias = None
    for mask in masks:
        if mask.dtype == torch.bool:
            blocked = blocked | mask
        else:
            bias = mask if bias is None else bias + mask
    if bias is None:
        return added_to_scores(~blocked, like.dtype)
    lowest = max(torch.finfo(bias.dtype).min, torch.finfo(like.dtype).min) / 2  # what to_attn_mask gave in its dtype
    return torch.where(blocked, bias.clamp(max=lowest), bias).to(like.dtype)


def added(mask: Tensor, like: Tensor) -> Tensor:
    """A mask that is added to scores, in the type of ``like``."""
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """``(…, heads, queries, keys)``; a key head serves as many query heads as there are for each."""
    groups = q.shape[-3] // k.shape[-3]
    grouped = (q * scale).unflatten(-3, (-1, groups)).flatten(-3, -2)
    scores = (grouped @ k.transpose(-2, -1)).unflatten(-2, (groups, -1)).flatten(-4, -3)
    if mask is not None:
        scores = scores.masked_fill(mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1)


def weighted(weights: Tensor, v: Tensor) -> Tensor:
    """``(…, heads, queries, head_dim)``: the sum of values under weights ``(…, heads, queries, keys)``."""
    groups = weights.shape[-3] // v.shape[-3]
    grouped = weights.unflatten(-3, (-1, groups)).flatten(-3, -2)
    return (grouped @ v).unflatten(-2, (groups, -1)).flatten(-4, -3)


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """``(…, heads, queries, head_dim)`` by PyTorch's fused kernels, which keep no scores.

    They take four axes, heads of one size and masks in which True attends; the zeros that widen a head change nothing.

    Args:
        q: ``(batch, *other axes, heads, queries, head_dim)``.
        k: the same with keys; it may have fewer heads.
        v: the same; its heads may have another size.
        mask: of ``merged_mask``, or None.
        is_causal: whether each query sees the keys up to its own position only; without a mask.
        dropout: probability to drop an attention weight.
        scale: factor of the scores, one over the root of ``head_dim`` for None.
    """
    others, key_dim, value_dim = q.shape[:-3], q.shape[-1], v.shape[-1]
    scale = key_dim**-0.5 if scale is None else scale
    if len(others) > 1:
        mask = over_batch(mask, list(others)) if mask is not None and mask.dim() > 2 else mask
        q, k, v = q.flatten(0, -4), k.flatten(0, -4), v.flatten(0, -4)
    if mask is not None and mask.dtype == torch.bool:
        mask = ~mask
    if key_dim < value_dim:
        q, k = F.pad(q, (0, value_dim - key_dim)), F.pad(k, (0, value_dim - key_dim))
    if value_dim < key_dim:
        v = F.pad(v, (0, key_dim - value_dim))
    grouped = q.shape[-3] != k.shape[-3]
    context = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, scale=scale, enable_gqa=grouped)
    context = context if value_dim >= key_dim else context[..., :value_dim]
    return context if len(others) == 1 else context.unflatten(0, others)


def to_attn_mask(
    attention_mask: Tensor | None = None,
    query_mask: Tensor | None = None,
    value_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    causal: bool = False,
    *,
    num_heads: int,
    query_length: int | None = None,
    key_length: int | None = None,
    dtype: torch.dtype = torch.float32,
    attended_axes: int = 1,
    other_axes: int = 0,
) -> Tensor | None:
    """Keras' masks as the ``attn_mask`` of ``nn.MultiheadAttention`` and of the modules here.

    In Keras True attends; all masks must agree. The result is added to the scores: 0 where a query may attend, half
    the most negative number of ``dtype`` elsewhere. It is finite, so a row without any key is not NaN but the uniform
    average, as in Keras 2 and on most paths of Keras 3 (from 3.10 on, a layer that returns its scores or has dropout
    gives zeros there instead; in float16 the average is a rough one, in Keras, too). Give it alone: together with
    ``key_padding_mask`` it would become infinite.

    Args:
        attention_mask: ``(query_length, key_length)``, ``(batch, query_length, key_length)``, or with heads
            ``(batch, num_heads, query_length, key_length)``. With several attended axes ``(batch, *query axes, *key
            axes)``.
        query_mask: ``(batch, query_length)``; padded queries, whose rows Keras masks as a whole.
        value_mask: ``(batch, key_length)``.
        key_mask: ``(batch, key_length)``.
        causal: Keras' ``use_causal_mask``.
        num_heads: of the layer.
        query_length: needed where no mask shows it.
        key_length: needed where no mask shows it.
        dtype: of the layer's computation; must be the inputs' where the weights are not asked for.
        attended_axes: how many ``attention_axes`` the layer has; with more than one give ``attention_mask`` alone.
        other_axes: how many axes between the batch and the features are not attended over.

    Returns:
        ``(query_length, key_length)`` where no mask has a batch axis, else ``(batch * num_heads, query_length,
        key_length)``; None without any mask. For a layer with other than one time axis ``(batch, 1, …, 1, *query axes,
        *key axes)``, which broadcasts to its scores.

    Raises:
        ValueError: a length is needed and not known.
    """
    if attended_axes > 1 or other_axes:
        return mask_over_axes(
            attention_mask, query_mask, value_mask, key_mask, causal, dtype, attended_axes, other_axes
        )
    masks = [] if attention_mask is None else [torch.as_tensor(attention_mask).bool()]
    masks = [mask[:, None] if mask.dim() == 3 else mask for mask in masks]
    masks += [] if query_mask is None else [torch.as_tensor(query_mask).bool()[:, None, :, None]]
    masks += [torch.as_tensor(mask).bool()[:, None, None, :] for mask in (value_mask, key_mask) if mask is not None]
    length = query_length or max((mask.shape[-2] for mask in masks), default=1)
    width = key_length or max((mask.shape[-1] for mask in masks), default=1)
    shows_length = query_length or attention_mask is not None or query_mask is not None
    shows_width = key_length or attention_mask is not None or value_mask is not None or key_mask is not None
    if (causal or masks) and not (shows_length and shows_width):
        raise ValueError(f"to_attn_mask: {'key' if shows_length else 'query'}_length is not shown by a mask; give it.")
    if causal:
        masks.append(~causal_mask(length, width, masks[0].device if masks else torch.device("cpu")))
    if not masks:
        return None
    attends = masks[0]
    for mask in masks[1:]:
        attends = attends & mask
    if attends.dim() == 4:
        attends = attends.expand(-1, num_heads, length, width).flatten(0, 1)
    else:
        attends = attends.expand(length, width)
    return added_to_scores(attends, dtype)


def mask_over_axes(
    attention_mask: Tensor | None,
    query_mask: Tensor | None,
    value_mask: Tensor | None,
    key_mask: Tensor | None,
    causal: bool,
    dtype: torch.dtype,
    attended_axes: int,
    other_axes: int,
) -> Tensor | None:
    """Keras' masks for a layer with ``attention_axes``: axes of size 1 stand for heads and axes not attended over."""
    queries = [] if query_mask is None else [torch.as_tensor(query_mask).bool()[:, :, None]]
    keys = [torch.as_tensor(mask).bool()[:, None, :] for mask in (value_mask, key_mask) if mask is not None]
    masks = [] if attention_mask is None else [torch.as_tensor(attention_mask).bool()]
    if (queries or keys) and attended_axes > 1:
        raise ValueError("to_attn_mask: padding masks have one axis; give attention_mask for several attended axes.")
    if causal:
        raise ValueError("to_attn_mask: give is_causal=True to the module for a causal mask over its time axis.")
    attends = None
    for mask in (*masks, *queries, *keys):
        attends = mask if attends is None else attends & mask
    if attends is None:
        return None
    batch, *places = attends.shape
    return added_to_scores(attends.reshape(batch, *[1] * (other_axes + 1), *places), dtype)


def added_to_scores(attends: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a query may attend, half the most negative number elsewhere: twice that would be infinite."""
    blocked = torch.finfo(dtype).min / 2
    return torch.zeros(attends.shape, dtype=dtype, device=attends.device).masked_fill(~attends, blocked)
