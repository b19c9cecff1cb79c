"""What a user should know of a conversion, as sentences: of single layers, and of what the file does not show."""

from collections.abc import Iterator

from ..layers import told_once
from ..records.plan import LayerPlan, Plan
from ..records.source import Checkpoint
from .inspection import sentence


def layer_notes(chosen: Plan) -> tuple[str, ...]:
    """What a user should know of single layers."""
    facts = told_once((item.layer.name, fact) for item in chosen.layers for fact in layer_facts(item))
    return tuple(sentence(subject, fact) for subject, fact in facts)


def layer_facts(item: LayerPlan) -> Iterator[str]:
    """What a user should know of one layer, as sentences without a full stop."""
    yield from item.layer.cautions
    if item.misfit:
        yield item.misfit
    if item.layer.call_options:
        yield f"the model calls it with {', '.join(item.layer.call_options)}. Pass PyTorch the same mask"
    computes, stores = item.layer.compute_dtype, item.layer.dtype
    if computes and computes != stores:
        yield f"Keras stores {stores} and computes in {computes}; the proof is in float64"


def unseen(checkpoint: Checkpoint, chosen: Plan) -> tuple[str, ...]:
    """What this file does not show; of layers that a user described, their own cautions say what was assumed."""
    blind = [item.layer for item in chosen.layers if not item.layer.has_config and item.layer.row is None]
    if not blind:
        return ()
    which = (
        "this file has no configuration"
        if not checkpoint.has_config
        else "inside custom layers the file has no configuration"
    )
    return (
        f"{len(blind)} of {len(chosen.layers)} layers: {which}, so the layer's class, dropout, attention axes, masks "
        "and a sliding window cannot be seen; MultiHeadAttention with one time axis and without dropout is assumed.",
    )
