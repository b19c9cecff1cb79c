"""Attention between learned projections; every class is called as ``torch.nn.MultiheadAttention`` is."""

import math
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from .masks import causal_mask, flat_masks, merged_mask
from .scores import attention_weights, fused_attention, weighted


class ProjectedMultiheadAttention(nn.Module):
    """A stock ``nn.MultiheadAttention`` between linear layers, for any Keras ``heads * key_dim``.

    ``query_projection`` is there where ``query_features != embed_dim``; the query weight of ``attention`` is then an
    identity. ``output_projection`` is there where ``output_shape != [embed_dim]``; ``out_proj`` is then an identity.

    Without weights, the parameters of ``attention`` go to PyTorch's fused kernels directly: its own forward moves the
    batch axis after the length and copies masks for every head.

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
    """The inverse of ``flat``: ``(batch and other axes, positions, features)`` as ``(batch, *axes, features)``."""
    rank = len(others) + len(positions) + 1
    order = [axis for axis in range(rank - 1) if axis not in axes] + [*axes, rank - 1]
    return x.reshape(*others, *positions, x.shape[-1]).permute([order.index(axis) for axis in range(rank)])


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
        output = self.projected_output(context)
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

    def projected_output(self, context: Tensor) -> Tensor:
        """``(batch, *axes, output_features)`` of the heads' results ``(batch, *axes, heads * head_dim)``."""
        output: Tensor = self.out_proj(context)
        return output

    def order(self, rank: int) -> list[int]:
        """Axes of ``(batch, *axes, heads, head_dim)``, as attention needs them: attended axes after the heads."""
        others = [axis for axis in range(1, rank - 2) if axis not in self.attention_axes]
        return [0, *others, rank - 2, *self.attention_axes, rank - 1]

    def to_heads(self, features: Tensor, num_heads: int) -> Tensor:
        """``(batch, *axes, heads * head_dim)`` as ``(batch, *other axes, heads, positions, head_dim)``."""
        x = features.unflatten(-1, (num_heads, -1))
        if x.dim() == 4:
            return x.transpose(1, 2)
        return x.permute(self.order(x.dim())).flatten(-1 - len(self.attention_axes), -2)

    def from_heads(self, context: Tensor, query: Tensor) -> Tensor:
        """The inverse of ``to_heads``: ``(batch, *axes, heads * head_dim)``, with the axes of ``query``."""
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
        paths = {own: names.get(own, own) for own in ("q_proj", "k_proj", "v_proj", "out_proj")}
        self.paths = {own: path.split(".") for own, path in paths.items()}
        moved = {path: self.get_submodule(own) for own, path in paths.items() if own != path}
        for own, path in paths.items():
            if own != path:
                delattr(self, own)
        for path, module in moved.items():
            self.put(path, module)

    def put(self, path: str, module: nn.Module) -> None:
        """Put a projection where its keys are, in containers of the names on the way."""
        *containers, name = path.split(".")
        parent: nn.Module = self
        for container in containers:
            if container not in dict(parent.named_children()):
                parent.add_module(container, nn.Module())
            parent = parent.get_submodule(container)
        parent.add_module(name, module)

    def projection(self, own: str) -> Any:
        """The projection that ``KerasMultiheadAttention`` has under this name."""
        found: Any = self
        for name in self.paths[own]:  # operator.attrgetter would break torch.compile's graph
            found = getattr(found, name)
        return found

    def projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values ``(batch, *other axes, heads, positions, head_dim)``."""
        return (
            self.to_heads(self.projection("q_proj")(query), self.num_heads),
            self.to_heads(self.projection("k_proj")(key), self.num_key_value_heads),
            self.to_heads(self.projection("v_proj")(value), self.num_key_value_heads),
        )

    def projected_output(self, context: Tensor) -> Tensor:
        """``(batch, *axes, output_features)`` of the heads' results ``(batch, *axes, heads * head_dim)``."""
        output: Tensor = self.projection("out_proj")(context)
        return output


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

    def projected_output(self, context: Tensor) -> Tensor:
        """``(batch, query_length, output_features)`` of the heads' results ``(batch, query_length, features)``."""
        output: Tensor = self.proj(context)
        return output
