"""Attention, as the module that holds it is called."""

from ....records.layer import AttentionLayer
from ....records.model import Term
from ..use import Use, Written, atom, last

OF_MODELS = ("MultiHeadAttention", "MultiHeadAttentionWithScores", "MultiHeadAttentionOrZeros")


def multi_head(
    layer: AttentionLayer,
    use: Use,
    query: Term,
    value: Term,
    key: Term | None = None,
    attention_mask: Term | None = None,
    return_attention_scores: bool = False,
    use_causal_mask: bool = False,
    without_key: str = "average",
) -> Written:
    """``nn.MultiheadAttention``, one of the small modules, or one that takes every option."""
    tensors = ", ".join(last(term) for term in (query, key or value, value))
    form = use.plan.module.class_name if use.plan else ""
    if form in OF_MODELS:
        options = [f"mask={attention_mask.text}"] if attention_mask else []
        options += ["is_causal=True"] if use_causal_mask else []
        returns_scores = form != OF_MODELS[0]
    else:
        options, returns_scores = options_of_torch(use, query, key or value, attention_mask, use_causal_mask), True
        options += ["average_attn_weights=False"] if return_attention_scores else ["need_weights=False"]
    text = f"{use.module}({', '.join((tensors, *options))})"
    if return_attention_scores:
        return Written(text)
    return Written(f"{text}[0]" if returns_scores else text)


def options_of_torch(use: Use, query: Term, key: Term, attention_mask: Term | None, use_causal_mask: bool) -> list[str]:
    """Masks as ``nn.MultiheadAttention`` and the modules with its signature take them."""
    causal = f"{use.helper('causal')}({last(query)}, {last(key)})" if use_causal_mask else ""
    if attention_mask is None:
        return [f"attn_mask=~{causal}[0]"] if causal else []
    mask = f"{atom(attention_mask.text)} & {causal}" if causal else attention_mask.text
    return [f"attn_mask={use.helper('added_to_scores')}({mask}, {atom(query.text)}.dtype)[:, None]"]


LINES = dict.fromkeys(("MultiHeadAttention", "GroupQueryAttention"), multi_head)
