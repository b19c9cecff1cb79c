"""What ``convert``, ``verify`` and their kin say: a ``Conversion``, an alignment or keys to text and JSON."""

from dataclasses import asdict
from itertools import takewhile
from typing import Any

from ..conversion import describe, source_variable
from ..errors import listed, shortened
from ..files.shell import command
from ..records.plan import Alignment, LayerPlan, Pair, Piece, Plan, Rule
from ..records.proof import Comparison, Conversion, Ledger
from ..records.said import KeyList
from .inspection import (
    HEADINGS,
    cost_note,
    lookalike_as_json,
    lookalike_line,
    sort_variables,
    title,
    variable_counts,
)
from .kinds import OF_KIND
from .table import CommandLine, Document, Table


def report_as_text(report: Conversion) -> Document:
    """What ``convert`` and ``verify`` say."""
    parts: list[str | Table] = [f"{title(report.source)} → {report.target}", "", plan_table(report), ""]
    parts += proof_lines(report)
    parts.append(ledger_line(report))
    parts.append(rest_line(report))
    parts += [f"Not converted: {lookalike_line(item)}" for item in report.not_converted]
    parts += [f"Note: {note}" for note in report.notes]
    parts += cost_lines(report)
    more = command("mha-convert explain", report.source.path)
    parts.append(CommandLine(f"Load: mha_convert.load_modules({report.target!r}). More: {more}"))
    return parts


def plan_table(report: Conversion) -> Table:
    """One row per converted layer."""
    headings = ("layer", "module", "keys", "parameters", "added")
    return Table(headings, tuple(plan_row(item, report.ledgers[item.layer.name]) for item in report.plan.layers))


def plan_row(item: LayerPlan, entry: Ledger) -> tuple[str, ...]:
    """A layer, the module that takes it, and what that adds."""
    return (
        shortened(item.layer.name, 60),
        OF_KIND[item.layer.kind].module_call(item),
        shortened(f"{common_prefix(item)}*", 70),
        f"{entry.source:,}",
        f"{entry.repeated + entry.padding + entry.identity:,}",
    )


def common_prefix(item: LayerPlan) -> str:
    """What is before all keys of a layer; of renamed ones, the parts that they have in common."""
    if not item.renamed:
        return item.prefix
    levels = zip(*(key.split(".") for key in item.renamed.values()), strict=False)
    return "".join(f"{level[0]}." for level in takewhile(lambda level: len(set(level)) == 1, levels))


SCORES = "scores"  # of attention alone


def proof_lines(report: Conversion) -> list[str]:
    """The two statements of the proof."""
    if report.reference is None:
        return ["NOT PROVEN: --reference none was given. Check it with `mha-convert verify`."]
    compared = "outputs and per-head scores" if any(c.what == SCORES for c in report.comparisons) else "outputs"
    lines = [f"Proven{as_described(report)}, {compared}:"]
    for reference in dict.fromkeys(c.reference for c in report.comparisons):
        mine = [c for c in report.comparisons if c.reference == reference and c.weights == "float64"]
        worst = max(mine, key=lambda c: c.relative / c.bound)
        lines.append(
            f"  {len(mine)} comparisons with {reference}: largest difference {worst.relative:.1e} of the largest "
            f"value, allowed {worst.bound:.1e}"
        )
    rounded = sum(tensor.rounded for tensor in report.stored)
    dtypes = ", ".join(sorted({tensor.dtype for tensor in report.stored}))
    how = f"{rounded} of them rounded once" if rounded else "nothing rounded"
    lines.append(f"  {len(report.stored)} stored tensors ({dtypes}): every bit as converted, {how}")
    vanished = [tensor for tensor in report.stored if tensor.vanished]
    if vanished:
        most = max(vanished, key=lambda tensor: tensor.vanished)
        lines.append(
            f"  {sum(tensor.vanished for tensor in vanished):,} numbers are too small for {most.dtype} and became 0, "
            f"{most.vanished:,} of them in '{most.key}'"
        )
    stored = [c for c in report.comparisons if c.weights == "stored"]
    if stored:
        worst = max(stored, key=lambda c: c.relative / c.bound)
        lines.append(
            f"  effect of the rounding: {worst.relative:.1e} of the largest value, at most {worst.bound:.1e} possible"
        )
    return lines


def as_described(report: Conversion) -> str:
    """Of layers that rows of ``--attention`` describe, the words for what a proof of them is worth."""
    names = report.described
    if not names:
        return ""
    if len(names) == len(report.plan.layers):
        return " as --attention describes them" if len(names) > 1 else " as --attention describes it"
    return f" ({listed(names, 4)} as --attention describes {'them' if len(names) > 1 else 'it'})"


def ledger_line(report: Conversion) -> str:
    """Parameters in and out."""
    total = {name: sum(getattr(entry, name) for entry in report.ledgers.values()) for name in Ledger.__slots__}
    extra = [f"{total[name]:,} {name}" for name in ("repeated", "padding", "identity") if total[name]]
    return (
        f"Ledger: {total['source']:,} parameters in = {total['moved']:,} moved + {total['rescaled']:,} rescaled; "
        f"{total['target']:,} out{' with ' + ' and '.join(extra) if extra else ''}."
    )


# What is not in the target; a copy is there by its first name.
OTHERS = {heading: words for heading, words in HEADINGS.items() if heading not in ("attention", "copy")}


def rest_line(report: Conversion) -> str:
    """What of the file is not in the target."""
    counts = variable_counts(report.source, [item.layer for item in report.plan.layers])
    left = [f"{counts[heading]['count']} {name}" for heading, name in OTHERS.items() if counts[heading]["count"]]
    return f"Variables not in the target: {', '.join(left)}." if left else "Nothing else is in the file."


