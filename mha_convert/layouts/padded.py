"""Layout ``padded``: ``nn.MultiheadAttention`` alone, its heads padded with zeros to the query's width.

Where the width is not ``num_heads`` heads of Keras' sizes or more, the layer is laid out as ``mha`` has it.
"""

from ..records.layer import AttentionLayer
from ..records.plan import LayerPlan
from . import mha
from .mha import REFUSALS

__all__ = ["NAME", "REFUSALS", "lay_out"]

NAME = "padded"


def lay_out(layer: AttentionLayer, prefix: str) -> LayerPlan:
    """The layer's rules and module."""
    misfit = mha.misfit(layer)
    if misfit:
        return mha.laid_out(layer, prefix, mha.place(layer), misfit=f"{misfit}; laid out as mha instead")
    return mha.laid_out(layer, prefix, mha.place(layer, mha.width_of_heads(layer)), layout=NAME)
