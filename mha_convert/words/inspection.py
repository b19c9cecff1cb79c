"""What ``inspect`` says: records to text and JSON, and the parts of it that other reports repeat."""

from collections.abc import Iterable
from typing import Any

from .. import layouts
from ..layers import told_once
from ..records.layer import Findings, Layer, NotConverted
from ..records.said import Inspection
from ..records.source import Checkpoint, Variable
from .kinds import OF_KIND, SECTIONS, by_section
from .table import Document, Table


def inspection_as_text(inspection: Inspection) -> Document:
    """What ``inspect`` says."""
    checkpoint, findings = inspection.source, inspection.findings
    parts: list[str | Table] = [title(checkpoint), *unknown_line(checkpoint), "", *findings_as_text(findings)]
    parts.append(variables_line(checkpoint, findings))
    parts += [f"Note: {note}" for note in notes(checkpoint, findings)]
    parts += cost_lines(findings.layers)
    return parts


def findings_as_text(findings: Findings) -> Document:
    """The tables of the layers, and a line for each that is not converted."""
    parts: list[str | Table] = []
    for number, layers in enumerate(filter(None, by_section(everything(findings)).values())):
        parts += [""] if number else []
        parts += OF_KIND[layers[0].kind].table(layers)
    parts += [f"Not converted: {lookalike_line(item)}" for item in (*findings.not_converted, *findings.unfit)]
    parts += [
        f"Not converted: layer '{layer.name}' {refusal.text(layer)}. {refusal.next_step}."
        for layer in findings.layers
        for refusal in layouts.refusals(layer, "mha")
    ]
    if not findings.layers and not any(item.blocking for item in findings.not_converted):
        parts.append("No attention with weights of its own in this file.")
    return parts


def everything(findings: Findings) -> tuple[Layer, ...]:
    """Every layer that can be converted."""
    return (*findings.layers, *findings.companions)


def cost_lines(layers: Iterable[Layer]) -> list[str]:
    """What ``convert`` says of the default layout where what it adds outweighs the layers."""
    facts = [(layer.parameters, OF_KIND[layer.kind].added(layer)) for layer in layers]
    held = [(parameters, added) for parameters, added in facts if added is not None]
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
    writer = f", Keras {checkpoint.keras_version}" if checkpoint.keras_version else ""
    backend = f" on {checkpoint.backend}" if checkpoint.backend else ""
    return f"{checkpoint.path}: {checkpoint.format_title or checkpoint.format}{writer}{backend}"


UNKNOWN = {
    "keras_version": "the Keras version",
    "backend": "the backend",
    "config": "the layers' configuration (class, axes, masks, dropout)",
    "layer_names": "the model's own layer names",
}


def unknown(checkpoint: Checkpoint) -> list[str]:
    """What this file does not say, as keys of ``UNKNOWN``."""
    told = {
        "keras_version": checkpoint.keras_version is not None,
        "backend": checkpoint.backend is not None,
        "config": checkpoint.has_config,
        "layer_names": checkpoint.has_layer_names,
    }
    return [fact for fact, known in told.items() if not known]


def unknown_line(checkpoint: Checkpoint) -> list[str]:
    """A line with what the file does not say; none where it says all."""
    facts = [UNKNOWN[fact] for fact in unknown(checkpoint)]
    return [f"Not in this file: {', '.join(facts)}."] if facts else []


def lookalike_line(item: NotConverted) -> str:
    """Name, kind, reason and next step."""
    return f"'{item.name}' ({item.kind}): {item.reason}. {item.next_step}."


def notes(checkpoint: Checkpoint, findings: Findings) -> list[str]:
    """Of the file, and of single layers."""
    facts = told_once((layer.name, caution) for layer in findings.layers for caution in layer.cautions)
    return [*checkpoint.notes, *findings.notes, *(sentence(subject, fact) for subject, fact in facts)]


def sentence(subject: str, fact: str) -> str:
    """A fact of one layer or several as a note."""
    return f"{subject[0].upper()}{subject[1:]}: {fact}."


HEADINGS = {  # of a file's variables, as they are told
    "attention": "of attention",
    "other": "of other layers",
    "optimizer": "of the optimizer",
    "metric": "of metrics",
    "counter": "of TensorFlow's counters",
    "copy": "stored a second time",
    "unlisted": "that no layer lists",
}


def sort_variables(checkpoint: Checkpoint, converted: Iterable[Layer]) -> dict[str, list[Variable]]:
    """Every variable of the file under one heading."""
    paths = {variable.path for layer in converted for variable in layer.stored_variables}
    sorted_: dict[str, list[Variable]] = {heading: [] for heading in HEADINGS}
    for variable in checkpoint.variables:
        heading = "attention" if variable.path in paths else "other" if variable.role == "layer" else variable.role
        sorted_[heading].append(variable)
    return sorted_


def variable_counts(checkpoint: Checkpoint, converted: Iterable[Layer]) -> dict[str, dict[str, int]]:
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


def inspection_as_json(inspection: Inspection) -> dict[str, Any]:
    """The stable form of ``inspect --json``; documented in ``docs/cli.md``."""
    checkpoint, findings = inspection.source, inspection.findings
    sections = by_section(everything(findings))
    return {
        "source": checkpoint.path,
        "format": checkpoint.format,
        "keras_version": checkpoint.keras_version,
        "backend": checkpoint.backend,
        "unknown": unknown(checkpoint),
        **{name: [OF_KIND[layer.kind].as_json(layer) for layer in sections[name]] for name in SECTIONS},
        "not_converted": [lookalike_as_json(item) for item in (*findings.not_converted, *findings.unfit)],
        "variables": variable_counts(checkpoint, findings.layers),
        "notes": notes(checkpoint, findings),
    }


def lookalike_as_json(item: NotConverted) -> dict[str, Any]:
    """One thing that was passed over."""
    return {
        "name": item.name,
        "kind": item.kind,
        "reason": item.reason,
        "next_step": item.next_step,
        "blocking": item.blocking,
        "variables": [variable.path for variable in item.variables],
    }
