"""What ``inspect`` says: records to text and JSON, and the parts of it that other reports repeat."""

from collections.abc import Iterable
from typing import Any

from . import layouts
from .conversion import convert, ledger
from .datatypes import (
    AnyAttention,
    AttentionLayer,
    Checkpoint,
    LayerPlan,
    Lookalike,
    UnprojectedAttention,
    Variable,
)
from .document import Document, Table
from .errors import LayoutError, printable
from .layers import Findings, told_once

FORMATS = {
    "keras": ".keras",
    "keras-folder": "unzipped .keras",
    "sharded": "sharded weights",
    "h5": "legacy HDF5, whole model",
    "h5-weights": "legacy HDF5, weights only",
    "weights.h5": ".weights.h5",
    "preset": "KerasHub preset",
    "saved-model": "TensorFlow SavedModel",
    "tf-checkpoint": "TensorFlow checkpoint",
}
LEGEND = (
    "inputs: width of query, key and value. projected, drop-in, linear: what holds the layer in PyTorch, and the "
    "parameters that it adds. stock: nn.MultiheadAttention alone; q, out: with an nn.Linear before, behind it."
)


UNPROJECTED_LEGEND = "Without projections: the same weights in every layout, for a module of their own."


def inspection_as_text(checkpoint: Checkpoint, findings: Findings) -> Document:
    """What ``inspect`` says."""
    parts: list[str | Table] = [title(checkpoint), *unknown_line(checkpoint), ""]
    projected, unprojected = by_record(findings.layers)
    parts += [layer_table(projected), "", LEGEND] if projected else []
    parts += [""] if projected and unprojected else []
    parts += [unprojected_table(unprojected), "", UNPROJECTED_LEGEND] if unprojected else []
    parts += [f"Not converted: {lookalike_line(item)}" for item in findings.lookalikes]
    parts += [
        f"Not converted: layer '{printable(layer.name)}' {refusal.text(layer)}. {refusal.next_step}."
        for layer in findings.layers
        for refusal in layouts.refusals(layer, "mha")
    ]
    if not findings.layers and not any(item.blocking for item in findings.lookalikes):
        parts.append("No attention with weights of its own in this file.")
    parts.append(variables_line(checkpoint, findings))
    parts += [f"Note: {note}" for note in notes(checkpoint, findings)]
    parts += cost_lines(projected)
    return parts


def cost_lines(layers: Iterable[AttentionLayer]) -> list[str]:
    """What ``convert`` says of the default layout where what it adds outweighs the layers."""
    facts = [(layer.parameters, placement_facts(layer, "projected")) for layer in layers]
    held = [(parameters, fact["added_parameters"]) for parameters, fact in facts if fact is not None]
    return cost_note("mha", sum(parameters for parameters, _ in held), sum(added for _, added in held))


def cost_note(layout: str, parameters: int, added: int) -> list[str]:
    """The note, or nothing where fewer numbers are added than there are."""
    if added <= parameters:
        return []
    return [
        f"Note: layout {layout} adds {added:,} numbers to {parameters:,}; --layout linear adds none, and its modules "
        "are called in the same way."
    ]


def title(checkpoint: Checkpoint) -> str:
    """One line: the file, its format, who wrote it."""
    writer = f", Keras {printable(checkpoint.keras_version)}" if checkpoint.keras_version else ""
    backend = f" on {printable(checkpoint.backend)}" if checkpoint.backend else ""
    return f"{checkpoint.path}: {FORMATS.get(checkpoint.format, checkpoint.format)}{writer}{backend}"


UNKNOWN = {
    "keras_version": "the Keras version",
    "backend": "the backend",
    "config": "the layers' configuration (class, axes, masks, dropout)",
    "layer_names": "the model's own layer names",
}


def unknown(checkpoint: Checkpoint) -> list[str]:
    """What this file does not tell, as keys of ``UNKNOWN``."""
    told = {
        "keras_version": checkpoint.keras_version is not None,
        "backend": checkpoint.backend is not None,
        "config": checkpoint.has_config,
        "layer_names": checkpoint.has_layer_names,
    }
    return [fact for fact, known in told.items() if not known]


def unknown_line(checkpoint: Checkpoint) -> list[str]:
    """The same for people; nothing where the file tells all."""
    facts = [UNKNOWN[fact] for fact in unknown(checkpoint)]
    return [f"Not in this file: {', '.join(facts)}."] if facts else []


