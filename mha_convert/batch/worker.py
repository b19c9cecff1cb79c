"""The process that converts, file after file: tasks come in and records go out."""

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import MhaConvertError, NoAttentionError, ReadError, WriteError, bounded, reason
from ..files.child.messages import Channel, to_parent
from ..files.hdf5.process import start
from ..files.locations import is_url, locate, open_binary
from .files import forget_listings, sha256_of, state_of, stream_sha256
from .record import FINISHED, Outcome, SourceReport
from .settings import FILES

if TYPE_CHECKING:
    from ..records.proof import Comparison, Conversion

IDLE = 60  # seconds; then the process ends, and a new one is started for the next task
RESET_PEAK = "5"
LAYER_FACTS = ("name", "prefix", "layout", "module", "ledger")
BIG = "Use fewer --jobs, or --layout linear"


def main() -> None:
    """Answer until the other end is gone, which also ends a conversion that is under way; its draft is removed."""
    parent = to_parent()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    start()
    tasks: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(parent, tasks), daemon=True).start()
    with suppress(queue.Empty, BrokenPipeError):
        while True:
            task = tasks.get(timeout=IDLE)
            os.environ.setdefault("OMP_NUM_THREADS", str(task["threads"]))  # read when torch is loaded
            parent.say(convert_task(task).to_dict())


def listen(parent: Channel, tasks: "queue.SimpleQueue[dict[str, Any]]") -> None:
    """Pass the tasks on; end with the process that sends them."""
    with suppress(EOFError):
        while True:
            tasks.put(parent.hear().words)
    os.kill(os.getpid(), signal.SIGTERM)


def convert_task(task: dict[str, Any]) -> SourceReport:
    """Convert one source, whatever happens."""
    began, source = time.monotonic(), task["source"]
    reset_peak()
    state = None
    try:
        enter(task)
    except ReadError as error:
        facts = failed("refused", type(error).__name__, str(error))
    else:
        with suppress(MhaConvertError):
            forget_listings(source)
        state = state_of(source)
        facts = attempt(source, task["target"], task["settings"])
    return SourceReport(
        source=source,
        **identity(source, state, facts["outcome"]),
        settings=task["digest"],
        seconds=round(time.monotonic() - began, 4),
        peak_memory=peak(),
        version=__version__,
        **{"target": None, **facts},
    )


def identity(source: str, state: str | None, outcome: Outcome) -> dict[str, Any]:
    """What tells the source from a later one in its place. One that was refused may be a pipe, or have no end."""
    digest = None
    with suppress(OSError):
        if outcome in FINISHED:
            digest = sha256_of(source)
    is_same = state is not None and state_of(source) == state  # else it changed after it was converted
    return {"state": state if is_same else None, "source_sha256": digest if is_same else None}


def enter(task: dict[str, Any]) -> None:
    """Go where the task's relative paths begin; nobody needs that folder where there are none.

    Raises:
        ReadError: it is not on this machine.
    """
    places = [task["source"], task["target"], *(task["settings"].get(name) for name in FILES)]
    try:
        if any(place and not is_url(place) and not Path(place).is_absolute() for place in places):
            os.chdir(task["folder"])
    except OSError as error:
        raise ReadError(
            f"{task['source']} is below {task['folder']}, which the machine that converts does not have: "
            f"{reason(error)}. Name a folder that all machines share."
        ) from error


def attempt(source: str, target: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What the conversion adds to the record, or why there is none."""
    from ..pipeline import convert_file

    try:
        make_folder(target)
        return converted(convert_file(source, target, overwrite=True, **settings))
    except NoAttentionError as error:
        return failed("no attention", type(error).__name__, str(error))
    except MhaConvertError as error:
        return failed("refused", type(error).__name__, str(error))
    except MemoryError as error:
        return failed("refused", type(error).__name__, f"{source} needs more memory than there is. {BIG}.")
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        return failed("crashed", "bug", f"{source} stopped with {what}. This is a bug of ours; please report it.")


def make_folder(target: str) -> None:
    """The target's folder; it stays also where the source is refused, as another worker may be about to use it."""
    folder = locate(target).parent
    try:
        if isinstance(folder, Path):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{folder} cannot be made: {reason(error)}. Use another --out.") from error


def failed(outcome: Outcome, kind: str, message: str) -> dict[str, Any]:
    """The record's fields of a source that was not converted."""
    return {"outcome": outcome, "error": {"kind": kind, "message": bounded(message)}}


def converted(report: "Conversion") -> dict[str, Any]:
    """The record's fields of a conversion."""
    from ..words.conversion import plan_as_json
    from ..words.inspection import lookalike_as_json, variable_counts

    layers = [plan_as_json(item, report.ledgers[item.layer.name]) for item in report.plan.layers]
    counts = variable_counts(report.source, [item.layer for item in report.plan.layers])
    return {
        "target": report.target,
        "outcome": "converted",
        "proven": report.proven,
        "as_described": list(report.described),
        "reference": report.reference,
        "layers": [{name: layer[name] for name in LAYER_FACTS} for layer in layers],
        "proof": worst(report.comparisons),
        "variables": {heading: found["count"] for heading, found in counts.items()},
        "not_converted": [lookalike_as_json(item) for item in report.not_converted],
        "notes": list(report.notes),
        "target_sha256": target_sha256(report.target),
    }


def worst(comparisons: "Sequence[Comparison]") -> dict[str, Any] | None:
    """How many comparisons there were, and the one that came closest to its bound."""
    if not comparisons:
        return None
    closest = max(comparisons, key=lambda comparison: comparison.relative / comparison.bound)
    return {"comparisons": len(comparisons), "relative": closest.relative, "bound": closest.bound}


def target_sha256(target: str) -> str:
    """SHA-256 of the target's bytes; a target at a URL is read back."""
    with open_binary(locate(target)) as file:
        return stream_sha256(file)


def reset_peak() -> None:
    """Linux forgets the largest memory that the process had so far."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text(RESET_PEAK)


def peak() -> int | None:
    """Bytes in memory at most since ``reset_peak``; since the start where the system is not Linux."""
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
    with suppress(ImportError):
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return None


if __name__ == "__main__":
    main()
