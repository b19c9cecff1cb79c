"""Moves Keras ``MultiHeadAttention`` weights to PyTorch, and proves that nothing changed on the way.

    >>> import mha_convert
    >>> report = mha_convert.convert_file("model.keras", "attention.safetensors")  # doctest: +SKIP
    >>> attention = mha_convert.load_modules("attention.safetensors")["mha"]       # doctest: +SKIP
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .convert import convert
    from .datatypes import (
        AttentionLayer,
        Checkpoint,
        Comparison,
        Ledger,
        Lookalike,
        Plan,
        Report,
        Tensor,
        Variable,
    )
    from .errors import LayerError, LayoutError, MhaConvertError, ReadError, VerificationError, WriteError
    from .layers import find_layers
    from .layouts import plan
    from .loading import load_modules
    from .modules import KerasMultiheadAttention, ProjectedMultiheadAttention, to_attn_mask
    from .pipeline import convert_file, from_keras_layer, verify_file
    from .readers import read
    from .verify import verify
    from .writers import open_target, write

__version__ = version("mha-convert")

# Where each public name lives; loaded when it is first asked for, so that `import mha_convert` costs nothing.
_HOMES = {
    "AttentionLayer": "datatypes",
    "Checkpoint": "datatypes",
    "Comparison": "datatypes",
    "KerasMultiheadAttention": "modules",
    "LayerError": "errors",
    "LayoutError": "errors",
    "Ledger": "datatypes",
    "Lookalike": "datatypes",
    "MhaConvertError": "errors",
    "Plan": "datatypes",
    "ProjectedMultiheadAttention": "modules",
    "ReadError": "errors",
    "Report": "datatypes",
    "Tensor": "datatypes",
    "Variable": "datatypes",
    "VerificationError": "errors",
    "WriteError": "errors",
    "convert": "convert",
    "convert_file": "pipeline",
    "find_layers": "layers",
    "from_keras_layer": "pipeline",
    "load_modules": "loading",
    "open_target": "writers",
    "plan": "layouts",
    "read": "readers",
    "to_attn_mask": "modules",
    "verify": "verify",
    "verify_file": "pipeline",
    "write": "writers",
}

__all__ = [
    "AttentionLayer",
    "Checkpoint",
    "Comparison",
    "KerasMultiheadAttention",
    "LayerError",
    "LayoutError",
    "Ledger",
    "Lookalike",
    "MhaConvertError",
    "Plan",
    "ProjectedMultiheadAttention",
    "ReadError",
    "Report",
    "Tensor",
    "Variable",
    "VerificationError",
    "WriteError",
    "convert",
    "convert_file",
    "find_layers",
    "from_keras_layer",
    "load_modules",
    "open_target",
    "plan",
    "read",
    "to_attn_mask",
    "verify",
    "verify_file",
    "write",
]
