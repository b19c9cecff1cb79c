"""Attention without projections: scores, a softmax over them, and the average of the values."""

from ....records.layer import PlainLayer
from ....records.model import Term
from ..use import Use, Written, atom, last


def attention(
    layer: PlainLayer,
    use: Use,
    inputs: tuple[Term, ...],
    query_mask: Term | None = None,
    value_mask: Term | None = None,
    return_attention_scores: bool = False,
    use_causal_mask: bool = False,
) -> Written:
    """One line; a dot product that is only that is ``F.scaled_dot_product_attention``."""
    query, value, key = last(inputs[0]), last(inputs[1]), last(inputs[-1])
    is_fused = not use.module and not return_attention_scores  # nothing is learned, dropped or shown
    is_causal = use_causal_mask or layer.settings["causal"]
    kept = [f"{boolean(value_mask)}[:, None]"] if value_mask else []
    kept += [f"causal({query}, {key})"] if is_causal and (kept or not is_fused) else []
    mask = f"added_to_scores({' & '.join(kept)}, {atom(query)}.dtype)" if kept else ""
    padding = f" * {boolean(query_mask)}[..., None]" if query_mask else ""
    if is_fused:
        options = [f"attn_mask={mask}"] if mask else ["is_causal=True"] if is_causal else []
        arguments = ", ".join((query, key, value, *options, "scale=1.0"))
        return Written(f"F.scaled_dot_product_attention({arguments}){padding}")
    weights = dropped(use, layer, f"{atom(masked(scores(use, query, key), mask))}.softmax(-1)")
    if not return_attention_scores:
        return Written(f"{weights} @ {atom(value)}{padding}")
    output = f"{{0}} @ {atom(value)}{padding}"
    return Written(statements=(f"{{0}} = {weights}",), outputs=(output, "{0}"), locals=("weights",))


def boolean(mask: Term) -> str:
    """A mask as bits."""
    return atom(mask.text) if mask.spec.dtype == "bool" else f"{atom(mask.text)}.bool()"


def scores(use: Use, query: str, key: str) -> str:
    """By the module, or the dot product."""
    is_learned = use.plan is not None and not use.plan.module.is_stock
    return f"{use.module}({query}, {key})" if is_learned else f"{atom(query)} @ {atom(key)}.transpose(1, 2)"


def masked(text: str, mask: str) -> str:
    """Scores under a mask."""
    return f"{text} + {mask}" if mask else text


def dropped(use: Use, layer: PlainLayer, weights: str) -> str:
    """Weights with dropout in training."""
    if use.plan is None or not layer.settings["dropout"]:
        return weights
    return f"{use.module}({weights})" if use.plan.module.is_stock else f"{use.module}.dropout({weights})"


LINES = {"Attention": attention, "AdditiveAttention": attention}
