"""How each record shows itself: a row for each in ``FACES``. Loading this module lets the records do it."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import printable, shortened
from ..records import graph as graphs
from ..records import layer as layers
from ..records import model as models
from ..records import plan as plans
from ..records import proof, said, source
from ..records.face import Face
from . import conversion, explanation, graph, inspection, model
from .documents import document
from .kinds import OF_KIND, SECTIONS, by_section
from .table import Document, Table, as_plain_text, count

NAME = 80  # characters of a name in a repr


@dataclass(frozen=True, slots=True)
class Shown:
    """One record in words.

    Args:
        line: what its ``repr`` says after the name of its class.
        data: plain data.
        text: what people read; None for that line, without its brackets.
        schema: of a record that is a whole document.
    """

    line: Callable[[Any], str]
    data: Callable[[Any], dict[str, Any]]
    text: Callable[[Any], Document] | None = None
    schema: str | None = None


def line(record: Any) -> str:
    """The ``repr``: ``<Conversion 'x.keras' → 'x.safetensors': 2 layers, proven with numpy>``."""
    kind = record.kind if isinstance(record, LAYERS) else type(record).__name__
    return printable(f"<{kind}{FACES[type(record)].line(record)}>")


def data(record: Any) -> dict[str, Any]:
    """Plain data; of a whole document with its schema and version."""
    face = FACES[type(record)]
    return face.data(record) if face.schema is None else document(face.schema, face.data(record))


def parts(record: Any) -> Document:
    """Lines and tables for people."""
    face = FACES[type(record)]
    return [line(record)[1:-1]] if face.text is None else face.text(record)


def text(record: Any) -> str:
    """The same as plain text."""
    return as_plain_text(parts(record))


def quoted(name: object) -> str:
    """A name from a file, or a path."""
    return f"'{shortened(name, NAME)}'"


def layer_line(layer: layers.Layer) -> str:
    """Name, sizes, dtype and how many numbers."""
    sizes = "".join(f"{name}={value!r}, " for name, value in layer.sizes.items())
    return f" {quoted(layer.name)}: {sizes}{layer.dtype}, {count(layer.parameters, 'parameter')}"


LAYER = Shown(
    line=layer_line,
    data=lambda layer: OF_KIND[layer.kind].as_json(layer),
    text=lambda layer: OF_KIND[layer.kind].table([layer]),
)
LAYERS = (layers.AttentionLayer, layers.UnprojectedAttention, layers.PlainLayer)


def not_converted_line(item: layers.NotConverted) -> str:
    """Name, kind and reason."""
    return f" {quoted(item.name)} ({shortened(item.kind)}): {shortened(item.reason)}"


def findings_line(findings: layers.Findings) -> str:
    """How many of each."""
    passed = len(findings.not_converted) + len(findings.unfit)
    others = f", {count(len(findings.companions), 'other layer')}" if findings.companions else ""
    return f": {count(len(findings.layers), 'attention layer')}{others}, {passed} not converted"


def findings_data(findings: layers.Findings) -> dict[str, Any]:
    """The lists of ``inspect --json``."""
    sections = by_section(inspection.everything(findings))
    return {
        **{name: [layer.to_dict() for layer in sections[name]] for name in SECTIONS},
        "not_converted": [item.to_dict() for item in (*findings.not_converted, *findings.unfit)],
    }


def projection_data(projection: layers.Projection) -> dict[str, Any]:
    """Kernel and bias."""
    return {"kernel": projection.kernel.to_dict(), "bias": projection.bias and projection.bias.to_dict()}


# What was read.


def variable_line(variable: source.Variable) -> str:
    """Path, shape and dtype."""
    return f" {quoted(variable.path)}: {variable.shape}, {variable.storage or variable.dtype}"


def variable_data(variable: source.Variable) -> dict[str, Any]:
    """All but the numbers."""
    return {
        **{fact: getattr(variable, fact) for fact in ("path", "dtype", "role", "storage")},
        "shape": list(variable.shape),
        "made_of": [part.path for part in variable.made_of],
    }


def checkpoint_line(checkpoint: source.Checkpoint) -> str:
    """Path, format, writer and how many arrays."""
    writer = f", Keras {shortened(checkpoint.keras_version, NAME)}" if checkpoint.keras_version else ""
    arrays = count(len(checkpoint.variables), "array")
    return f" {quoted(checkpoint.path)}: {checkpoint.format_title or checkpoint.format}{writer}, {arrays}"


def checkpoint_data(checkpoint: source.Checkpoint) -> dict[str, Any]:
    """What is known of the file, and its arrays."""
    return {
        "source": checkpoint.path,
        **{fact: getattr(checkpoint, fact) for fact in ("format", "keras_version", "backend")},
        "unknown": inspection.unknown(checkpoint),
        "variables": [variable.to_dict() for variable in checkpoint.variables],
        "notes": list(checkpoint.notes),
    }


def checkpoint_text(checkpoint: source.Checkpoint) -> Document:
    """The file, and a row for each of its arrays."""
    rows = tuple((v.path, str(v.shape), v.dtype, v.role) for v in checkpoint.variables)
    return [
        inspection.title(checkpoint),
        *inspection.unknown_line(checkpoint),
        "",
        *([Table(("array", "shape", "dtype", "role"), rows)] if rows else []),
        *(f"Note: {note}" for note in checkpoint.notes),
    ]


# Where it goes.


def layer_plan_line(item: plans.LayerPlan) -> str:
    """The layer and the module that takes it."""
    keys = shortened(f"{conversion.common_prefix(item)}*", NAME)
    return f" {quoted(item.layer.name)} → {item.module.class_name}, {count(len(item.rules), 'key')} {keys}"


def plan_line(plan: plans.Plan) -> str:
    """Layers, layout and dtype."""
    dtype = f", {plan.dtype}" if plan.dtype else ""
    return f": {count(len(plan.layers), 'layer')} in layout {plan.layout}{dtype}"


def plan_data(plan: plans.Plan) -> dict[str, Any]:
    """The layers with their keys."""
    return {"layout": plan.layout, "dtype": plan.dtype, "layers": [item.to_dict() for item in plan.layers]}


def keys_table(items: Iterable[plans.LayerPlan], dtype: str | None = None) -> Document:
    """A row for each tensor."""
    return [conversion.key_table(plans.Plan(layout="mha", dtype=dtype, layers=tuple(items)))]


def tensor_data(tensor: plans.TargetTensor) -> dict[str, Any]:
    """All but the numbers."""
    return {"key": tensor.key, "shape": list(tensor.shape), "dtype": tensor.dtype}


def key_list_line(keys: said.KeyList) -> str:
    """The source, and how many keys."""
    tensors = sum(len(item.rules) for item in keys.plan.layers)
    return f" of {quoted(keys.source.path)}: {count(tensors, 'key')} in layout {keys.plan.layout}"


def alignment_line(alignment: plans.Alignment) -> str:
    """Both sides, and what is left on each."""
    path = alignment.source and alignment.source.path
    left = f"{count(len(alignment.left_layers), 'layer')} and {count(len(alignment.left_places), 'place')} left"
    return f" {quoted(path)} → {quoted(alignment.like)}: {count(len(alignment.pairs), 'pair')}, {left}"


def pair_line(pair: plans.Pair) -> str:
    """The layer and its place."""
    return f" {quoted(pair.layer.name)} → {quoted(pair.place.prefix)}, by {conversion.evidence(pair)}"


# Graphs.


def graph_line(found: graphs.Graph) -> str:
    """The model's name, and how many layers are called."""
    return f" {quoted(found.name)}: {count(len(found.layers), 'layer')}, {count(len(found.calls), 'call')}"


