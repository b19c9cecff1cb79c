"""What a whole run did: counts that grow with each line, and the failures sorted by kind."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..errors import printable
from ..words.documents import document
from ..words.table import Document, Table
from .record import CONVERTED, FINISHED, OUTCOMES, SourceReport

NAMED = 3  # sources of a kind of failure, unless all are asked for


@dataclass
class Summary:
    """Counts of a run; of what was converted nothing else is kept."""

    outcomes: Counter[str] = field(default_factory=Counter)
    layers: int = 0
    unproven: int = 0
    as_described: int = 0
    parameters: int = 0
    seconds: float = 0.0
    peak_memory: int = 0
    failures: dict[tuple[str, str, str], list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, report: SourceReport) -> None:
        """One more source."""
        self.outcomes[report.outcome] += 1
        self.layers += len(report.layers)
        self.unproven += report.outcome == CONVERTED and not report.proven
        self.as_described += len(report.as_described) if report.proven else 0
        self.parameters += sum(layer["ledger"]["source"] for layer in report.layers)
        self.seconds += report.seconds
        self.peak_memory = max(self.peak_memory, report.peak_memory or 0)
        if report.outcome not in FINISHED and report.error:
            self.failures[report.outcome, report.error["kind"], fact(report)].append(report.source)

    @property
    def total(self) -> int:
        """Sources that were looked at."""
        return sum(self.outcomes.values())

    @property
    def has_failed(self) -> bool:
        """Whether a source was refused or crashed; one without attention is neither."""
        return any(self.outcomes[outcome] for outcome in OUTCOMES if outcome not in FINISHED)


def latest(reports: Iterable[SourceReport]) -> list[SourceReport]:
    """Of sources that were done again, the last line."""
    return list({report.source: report for report in reports}.values())


def summary_of(reports: Iterable[SourceReport]) -> Summary:
    """The summary of the lines."""
    summary = Summary()
    for report in reports:
        summary.add(report)
    return summary


def fact(report: SourceReport) -> str:
    """What is wrong, without the source's own name, so that equal ones come together."""
    message = (report.error or {}).get("message", "")
    source = printable(report.source)
    return message.removeprefix(f"{source}: ").removeprefix(f"{source} ").replace(source, "SOURCE")


def summary_as_text(summary: Summary, *, earlier: int = 0, left: int = 0, every: bool = False) -> Document:
    """The table at a run's end, and the failures by kind."""
    rows = tuple((outcome, f"{summary.outcomes[outcome]:,}") for outcome in OUTCOMES)
    parts: list[str | Table] = [Table(("outcome", "sources"), rows), ""]
    parts.append(
        f"{summary.layers:,} layers with {summary.parameters:,} parameters; {summary.seconds:,.1f} s of work; "
        f"at most {summary.peak_memory >> 20:,} MB in a process."
    )
    if earlier:
        parts.append(f"{earlier:,} of them an earlier run had finished.")
    if left:
        parts.append(f"{left:,} sources were not started. Continue with --resume.")
    if summary.unproven:
        parts.append(f"NOT PROVEN: {summary.unproven:,} targets. Check them with `mha-convert verify`.")
    if summary.as_described:
        parts.append(
            f"Proven as --attention describes them: {summary.as_described:,} layers. That the rows are right is not "
            "proven; compare with your own code's outputs."
        )
    for (outcome, kind, what), sources in sorted(summary.failures.items(), key=by_number):
        parts += ["", f"{outcome}, {kind}, {len(sources):,} ×: {what}"]
        shown = sources if every else sources[:NAMED]
        parts += [f"  {source}" for source in shown]
        if len(sources) > len(shown):
            parts.append(f"  and {len(sources) - len(shown):,} more")
    return parts


def by_number(entry: tuple[tuple[str, str, str], list[str]]) -> tuple[int, tuple[str, str, str]]:
    """The most frequent kinds come first."""
    return -len(entry[1]), entry[0]


def summary_as_json(summary: Summary, *, earlier: int = 0, left: int = 0) -> dict[str, Any]:
    """The document of a run: the last line of ``batch --json``, and what ``report --json`` prints."""
    return document("summary", {"summary": counts_as_json(summary, earlier, left)})


def counts_as_json(summary: Summary, earlier: int, left: int) -> dict[str, Any]:
    """The counts, and the failures by kind."""
    return {
        "outcomes": {outcome: summary.outcomes[outcome] for outcome in OUTCOMES},
        "earlier": earlier,
        "not_begun": left,
        "layers": summary.layers,
        "parameters": summary.parameters,
        "unproven": summary.unproven,
        "as_described": summary.as_described,
        "seconds": round(summary.seconds, 3),
        "peak_memory": summary.peak_memory,
        "failures": [
            {"outcome": outcome, "kind": kind, "message": what, "sources": sources}
            for (outcome, kind, what), sources in sorted(summary.failures.items(), key=by_number)
        ],
    }
