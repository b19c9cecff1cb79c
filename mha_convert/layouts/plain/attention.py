"""Attention inside a whole model: ``nn.MultiheadAttention`` where it fits alone, else the smallest module that does."""

from dataclasses import replace

from ...records.layer import AttentionLayer
from ...records.plan import LayerPlan, ModuleSpec
from .. import linear, mha

TIME_AXIS = (1,)


def lay_out(layer: AttentionLayer, prefix: str, layout: str | None, *, is_masked: bool, form: str) -> LayerPlan:
    """The layer's rules and module.

    Args:
        layer: the attention.
        prefix: of its keys.
        layout: ``mha`` or ``linear``; None for ``mha`` where it fits alone, and ``linear`` elsewhere.
        is_masked: whether some call has a mask besides the causal one, which PyTorch's module takes for each head only.
        form: the class of ``modules.of_models`` whose ``forward`` the calls need.
    """
    chosen = layout or ("mha" if fits_alone(layer) and not is_masked else "linear")
    if chosen == "mha" and not is_masked:
        return mha.lay_out(layer, prefix)
    plan = linear.lay_out(layer, prefix)
    return replace(plan, module=small_module(layer, form)) if is_small(layer) else plan


def fits_alone(layer: AttentionLayer) -> bool:
    """Whether ``nn.MultiheadAttention`` holds the layer's own numbers and no others."""
    if any(refusal.applies(layer) for refusal in mha.REFUSALS):
        return False
    is_even = layer.key_dim == layer.value_dim and layer.scale is None
    return is_even and layer.num_heads == layer.num_key_value_heads and not mha.place(layer).wrapped


def is_small(layer: AttentionLayer) -> bool:
    """Whether the layer has nothing that the small modules have not."""
    has_more = layer.gate is not None or layer.sliding_window is not None or layer.scale is not None
    is_plain = len(layer.output_shape) == 1 and layer.rank == len(("batch", "length", "features"))
    axes = layer.attended_axes in (None, TIME_AXIS)
    return is_plain and axes and not has_more and layer.num_heads == layer.num_key_value_heads


def small_module(layer: AttentionLayer, form: str) -> ModuleSpec:
    """Of the sizes that the projections have."""
    sizes = {
        "query_features": layer.query_features,
        "key_features": layer.key_features,
        "value_features": layer.value_features,
        "output_features": layer.output_shape[0],
        "num_heads": layer.num_heads,
        "key_dim": layer.key_dim,
        "value_dim": layer.value_dim,
    }
    dropout = {"dropout": layer.dropout} if layer.dropout else {}
    return ModuleSpec(class_name=form, arguments=sizes | dropout | ({} if layer.use_bias else {"bias": False}))