def call_line(call: graphs.Call) -> str:
    """The layer, and how many tensors it takes."""
    return f" {call.number} of {quoted(call.layer)}: {count(len(call.values), 'tensor')}"


def constant_line(constant: graphs.Constant) -> str:
    """Shape and dtype."""
    return f" {constant.array.shape}, {constant.dtype or 'no dtype told'}"


# What was shown.


def ledger_line(ledger: proof.Ledger) -> str:
    """Numbers in and out."""
    return f": {ledger.source:,} in, {ledger.target:,} out"


def comparison_line(comparison: proof.Comparison) -> str:
    """What was compared, and how near it came."""
    verdict = "" if comparison.passed else ", FAILED"
    return (
        f" {quoted(comparison.layer)}, {comparison.what} with {comparison.case}, {comparison.weights} against "
        f"{comparison.reference}: {comparison.relative:.1e} of at most {comparison.bound:.1e}{verdict}"
    )


def checked_line(tensor: proof.CheckedTensor) -> str:
    """The tensor, and whether it is rounded."""
    how = "rounded once" if tensor.rounded else "nothing rounded"
    return f" {quoted(tensor.key)}: {tensor.dtype}, every bit as converted, {how}"


def conversion_line(report: proof.Conversion) -> str:
    """Both files, and the verdict."""
    if report.reference is None:
        verdict = "NOT PROVEN"
    else:
        verdict = f"{'proven' if report.proven else 'NOT PROVEN'} with {report.reference}"
    layers_ = count(len(report.plan.layers), "layer")
    return f" {quoted(report.source.path)} → {quoted(report.target)}: {layers_}, {verdict}"