def cost_lines(report: Conversion) -> list[str]:
    """A word where what is added outweighs the layers themselves."""
    entries = report.ledgers.values()
    added = sum(entry.repeated + entry.padding + entry.identity for entry in entries)
    return cost_note(report.plan.layout, sum(entry.source for entry in entries), added)


def alignment_as_text(alignment: Alignment) -> Document:
    """What ``match`` shows."""
    rows = tuple(
        (
            shortened(pair.layer.name, 60),
            shortened(f"{pair.place.prefix}*", 70),
            evidence(pair),
            str(pair.layer.num_heads),
        )
        for pair in alignment.pairs
    )
    parts: list[str | Table] = [
        f"{alignment.source and title(alignment.source)} → like {alignment.like}",
        "",
    ]
    parts += [Table(("layer", "place in the model", "shown by", "num_heads"), rows), ""] if rows else []
    parts += [
        f"Next to it, and not filled: {', '.join(pair.place.others[:4])}"
        + (f" and {len(pair.place.others) - 4} more" if len(pair.place.others) > 4 else "")
        for pair in alignment.pairs
        if pair.place.others
    ]
    parts += [f"Without a place: layer '{name}': {why}." for name, why in alignment.left_layers]
    parts += [f"Without a layer: {place.prefix}*" for place in alignment.left_places]
    parts += [f"Note: {note}" for note in alignment.notes]
    parts.append("No weight shows the number of heads, or the order of the rows of a fused qkv (q, k, v is assumed).")
    return parts


def evidence(pair: Pair) -> str:
    """What shows that the two belong together."""
    return "shapes" if pair.alike == 1 else f"shapes, and order among {pair.alike}"


def alignment_as_json(alignment: Alignment) -> dict[str, Any]:
    """The stable form of ``match --json``."""
    return {
        "source": alignment.source and alignment.source.path,
        "like": alignment.like,
        "layout": alignment.layout,
        "pairs": [pair_as_json(pair) for pair in alignment.pairs],
        "layers_left": [{"layer": name, "reason": why} for name, why in alignment.left_layers],
        "places_left": [place.prefix for place in alignment.left_places],
        "notes": list(alignment.notes),
    }


def pair_as_json(pair: Pair) -> dict[str, Any]:
    """A layer and its place in the model."""
    return {
        "layer": pair.layer.name,
        "prefix": pair.place.prefix,
        "alike": pair.alike,
        "keys": dict(pair.place.keys),
    }


def keys_as_text(keys: KeyList) -> Document:
    """What ``keys`` says: every tensor of the target, and what it would be made of."""
    table = key_table(keys.plan)
    last = "Nothing was converted or written."
    return [f"{title(keys.source)} → {len(table.rows)} keys", "", table, "", last]


def key_table(plan: Plan) -> Table:
    """A row for each tensor."""
    rows = tuple(
        (shortened(row["key"], 120), str(tuple(row["shape"])), row["dtype"], shortened(", ".join(row["sources"]), 200))
        for row in key_rows(plan)
    )
    return Table(("key", "shape", "dtype", "from"), rows)


def keys_as_json(keys: KeyList) -> dict[str, Any]:
    """The stable form of ``keys --json``."""
    return {
        "source": keys.source.path,
        "layout": keys.plan.layout,
        "dtype": keys.plan.dtype,
        "keys": key_rows(keys.plan),
    }


def key_rows(plan: Plan) -> list[dict[str, Any]]:
    """One object per tensor."""
    return [key_row(rule, item, plan.dtype or item.layer.dtype) for item in plan.layers for rule in item.rules]


def key_row(rule: Rule, item: LayerPlan, dtype: str) -> dict[str, Any]:
    """A tensor, described and not made."""
    tensor = describe(rule, item, dtype)
    return {
        "key": tensor.key,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "layer": item.layer.name,
        "sources": [source_path(piece, item) for piece in rule.pieces],
    }


def source_path(piece: Piece, item: LayerPlan) -> str:
    """Where Keras' array is in the file; ``identity`` and ``zeros`` have none."""
    return piece.made or source_variable(piece, item).path


def report_as_json(report: Conversion) -> dict[str, Any]:
    """The stable form of ``convert --json`` and ``verify --json``; every variable of the file is listed."""
    sorted_ = sort_variables(report.source, [item.layer for item in report.plan.layers])
    return {
        "source": report.source.path,
        "target": report.target,
        "format": report.source.format,
        "keras_version": report.source.keras_version,
        "layout": report.plan.layout,
        "dtype": report.plan.dtype,
        "reference": report.reference,
        "proven": report.proven,
        "as_described": list(report.described),
        "layers": [plan_as_json(item, report.ledgers[item.layer.name]) for item in report.plan.layers],
        "comparisons": [comparison_as_json(comparison) for comparison in report.comparisons],
        "stored": [asdict(tensor) for tensor in report.stored],
        "variables": {heading: [variable.path for variable in found] for heading, found in sorted_.items()},
        "not_converted": [lookalike_as_json(item) for item in report.not_converted],
        "notes": list(report.notes),
    }


def comparison_as_json(comparison: Comparison) -> dict[str, Any]:
    """One comparison, with its verdict."""
    return {**asdict(comparison), "passed": comparison.passed}


def plan_as_json(item: LayerPlan, entry: Ledger) -> dict[str, Any]:
    """One converted layer."""
    return {**layer_plan_as_json(item), "ledger": asdict(entry)}


def layer_plan_as_json(item: LayerPlan) -> dict[str, Any]:
    """Where one layer goes."""
    return {
        "name": item.layer.name,
        "prefix": item.prefix,
        "layout": item.layout,
        "module": item.module.class_name,
        "arguments": dict(item.module.arguments),
        "keys": [item.key(rule.target) for rule in item.rules],
    }
