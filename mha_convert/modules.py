"""The ``nn.Module``s that converted layers load into.

This file needs torch alone and nothing of this package: ``mha-convert convert --module FILE.py`` copies classes out of
it. All are called as ``torch.nn.MultiheadAttention(..., batch_first=True)`` is, and return what it returns.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ProjectedMultiheadAttention(nn.Module):
    """A stock ``nn.MultiheadAttention`` between linear layers, for any Keras ``heads * key_dim``.

    ``query_projection`` is there where ``query_features != embed_dim``; the query weight of ``attention`` is then an
    identity. ``output_projection`` is there where ``output_shape != [embed_dim]``; ``out_proj`` is then an identity.

    Args:
        embed_dim: heads times the size of one head.
        num_heads: number of heads.
        query_features: width of the query input.
        output_shape: shape of one output position.
        kdim: width of the key input, ``embed_dim`` for None.
        vdim: width of the value input, ``embed_dim`` for None.
        dropout: probability to drop an attention weight while training.
        bias: whether the projections have biases.
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
    ) -> None:
        super().__init__()
        self.output_shape = list(output_shape)
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

        Args:
            query: ``(batch, query_length, query_features)``, or without batch.
            key: ``(batch, key_length, kdim)``.
            value: ``(batch, key_length, vdim)``.
            key_padding_mask: ``(batch, key_length)``, True where a key is blocked.
            need_weights: whether to return the attention weights; without, PyTorch's fused kernels are used.
            attn_mask: ``(query_length, key_length)`` or ``(batch * num_heads, query_length, key_length)``; True
                blocks, a float is added to the scores.
            average_attn_weights: whether the weights are averaged over heads.
            is_causal: whether each query sees the keys up to its own position only.

        Returns:
            output ``(batch, query_length, *output_shape)``, and the weights ``(batch, query_length, key_length)``,
            with ``num_heads`` as second axis if not averaged, or None.
        """
        if is_causal and attn_mask is None:
            attn_mask = causal_mask(query.shape[-2], key.shape[-2], query.device)
        output, weights = self.attention(
            self.query_projection(query),
            key,
            value,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            average_attn_weights=average_attn_weights,
        )
        output = self.output_projection(output)
        return output if len(self.output_shape) == 1 else output.unflatten(-1, self.output_shape), weights


class KerasMultiheadAttention(nn.Module):
    """The four projections of a Keras ``MultiHeadAttention`` in Keras' own sizes, without one extra parameter.

    Args:
        num_heads: number of heads.
        key_dim: size of one query or key head (not ``kdim``).
        value_dim: size of one value head (not ``vdim``).
        query_features: width of the query input.
        key_features: width of the key input.
        value_features: width of the value input.
        output_shape: shape of one output position.
        dropout: probability to drop an attention weight while training.
        bias: whether the projections have biases.
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
    ) -> None:
        super().__init__()
        self.num_heads, self.key_dim, self.dropout = num_heads, key_dim, dropout
        self.output_shape = list(output_shape)
        self.q_proj = nn.Linear(query_features, num_heads * key_dim, bias=bias)
        self.k_proj = nn.Linear(key_features, num_heads * key_dim, bias=bias)
        self.v_proj = nn.Linear(value_features, num_heads * value_dim, bias=bias)
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

        Args:
            query: ``(batch, query_length, query_features)``, or without batch.
            key: ``(batch, key_length, key_features)``.
            value: ``(batch, key_length, value_features)``.
            key_padding_mask: ``(batch, key_length)``, True where a key is blocked.
            need_weights: whether to return the attention weights; without, PyTorch's fused kernels are used.
            attn_mask: ``(query_length, key_length)`` or ``(batch * num_heads, query_length, key_length)``; True
                blocks, a float is added to the scores.
            average_attn_weights: whether the weights are averaged over heads.
            is_causal: whether each query sees the keys up to its own position only.

        Returns:
            output ``(batch, query_length, *output_shape)``, and the weights ``(batch, query_length, key_length)``,
            with ``num_heads`` as second axis if not averaged, or None.
        """
        batched = query.dim() == 3
        if not batched:
            query, key, value = query[None], key[None], value[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        q, k, v = (
            projection(features).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for projection, features in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        )
        blocked_by_order = is_causal and attn_mask is None
        if blocked_by_order and (need_weights or key_padding_mask is not None):
            attn_mask, blocked_by_order = causal_mask(q.shape[-2], k.shape[-2], q.device), False
        mask = additive_mask(attn_mask, key_padding_mask, self.num_heads, q)
        scale, dropout = self.scale, self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = (q * scale) @ k.transpose(-2, -1)
            weights = F.dropout((scores if mask is None else scores + mask).softmax(-1), dropout)
            context = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            context = F.scaled_dot_product_attention(q, k, v, mask, dropout, blocked_by_order, scale=scale)
        output = self.out_proj(context.transpose(1, 2).flatten(2))
        output = output if len(self.output_shape) == 1 else output.unflatten(-1, self.output_shape)
        if not batched:
            return output[0], None if weights is None else weights[0]
        return output, weights


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
        names = self.__dict__.get("names", {})
        return self.get_submodule(names[name]) if name in names else super().__getattr__(name)


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

    def third(self, number: int, features: Tensor) -> Tensor:
        """``(..., features)`` through the query's (0), key's (1) or value's (2) rows of ``qkv``."""
        bias = None if self.qkv.bias is None else self.qkv.bias.chunk(3)[number]
        return F.linear(features, self.qkv.weight.chunk(3)[number], bias)

    def __getattr__(self, name: str) -> Any:
        """A projection by the name that ``forward`` knows."""
        if "proj" not in self.__dict__.get("_modules", {}):
            return super().__getattr__(name)
        if name in ("q_proj", "k_proj", "v_proj"):
            return partial(self.third, "qkv".index(name[0]))
        return super().__getattr__("proj" if name == "out_proj" else name)


