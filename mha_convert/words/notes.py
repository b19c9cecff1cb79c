"""What a user should know of a conversion, as sentences: of single layers, and of what the file does not show."""

from collections.abc import Iterator

from ..layers import told_once
from ..records.plan import LayerPlan, Plan
from ..records.source import Checkpoint


def layer_notes(chosen: Plan) -> tuple[str, ...]:
    """What a user should know of single layers."""
    facts = told_once((item.layer.name, fact) for item in chosen.layers for fact in layer_facts(item))
    return tuple(f"{subject[0].upper()}{subject[1:]}: {fact}." for subject, fact in facts)


def layer_facts(item: LayerPlan) -> Iterator[str]:
    """The same of one layer, as sentences without their end."""
    yield from item.layer.cautions
    if item.misfit:
        yield item.misfit
    if item.layer.call_options:
        yield f"the model calls it with {', '.join(item.layer.call_options)}. Give PyTorch the same mask"
    computes, stores = item.layer.compute_dtype, item.layer.dtype
    if computes and computes != stores:
        yield f"Keras stores {stores} and computes in {computes}; the proof is in float64"


def unseen(checkpoint: Checkpoint, chosen: Plan) -> tuple[str, ...]:
    """What this file cannot tell; of layers that a user described, their own cautions say what was taken."""
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
        "and a sliding window cannot be seen; MultiHeadAttention with one time axis and without dropout is taken.",
    )