def layer_table(layers: Iterable[AttentionLayer]) -> Table:
    """One row per attention layer."""
    headings = (
        "layer",
        "kind",
        "num_heads",
        "key_dim",
        "value_dim",
        "inputs",
        "output",
        "bias",
        "dtype",
        "parameters",
        "projected",
        "drop-in",
        "linear",
    )
    return Table(headings, tuple(layer_row(layer) for layer in layers))


def by_record(layers: Iterable[AnyAttention]) -> tuple[list[AttentionLayer], list[UnprojectedAttention]]:
    """Layers with projections, and those without."""
    found = list(layers)
    return (
        [layer for layer in found if isinstance(layer, AttentionLayer)],
        [layer for layer in found if isinstance(layer, UnprojectedAttention)],
    )


def unprojected_table(layers: Iterable[UnprojectedAttention]) -> Table:
    """One row per layer without projections."""
    headings = ("layer", "kind", "score", "features", "dtype", "weights")
    return Table(headings, tuple(unprojected_row(layer) for layer in layers))


def unprojected_row(layer: UnprojectedAttention) -> tuple[str, ...]:
    """The facts as cells."""
    weights = ", ".join(f"{name} {variable.shape}" for name, variable in layer.arrays.items())
    features = "any" if layer.features is None else str(layer.features)
    return (printable(layer.name, 60), layer.kind, layer.score, features, layer.dtype, weights)


def layer_row(layer: AttentionLayer) -> tuple[str, ...]:
    """The facts as cells."""
    heads = str(layer.num_heads)
    if layer.num_key_value_heads != layer.num_heads:
        heads += f" ({layer.num_key_value_heads} key)"
    return (
        printable(layer.name, 60),
        layer.kind,
        heads,
        str(layer.key_dim),
        str(layer.value_dim),
        widths(layer),
        " × ".join(map(str, layer.output_shape)),
        "yes" if layer.use_bias else "no",
        layer.dtype if layer.storage == layer.dtype else f"{layer.storage} → {layer.dtype}",
        f"{layer.parameters:,}",
        placement_cell(layer, "projected"),
        placement_cell(layer, "drop-in"),
        linear_cell(layer),
    )


def placement_cell(layer: AttentionLayer, placement: str) -> str:
    """``stock +0``, ``q, out +1,200``, or why not."""
    facts = placement_facts(layer, placement)
    if facts is None:
        return "refused"
    if facts["fits"]:
        return "does not fit"
    around = ", ".join(facts["projections"]) or "stock"
    return f"{around} +{facts['added_parameters']:,}"


def widths(layer: AttentionLayer) -> str:
    """Widths of query, key and value; one number where all are equal."""
    three = (layer.query_features, layer.key_features, layer.value_features)
    return str(three[0]) if len(set(three)) == 1 else ", ".join(map(str, three))


def linear_cell(layer: AttentionLayer) -> str:
    """Layout ``linear`` adds nothing."""
    return "refused" if layouts.refusals(layer, "linear") else "+0"


def placement_facts(layer: AttentionLayer, placement: str) -> dict[str, Any] | None:
    """A placement and what it adds; None where the layout refuses the layer."""
    try:
        chosen = layouts.plan([layer], placement=placement, prefix="")
    except LayoutError:
        return None
    (item,) = chosen.layers
    entry = ledger(item, {tensor.key: tensor.shape for tensor in convert(chosen)})
    return {
        "module": item.module.class_name,
        "embed_dim": item.module.arguments["embed_dim"],
        "head_size": item.module.arguments["embed_dim"] // layer.num_heads,
        "projections": projections(item),
        "added_parameters": entry.repeated + entry.padding + entry.identity,
        "fits": item.fits,
    }


def projections(item: LayerPlan) -> list[str]:
    """Which ``nn.Linear`` stand around the stock module."""
    targets = {rule.target.split(".")[0] for rule in item.rules}
    return [short for short, full in (("q", "query_projection"), ("out", "output_projection")) if full in targets]


def lookalike_line(item: Lookalike) -> str:
    """Name, kind, reason and next step."""
    return f"'{printable(item.name)}' ({item.kind}): {item.reason}. {item.next_step}."


def notes(checkpoint: Checkpoint, findings: Findings) -> list[str]:
    """Of the file, and of single layers."""
    facts = told_once((layer.name, caution) for layer in findings.layers for caution in layer.cautions)
    return [*checkpoint.notes, *(f"{subject}: {fact}." for subject, fact in facts)]