FACES: Mapping[type, Shown] = {
    # whole documents
    said.Inspection: Shown(
        line=lambda found: f" of {quoted(found.source.path)}{findings_line(found.findings)}",
        data=inspection.inspection_as_json,
        text=inspection.inspection_as_text,
        schema="inspection",
    ),
    said.GraphInspection: Shown(
        line=lambda found: f" of {quoted(found.source.path)}: {count(len(found.graph.calls), 'call')}",
        data=graph.inspection_as_json,
        text=graph.inspection_as_text,
        schema="graph",
    ),
    said.Explanation: Shown(
        line=lambda explained: f" of {quoted(explained.source.path)}: {count(len(explained.plans), 'layer')}",
        data=explanation.explanation_as_json,
        text=explanation.explanation_as_text,
        schema="explanation",
    ),
    said.KeyList: Shown(line=key_list_line, data=conversion.keys_as_json, text=conversion.keys_as_text, schema="keys"),
    plans.Alignment: Shown(
        line=alignment_line,
        data=conversion.alignment_as_json,
        text=conversion.alignment_as_text,
        schema="alignment",
    ),
    proof.Conversion: Shown(
        line=conversion_line,
        data=conversion.report_as_json,
        text=conversion.report_as_text,
        schema="conversion",
    ),
    models.ModelReport: Shown(
        line=lambda report: f" {quoted(report.source.path)} → {quoted(report.folder)}: class {report.plan.model.name}",
        data=model.model_as_json,
        text=model.model_as_text,
        schema="model",
    ),
    # their parts
    **dict.fromkeys(LAYERS, LAYER),
    layers.Projection: Shown(line=lambda item: f"{variable_line(item.kernel)}", data=projection_data),
    layers.NotConverted: Shown(
        line=not_converted_line,
        data=inspection.lookalike_as_json,
        text=lambda item: [f"Not converted: {inspection.lookalike_line(item)}"],
    ),
    layers.Findings: Shown(
        line=findings_line,
        data=findings_data,
        text=inspection.findings_as_text,
    ),
    source.Variable: Shown(line=variable_line, data=variable_data),
    source.Checkpoint: Shown(line=checkpoint_line, data=checkpoint_data, text=checkpoint_text),
    graphs.Graph: Shown(line=graph_line, data=graph.graph_as_json, text=graph.graph_as_text),
    graphs.GraphLayer: Shown(
        line=lambda layer: f" {quoted(layer.name)}: {shortened(graph.class_of(layer), NAME)}", data=graph.layer_as_json
    ),
    graphs.Call: Shown(line=call_line, data=graph.call_as_json),
    graphs.Value: Shown(
        line=lambda value: f" {value.output} of call {value.call} of {quoted(value.layer)}", data=graph.value_as_json
    ),
    graphs.Constant: Shown(line=constant_line, data=graph.constant_as_json),
    plans.LayerPlan: Shown(
        line=layer_plan_line, data=conversion.layer_plan_as_json, text=lambda item: keys_table([item])
    ),
    plans.Plan: Shown(line=plan_line, data=plan_data, text=lambda plan: keys_table(plan.layers, plan.dtype)),
    plans.TargetTensor: Shown(
        line=lambda tensor: f" {quoted(tensor.key)}: {tensor.shape}, {tensor.dtype}", data=tensor_data
    ),
    plans.Pair: Shown(line=pair_line, data=conversion.pair_as_json),
    proof.Ledger: Shown(line=ledger_line, data=asdict),
    proof.Comparison: Shown(line=comparison_line, data=conversion.comparison_as_json),
    proof.CheckedTensor: Shown(line=checked_line, data=asdict),
}
Face.words = sys.modules[__name__]
