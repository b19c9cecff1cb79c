"""Moves Keras ``MultiHeadAttention`` weights to PyTorch, and proves that nothing changed on the way.

>>> import mha_convert
>>> report = mha_convert.convert_file("model.keras", "attention.safetensors")  # doctest: +SKIP
>>> attention = mha_convert.load_modules("attention.safetensors")["mha"]       # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .attention_rows import read_attention
    from .batch.record import SourceReport
    from .batch.run import convert_many
    from .conversion import convert
    from .datatypes import (
        Alignment,
        AttentionLayer,
        Checkpoint,
        Comparison,
        Ledger,
        Lookalike,
        Plan,
        Projection,
        Report,
        Tensor,
        UnprojectedAttention,
        Variable,
    )
    from .description import describe_plan
    from .errors import (
        LayerError,
        LayoutError,
        MhaConvertError,
        NoAttentionError,
        ReadError,
        VerificationError,
        WriteError,
    )
    from .layers import find_layers, survey
    from .layouts import plan
    from .loading import load_modules
    from .modules import KerasMultiheadAttention, ProjectedMultiheadAttention, to_attn_mask
    from .pipeline import align_file, convert_file, from_keras_layer, verify_file
    from .readers import read
    from .renaming import read_renames, rename
    from .verification import verify
    from .writers import open_target, write


# Where each public name lives; loaded when it is first asked for, so that `import mha_convert` costs nothing.
_HOMES = {
    "Alignment": "datatypes",
    "AttentionLayer": "datatypes",
    "Checkpoint": "datatypes",
    "Comparison": "datatypes",
    "KerasMultiheadAttention": "modules",
    "LayerError": "errors",
    "LayoutError": "errors",
    "Ledger": "datatypes",
    "Lookalike": "datatypes",
    "MhaConvertError": "errors",
    "NoAttentionError": "errors",
    "Plan": "datatypes",
    "Projection": "datatypes",
    "ProjectedMultiheadAttention": "modules",
    "ReadError": "errors",
    "Report": "datatypes",
    "SourceReport": "batch.record",
    "Tensor": "datatypes",
    "UnprojectedAttention": "datatypes",
    "Variable": "datatypes",
    "VerificationError": "errors",
    "WriteError": "errors",
    "align_file": "pipeline",
    "convert": "conversion",
    "convert_file": "pipeline",
    "convert_many": "batch.run",
    "describe_plan": "description",
    "find_layers": "layers",
    "from_keras_layer": "pipeline",
    "load_modules": "loading",
    "open_target": "writers",
    "plan": "layouts",
    "read": "readers",
    "read_attention": "attention_rows",
    "read_renames": "renaming",
    "rename": "renaming",
    "survey": "layers",
    "to_attn_mask": "modules",
    "verify": "verification",
    "verify_file": "pipeline",
    "write": "writers",
}

__all__ = [
    "Alignment",
    "AttentionLayer",
    "Checkpoint",
    "Comparison",
    "KerasMultiheadAttention",
    "LayerError",
    "LayoutError",
    "Ledger",
    "Lookalike",
    "MhaConvertError",
    "NoAttentionError",
    "Plan",
    "ProjectedMultiheadAttention",
    "Projection",
    "ReadError",
    "Report",
    "SourceReport",
    "Tensor",
    "UnprojectedAttention",
    "Variable",
    "VerificationError",
    "WriteError",
    "align_file",
    "convert",
    "convert_file",
    "convert_many",
    "describe_plan",
    "find_layers",
    "from_keras_layer",
    "load_modules",
    "open_target",
    "plan",
    "read",
    "read_attention",
    "read_renames",
    "rename",
    "survey",
    "to_attn_mask",
    "verify",
    "verify_file",
    "write",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home (PEP 562); the version is looked up when it is asked for."""
    if name == "__version__":
        from importlib.metadata import version

        return version("mha-convert")
    if name not in _HOMES:
        raise AttributeError(f"module 'mha_convert' has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    """The public names."""
    return [*__all__, "__version__"]