def causal_mask(query_length: int, key_length: int, device: torch.device) -> Tensor:
    """``(query_length, key_length)``, True (blocked) where the key comes after the query, as Keras counts."""
    return torch.ones(query_length, key_length, dtype=torch.bool, device=device).triu(1)


def additive_mask(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, num_heads: int, like: Tensor
) -> Tensor | None:
    """PyTorch's two masks as one that is added to scores ``(batch, heads, query_length, key_length)``."""
    masks = []
    if attn_mask is not None:
        masks.append(attn_mask.unflatten(0, (-1, num_heads)) if attn_mask.dim() == 3 else attn_mask)
    if key_padding_mask is not None:
        masks.append(key_padding_mask[:, None, None, :])
    added = [
        torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)
        if mask.dtype == torch.bool
        else mask.to(like.dtype)
        for mask in masks
    ]
    if len(added) == 2:
        return added[0] + added[1]
    return added[0] if added else None


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
) -> Tensor | None:
    """Keras' masks as the ``attn_mask`` of ``nn.MultiheadAttention`` and of the modules here.

    In Keras True attends; all masks must agree. The result is added to the scores: 0 where a query may attend, half
    the most negative number of ``dtype`` elsewhere. It is finite, so a row without any key is not NaN but the uniform
    average, as in Keras 2 and on most paths of Keras 3 (from 3.10 on, a layer that returns its scores or has dropout
    gives zeros there instead; in float16 the average is a rough one, in Keras, too). Give it alone: together with
    ``key_padding_mask`` it would become infinite.

    Args:
        attention_mask: ``(query_length, key_length)``, ``(batch, query_length, key_length)``, or with heads
            ``(batch, num_heads, query_length, key_length)``.
        query_mask: ``(batch, query_length)``; padded queries, whose rows Keras masks as a whole.
        value_mask: ``(batch, key_length)``.
        key_mask: ``(batch, key_length)``.
        causal: Keras' ``use_causal_mask``.
        num_heads: of the layer.
        query_length: needed where no mask shows it.
        key_length: needed where no mask shows it.
        dtype: of the layer's computation; must be the inputs' where the weights are not asked for.

    Returns:
        ``(query_length, key_length)`` where no mask has a batch axis, else ``(batch * num_heads, query_length,
        key_length)``; None without any mask.

    Raises:
        ValueError: a length is needed and not known.
    """
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
    blocked = torch.finfo(dtype).min / 2  # a score added to the very lowest number could make it infinite
    return torch.zeros(attends.shape, dtype=dtype, device=attends.device).masked_fill(~attends, blocked)
