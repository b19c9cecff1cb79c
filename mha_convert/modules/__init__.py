"""The ``nn.Module``s that converted layers load into.

This folder needs torch alone, and nothing else of this package: ``mha-convert convert --module FILE.py`` copies
classes out of it. All are called as ``torch.nn.MultiheadAttention(..., batch_first=True)`` is, and return what it
returns.
"""

from .attention import (
    FusedMultiheadAttention,
    KerasMultiheadAttention,
    NamedMultiheadAttention,
    ProjectedMultiheadAttention,
)
from .masks import to_attn_mask
from .unprojected import AdditiveAttention, DotProductAttention

# What a target can name, and the masks for it.
__all__ = [
    "AdditiveAttention",
    "DotProductAttention",
    "FusedMultiheadAttention",
    "KerasMultiheadAttention",
    "NamedMultiheadAttention",
    "ProjectedMultiheadAttention",
    "to_attn_mask",
]
