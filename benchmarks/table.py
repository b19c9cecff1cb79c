"""The figures as Markdown tables."""

from collections.abc import Sequence
from typing import Any

from .conversion import BACKEND, CP, OURS, PROVEN, SCRIPT
from .whole import ATTENTION, ATTENTION_PROVEN, WHOLE, WHOLE_PROVEN


def markdown(found: dict[str, Any]) -> str:
    """The machine and all tables."""
    parts = [place(found["machine"], found["versions"])]
    if found["conversion"]:
        parts += [times(found["conversion"]), memory(found["conversion"])]
    if found["forward"]:
        parts.append(forward(found["forward"]))
    if found["whole"]:
        parts += [whole(found["whole"]), calls(found["whole"])]
    if found["batch"]:
        parts.append(batch(found["batch"]))
    return "\n\n".join(parts)


def place(machine: dict[str, Any], versions: dict[str, str]) -> str:
    """One sentence about the machine and the versions."""
    names = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"Measured on {machine['processor']}, {machine['cores']} cores, {machine['memory'] / 1e9:.0f} GB of memory, "
        f"{machine['disk']}, {machine['system']}; {names}."
    )


def times(rows: list[dict[str, Any]]) -> str:
    """Seconds of ``cp``, the others as multiples of it, and how many times faster than Keras."""
    head = ("model", "target", "`cp`", OURS, PROVEN, SCRIPT, BACKEND, f"{SCRIPT} / {OURS}", f"{SCRIPT} / {PROVEN}")
    body = []
    for row in rows:
        ways = row["ways"]
        script = ways[SCRIPT]["median_seconds"]
        body.append(
            (
                row["model"],
                f"{row['target_bytes'] / 1e6:.0f} MB",
                f"{ways[CP]['median_seconds']:.2f} s",
                *(f"{ways[name]['times_cp']:.2f}× ({ways[name]['median_seconds']:.2f} s)" for name in (OURS, PROVEN)),
                *(
                    f"{ways[name]['times_cp']:.0f}× ({ways[name]['median_seconds']:.1f} s)"
                    for name in (SCRIPT, BACKEND)
                ),
                *(f"{script / ways[name]['median_seconds']:.1f}" for name in (OURS, PROVEN)),
            )
        )
    return aligned("Time, start to end, as multiples of `cp`:", head, body)


def memory(rows: list[dict[str, Any]]) -> str:
    """Megabytes at the peak, anonymous and resident."""
    names = (OURS, PROVEN, SCRIPT, BACKEND)
    body = []
    for row in rows:
        bare, ways = row["bare_interpreter"], row["ways"]
        anonymous = (f"{(ways[name]['anonymous_bytes'] - bare['anonymous']) / 1e6:.0f}" for name in names)
        resident = (f"{ways[name]['resident_bytes'] / 1e6:.0f}" for name in names)
        both = (f"{own} ({whole})" for own, whole in zip(anonymous, resident, strict=True))
        body.append((row["model"], f"{row['target_bytes'] / 1e6:.0f} MB", *both))
    title = (
        "Memory at the peak in MB: anonymous memory over that of the bare interpreter, and in brackets the whole "
        "resident set, with pages of mapped files:"
    )
    return aligned(title, ("model", "target", *names), body)


def forward(rows: list[dict[str, Any]]) -> str:
    """Milliseconds of plain attention, the others as multiples of it."""
    names = list(dict.fromkeys(name for row in rows for name in row["times_plain"]))
    body = []
    for row in rows:
        ratios = [f"{row['times_plain'][name]:.2f}" if name in row["times_plain"] else "–" for name in names]
        body.append((row["size"], row["mode"], f"{row['plain_seconds'] * 1e3:.1f} ms", *ratios))
    return aligned("Time of one call, as multiples of plain attention:", ("size", "mode", "plain", *names), body)


def whole(rows: list[dict[str, Any]]) -> str:
    """Seconds and memory of a whole model's conversion, beside one of attention of the same size."""
    names = (ATTENTION, WHOLE, ATTENTION_PROVEN, WHOLE_PROVEN)
    body = []
    for row in rows:
        ways = row["ways"]
        both = (f"{ways[n]['median_seconds']:.2f} s, {ways[n]['anonymous_bytes'] / 1e6:.0f} MB" for n in names)
        ratios = (
            f"{ways[whole]['median_seconds'] / ways[part]['median_seconds']:.1f}"
            for part, whole in ((ATTENTION, WHOLE), (ATTENTION_PROVEN, WHOLE_PROVEN))
        )
        body.append((row["model"], f"{row['target_bytes'] / 1e6:.0f} MB", *both, *ratios))
    head = ("model", "weights", *names, f"{WHOLE} / convert", f"{WHOLE_PROVEN} / convert, proven")
    return aligned("A whole model, time from start to end and anonymous memory at the peak:", head, body)


def calls(rows: list[dict[str, Any]]) -> str:
    """Milliseconds of the model by hand, the others as multiples of it."""
    body = [
        (
            f"{row['layers']} layers of {row['features']}, batch {row['forward']['batch']}",
            f"{row['forward']['plain_seconds'] * 1e3:.1f} ms",
            *(f"{ratio:.2f}" for ratio in row["forward"]["times_plain"].values()),
        )
        for row in rows
    ]
    names = [*rows[0]["forward"]["times_plain"]]
    return aligned("One call of a whole model, as multiples of one by hand:", ("model", "by hand", *names), body)


def batch(rows: list[dict[str, Any]]) -> str:
    """Seconds of a batch compared with the sum of its conversions, each with its proof."""
    head = (
        "models",
        "jobs",
        "one conversion",
        "sum of all",
        "batch",
        "batch / (sum / jobs)",
        "plain loops at once",
        "memory, first and last",
    )
    body = [
        (
            f"{row['files']:,}",
            str(row["jobs"]),
            f"{row['single'] * 1e3:.0f} ms",
            f"{row['singles']:.1f} s",
            f"{row['seconds']:.1f} s",
            f"{row['ratio']:.2f}",
            f"{row['loops']:.2f}",
            f"{row['memory_first'] / 1e6:.0f} MB, {row['memory_last'] / 1e6:.0f} MB",
        )
        for row in rows
    ]
    return aligned(
        "Many small models, converted and proven, from the first process's start to the last one's end:", head, body
    )


def aligned(title: str, head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A Markdown table under its title."""
    lines = [" | ".join(row) for row in (head, ["---"] * len(head), *body)]
    return "\n".join([title, "", *(f"| {line} |" for line in lines)])
