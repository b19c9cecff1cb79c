"""Moves Keras ``MultiHeadAttention`` weights to PyTorch, and proves that nothing changed on the way.

>>> import mha_convert
>>> report = mha_convert.convert_file("model.keras", "attention.safetensors")  # doctest: +SKIP
>>> attention = mha_convert.load_modules("attention.safetensors")["mha"]       # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch.record import SourceReport
    from .batch.run import convert_many
    from .conversion import convert
    from .errors import (
        LayerError,
        LayoutError,
        MhaConvertError,
        NoAttentionError,
        ReadError,
        VerificationError,
        WriteError,
    )
    from .graph import graph_of
    from .inspection import inspect_file, inspect_graph
    from .keys.renaming import read_renames, rename
    from .layers import find_layers, survey
    from .layers.descriptions import read_attention
    from .layouts import plan
    from .live import from_keras_layer
    from .models import convert_model, load_model
    from .modules import KerasMultiheadAttention, ProjectedMultiheadAttention, to_attn_mask
    from .options import Options
    from .pipeline import convert_file, explain_file, match_file, plan_file, verify_file
    from .readers import read
    from .records.graph import Call, Constant, Graph, GraphLayer, Value
    from .records.layer import AttentionLayer, Findings, NotConverted, PlainLayer, Projection, UnprojectedAttention
    from .records.model import ModelReport
    from .records.plan import Alignment, Plan, TargetTensor
    from .records.proof import Comparison, Conversion, Ledger
    from .records.said import Explanation, GraphInspection, Inspection, KeyList
    from .records.source import Checkpoint, Variable
    from .targets import open_target, write
    from .targets.loading import load_modules
    from .targets.metadata import describe_plan
    from .verification import verify


# Where each public name lives; loaded when it is first asked for, so that `import mha_convert` costs nothing.
_HOMES = {
    "Alignment": "records.plan",
    "AttentionLayer": "records.layer",
    "Checkpoint": "records.source",
    "Comparison": "records.proof",
    "KerasMultiheadAttention": "modules",
    "PlainLayer": "records.layer",
    "Findings": "records.layer",
    "KeyList": "records.said",
    "Explanation": "records.said",
    "Call": "records.graph",
    "Constant": "records.graph",
    "Graph": "records.graph",
    "GraphInspection": "records.said",
    "GraphLayer": "records.graph",
    "Value": "records.graph",
    "Inspection": "records.said",
    "LayerError": "errors",
    "LayoutError": "errors",
    "Ledger": "records.proof",
    "NotConverted": "records.layer",
    "MhaConvertError": "errors",
    "NoAttentionError": "errors",
    "Options": "options",
    "Plan": "records.plan",
    "Projection": "records.layer",
    "ProjectedMultiheadAttention": "modules",
    "ReadError": "errors",
    "Conversion": "records.proof",
    "SourceReport": "batch.record",
    "TargetTensor": "records.plan",
    "UnprojectedAttention": "records.layer",
    "Variable": "records.source",
    "VerificationError": "errors",
    "WriteError": "errors",
    "convert": "conversion",
    "convert_file": "pipeline",
    "convert_many": "batch.run",
    "convert_model": "models",
    "describe_plan": "targets.metadata",
    "explain_file": "pipeline",
    "find_layers": "layers",
    "from_keras_layer": "live",
    "graph_of": "graph",
    "inspect_file": "inspection",
    "inspect_graph": "inspection",
    "load_model": "models",
    "load_modules": "targets.loading",
    "ModelReport": "records.model",
    "match_file": "pipeline",
    "open_target": "targets",
    "plan": "layouts",
    "plan_file": "pipeline",
    "read": "readers",
    "read_attention": "layers.descriptions",
    "read_renames": "keys.renaming",
    "rename": "keys.renaming",
    "survey": "layers",
    "to_attn_mask": "modules",
    "verify": "verification",
    "verify_file": "pipeline",
    "write": "targets",
}

_SHOW_NOTHING = ("errors", "modules", "options")  # homes of what returns no record

__all__ = [
    "Alignment",
    "AttentionLayer",
    "Call",
    "Checkpoint",
    "Comparison",
    "Constant",
    "Conversion",
    "Explanation",
    "Findings",
    "Graph",
    "GraphInspection",
    "GraphLayer",
    "Inspection",
    "KerasMultiheadAttention",
    "KeyList",
    "LayerError",
    "LayoutError",
    "Ledger",
    "MhaConvertError",
    "ModelReport",
    "NoAttentionError",
    "NotConverted",
    "Options",
    "PlainLayer",
    "Plan",
    "ProjectedMultiheadAttention",
    "Projection",
    "ReadError",
    "SourceReport",
    "TargetTensor",
    "UnprojectedAttention",
    "Value",
    "Variable",
    "VerificationError",
    "WriteError",
    "convert",
    "convert_file",
    "convert_many",
    "convert_model",
    "describe_plan",
    "explain_file",
    "find_layers",
    "from_keras_layer",
    "graph_of",
    "inspect_file",
    "inspect_graph",
    "load_model",
    "load_modules",
    "match_file",
    "open_target",
    "plan",
    "plan_file",
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
    if _HOMES[name] not in _SHOW_NOTHING:
        import_module(".words.faces", __name__)  # from now on records show themselves
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    """The public names."""
    return [*__all__, "__version__"]
