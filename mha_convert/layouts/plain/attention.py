"""Attention inside a whole model: ``nn.MultiheadAttention`` where it fits alone, else the smallest module that does."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import or_
from typing import Any

from ...records.layer import AttentionLayer
from ...records.plan import LayerPlan, ModuleSpec
from .. import linear, mha

PLAIN, CAUSAL, MASKED = "MultiHeadAttention", "CausalMultiHeadAttention", "MaskedMultiHeadAttention"
WITH_SCORES, OR_ZEROS = "MultiHeadAttentionWithScores", "MultiHeadAttentionOrZeros"
GENERAL = "GroupedAttention"
OF_MODELS = (PLAIN, CAUSAL, MASKED, WITH_SCORES, OR_ZEROS, GENERAL)
RETURN_SCORES = (WITH_SCORES, OR_ZEROS, GENERAL)


@dataclass(frozen=True, slots=True)
class Calls:
    """How a model calls a layer: whether some call has a mask, and which class of ``modules.of_models`` they need."""

    is_masked: bool
    form: str
    gives_zeros: bool


def how_called(layer: AttentionLayer, calls: Iterable[Mapping[str, Any]]) -> Calls:
    """By the keywords of each call, after masks were made explicit: the smallest class that takes them all."""
    masks, causal, scores, zeros = [], [], False, False
    for keywords in calls:
        masks.append(keywords.get("attention_mask") is not None or layer.sliding_window is not None)
        causal.append(bool(keywords.get("use_causal_mask")))
        scores |= bool(keywords.get("return_attention_scores"))
        zeros |= keywords.get("without_key") == "zeros"
    fits = {
        OR_ZEROS: zeros,
        WITH_SCORES: scores,
        PLAIN: not any(masks) and not any(causal),
        CAUSAL: not any(masks) and all(causal),
        MASKED: all(map(or_, masks, causal)),
    }
    form = next((name for name in fits if fits[name]), WITH_SCORES)  # which takes a mask or none
    return Calls(is_masked=any(masks), form=form, gives_zeros=zeros)


def lay_out(layer: AttentionLayer, prefix: str, layout: str | None, called: Calls) -> LayerPlan:
    """The layer's rules and module.

    Args:
        layer: the attention.
        prefix: of its keys.
        layout: ``mha`` or ``linear``; None for ``mha`` where it fits alone, and ``linear`` elsewhere.
        called: how; PyTorch's module takes a mask besides the causal one for each head only.
    """
    chosen = layout or ("mha" if fits_alone(layer) else "linear")
    if chosen == "mha" and not called.is_masked and not any(refusal.applies(layer) for refusal in mha.REFUSALS):
        return mha.lay_out(layer, prefix)
    return replace(linear.lay_out(layer, prefix), module=small_module(layer, called))


def fits_alone(layer: AttentionLayer) -> bool:
    """Whether ``nn.MultiheadAttention`` holds the layer's own numbers and no others."""
    if any(refusal.applies(layer) for refusal in mha.REFUSALS):
        return False
    is_even = layer.key_dim == layer.value_dim and layer.scale is None
    return is_even and layer.num_heads == layer.num_key_value_heads and not mha.place(layer).wrapped


def small_module(layer: AttentionLayer, called: Calls) -> ModuleSpec:
    """Of the sizes that the projections have; those that follow from the others are left out."""
    is_general = layer.gate is not None or layer.num_key_value_heads != layer.num_heads
    features = layer.query_features
    sizes: dict[str, Any] = {"features": features, "num_heads": layer.num_heads, "key_dim": layer.key_dim}
    sizes |= {"num_key_value_heads": layer.num_key_value_heads} if is_general else {}
    sizes |= {"value_dim": layer.value_dim} if layer.value_dim != layer.key_dim else {}
    widths = {
        "key_features": layer.key_features,
        "value_features": layer.value_features,
        "output_features": layer.output_features,
    }
    sizes |= {name: width for name, width in widths.items() if width != features}
    options: dict[str, Any] = {"dropout": layer.dropout} if layer.dropout else {}
    options |= {} if layer.use_bias else {"bias": False}
    if is_general:
        options |= {"gate": True} if layer.gate is not None else {}
        options |= {"zeros": True} if called.gives_zeros else {}
    return ModuleSpec(class_name=GENERAL if is_general else called.form, arguments=sizes | options)
