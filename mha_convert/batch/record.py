"""One source's line in the report."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ..errors import bounded, printable, shortened
from ..words.documents import schema_of

Outcome = Literal["converted", "no attention", "refused", "crashed"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
FINISHED: tuple[Outcome, ...] = ("converted", "no attention")  # what a resumed run leaves as it is


CONVERTED: Outcome = "converted"
SCHEMA = schema_of("source")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SourceReport:
    """What became of one source.

    Args:
        source: its path or URL.
        target: where its layers were written; None where nothing was.
        outcome: ``"converted"``, ``"no attention"``, ``"refused"`` (an error of ours), or ``"crashed"`` (a bug, a
            killed process, or no end in time).
        error: ``kind``, the error's class or what ended the process, and ``message``, one line.
        proven: whether every layer was compared, and passed.
        as_described: names of the layers that are proven as a row of ``--attention`` describes them, and no further.
        reference: what with; None where nothing was.
        layers: of each, its name, prefix, layout, module and ledger (numbers of parameters).
        proof: ``comparisons``, and of the worst one its ``relative`` difference and ``bound``; None without a proof.
        variables: how many of the file's variables are attention's, other layers', …
        not_converted: other attention in the file, and why not.
        notes: what the user should know.
        source_sha256: of a local file, or of the lines ``<SHA-256>  <name>`` of its files; None at a URL, where
            the source was refused, and where it changed since.
        target_sha256: of the target.
        state: says whether the source changed: sizes and times, or what its store says of it.
        settings: says whether the options are the same.
        seconds: the conversion took, with reading and writing.
        peak_memory: bytes in the process that converted, at most; None where the system does not say.
        version: of this package.
        schema: of the line, see ``mha_convert/schemas``.
    """

    source: str
    target: str | None
    outcome: Outcome
    error: Mapping[str, str] | None = None
    proven: bool = False
    as_described: Sequence[str] = ()
    reference: str | None = None
    layers: Sequence[Mapping[str, Any]] = ()
    proof: Mapping[str, Any] | None = None
    variables: Mapping[str, int] = field(default_factory=dict)
    not_converted: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    source_sha256: str | None = None
    target_sha256: str | None = None
    state: str | None = None
    settings: str = ""
    seconds: float = 0.0
    peak_memory: int | None = None
    version: str = ""

    schema: str = SCHEMA

    def __repr__(self) -> str:
        """One line: the source and what became of it."""
        return printable(f"<SourceReport '{shortened(self.source, 80)}': {verdict(self)}>")

    def to_dict(self) -> dict[str, Any]:
        """The line of ``report.jsonl``."""
        return {"schema": self.schema, **{name: getattr(self, name) for name in self.__slots__}}

    def to_text(self) -> str:
        """What ``batch`` prints when the source is done."""
        return bounded(line(self))


def line(report: SourceReport) -> str:
    """One source in one line."""
    source = report.source
    if report.outcome == CONVERTED:
        return f"converted {source} ({layers_proven(report)}, {report.seconds:.1f} s)"
    return f"{report.outcome}: {source}" if report.outcome in FINISHED else f"{report.outcome}: {failure(report)}"


def verdict(report: SourceReport) -> str:
    """What became of the source, without its name."""
    if report.outcome == CONVERTED:
        return f"converted, {layers_proven(report)}"
    return ", ".join((report.outcome, *([report.error["kind"]] if report.error else [])))


def layers_proven(report: SourceReport) -> str:
    """How many layers, and how far they are proven."""
    return f"{len(report.layers)} layer{'s' * (len(report.layers) != 1)}, {proof_of(report)}"


def proof_of(report: SourceReport) -> str:
    """Whether its layers are proven, and which of them only as rows of ``--attention`` describe them."""
    if not report.proven:
        return "NOT PROVEN"
    described = len(report.as_described)
    count = f"{described} of them " if described < len(report.layers) else ""
    return f"proven, {count}as --attention describes them" if described else "proven"


def failure(report: SourceReport) -> str:
    """The error of a source, which begins with its name."""
    message = (report.error or {}).get("message", "")
    return message if message.startswith(printable(report.source)) else f"{report.source}: {message}"


def is_text(value: Any) -> bool:
    """Whether it is text."""
    return isinstance(value, str)


def is_count(value: Any) -> bool:
    """Whether it is a whole number that sums and tables can take."""
    return type(value) is int and 0 <= value < 1 << 63


def is_duration(value: Any) -> bool:
    """Seconds."""
    return is_count(value) or (type(value) is float and math.isfinite(value) and value >= 0)


def is_error(value: Any) -> bool:
    """Whether it is the kind and the message of what went wrong."""
    return isinstance(value, dict) and is_text(value.get("kind")) and is_text(value.get("message"))


def is_layers(value: Any) -> bool:
    """Whether they are layers with their ledgers."""
    return isinstance(value, list | tuple) and all(
        isinstance(layer, dict) and isinstance(layer.get("ledger"), dict) and is_count(layer["ledger"].get("source"))
        for layer in value
    )


# What of a line is used again, whoever wrote it; None is allowed where a record may have it.
FORMS: dict[str, Callable[[Any], bool]] = {
    "schema": lambda value: value == SCHEMA,
    "source": is_text,
    "target": lambda value: value is None or is_text(value),
    "outcome": lambda value: value in OUTCOMES,
    "error": lambda value: value is None or is_error(value),
    "proven": lambda value: isinstance(value, bool),
    "layers": is_layers,
    "source_sha256": lambda value: value is None or is_text(value),
    "target_sha256": lambda value: value is None or is_text(value),
    "state": lambda value: value is None or is_text(value),
    "settings": is_text,
    "seconds": is_duration,
    "peak_memory": lambda value: value is None or is_count(value),
}


def is_a_record(report: SourceReport) -> bool:
    """Whether a line that was read has the form of one that ``batch`` writes, in all that is used of it."""
    return all(form(getattr(report, name)) for name, form in FORMS.items())