HEADINGS = {  # of a file's variables, as they are told
    "attention": "of attention",
    "other": "of other layers",
    "optimizer": "of the optimizer",
    "metric": "of metrics",
    "counter": "of TensorFlow's counters",
    "copy": "stored a second time",
    "unlisted": "that no layer lists",
}


def sort_variables(checkpoint: Checkpoint, converted: Iterable[AnyAttention]) -> dict[str, list[Variable]]:
    """Every variable of the file under one heading."""
    paths = {variable.path for layer in converted for variable in layer.stored_variables}
    sorted_: dict[str, list[Variable]] = {heading: [] for heading in HEADINGS}
    for variable in checkpoint.variables:
        heading = "attention" if variable.path in paths else "other" if variable.role == "layer" else variable.role
        sorted_[heading].append(variable)
    return sorted_


def variable_counts(checkpoint: Checkpoint, converted: Iterable[AnyAttention]) -> dict[str, dict[str, int]]:
    """Number of variables and of parameters under each heading."""
    return {
        heading: {"count": len(variables), "parameters": sum(variable.size for variable in variables)}
        for heading, variables in sort_variables(checkpoint, converted).items()
    }


def variables_line(checkpoint: Checkpoint, findings: Findings) -> str:
    """What else is in the file."""
    counts = variable_counts(checkpoint, findings.layers)
    parts = [
        f"{counts[heading]['count']} {name} ({counts[heading]['parameters']:,} parameters)"
        for heading, name in HEADINGS.items()
        if counts[heading]["count"] or heading in ("attention", "other")
    ]
    return f"Variables: {', '.join(parts)}."


def inspection_as_json(checkpoint: Checkpoint, findings: Findings) -> dict[str, Any]:
    """The stable form of ``inspect --json``; documented in ``docs/cli.md``."""
    projected, unprojected = by_record(findings.layers)
    return {
        "source": checkpoint.path,
        "format": checkpoint.format,
        "keras_version": checkpoint.keras_version,
        "backend": checkpoint.backend,
        "unknown": unknown(checkpoint),
        "layers": [layer_as_json(layer) for layer in projected],
        "unprojected": [unprojected_as_json(layer) for layer in unprojected],
        "not_converted": [lookalike_as_json(item) for item in findings.lookalikes],
        "variables": variable_counts(checkpoint, findings.layers),
        "notes": notes(checkpoint, findings),
    }


def layer_as_json(layer: AttentionLayer) -> dict[str, Any]:
    """One layer."""
    facts = (
        "num_heads",
        "num_key_value_heads",
        "key_dim",
        "value_dim",
        "query_features",
        "key_features",
        "value_features",
        "output_features",
    )
    return {
        "name": layer.name,
        "kind": layer.kind,
        "class_name": layer.class_name,
        "path": layer.path,
        **{fact: getattr(layer, fact) for fact in facts},
        "output_shape": list(layer.output_shape),
        "use_bias": layer.use_bias,
        "use_gate": layer.gate is not None,
        "dtype": layer.dtype,
        "storage": layer.storage,
        "compute_dtype": layer.compute_dtype,
        "parameters": layer.parameters,
        "has_config": layer.has_config,
        "attention_axes": None if layer.attention_axes is None else list(layer.attention_axes),
        "sliding_window": layer.sliding_window,
        "dropout": layer.dropout,
        "scale": layer.scale,
        "call_options": list(layer.call_options),
        "placements": {name: placement_facts(layer, name) for name in layouts.PLACEMENTS},
        "refusals": [refusal.text(layer) for refusal in layouts.refusals(layer, "mha")],
        "cautions": list(layer.cautions),
        "assumed": layer.assumed,
        "more": layer.more,
    }


def unprojected_as_json(layer: UnprojectedAttention) -> dict[str, Any]:
    """One layer without projections."""
    facts = ("name", "kind", "class_name", "path", "score", "features", "use_scale", "dtype", "compute_dtype")
    return {
        **{fact: getattr(layer, fact) for fact in facts},
        "weights": {name: list(variable.shape) for name, variable in layer.arrays.items()},
        "parameters": layer.parameters,
        "dropout": layer.dropout,
        "call_options": list(layer.call_options),
        "cautions": list(layer.cautions),
        "assumed": layer.assumed,
    }


def lookalike_as_json(item: Lookalike) -> dict[str, Any]:
    """One thing that was passed over."""
    return {
        "name": item.name,
        "kind": item.kind,
        "reason": item.reason,
        "next_step": item.next_step,
        "blocking": item.blocking,
        "variables": [variable.path for variable in item.variables],
    }
