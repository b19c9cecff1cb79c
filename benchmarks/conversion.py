"""Whole conversions compared with ``cp`` of the same bytes; each is a process of its own, and they take turns."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from . import models
from .processes import Cost, cost

CP, OURS, PROVEN, SCRIPT, BACKEND = "cp", "ours", "ours, proven", "Keras script", "Keras torch backend"
CONVERT = (sys.executable, "-m", "mha_convert", "convert")
KERAS = (sys.executable, "-m", "benchmarks.keras_script")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to the target: ``{source}``, ``{target}`` and ``{made}`` stand for files."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    suffix: str = ".safetensors"


WAYS = (
    Way(name=CP, command=("cp", "--reflink=never", "{made}", "{target}"), environment={}),
    Way(name=OURS, command=(*CONVERT, "{source}", "{target}", "--reference", "none"), environment={}),
    Way(name=PROVEN, command=(*CONVERT, "{source}", "{target}"), environment={}),
    Way(
        name=SCRIPT,
        command=(*KERAS, "{source}", "{target}"),
        environment=QUIET | {"KERAS_BACKEND": "tensorflow"},
        suffix=".pt",
    ),
    Way(
        name=BACKEND,
        command=(*KERAS, "{source}", "{target}"),
        environment=QUIET | {"KERAS_BACKEND": "torch"},
        suffix=".pt",
    ),
)


def measure(
    wanted: list[models.Model],
    folder: Path,
    runs: int,
    keras_runs: int,
    cache: Path | None,
    say: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """A row for each model, in every way; all files are in the page cache, and nothing waits to be written."""
    bare = cost((sys.executable, "-c", "pass"))
    for model in wanted:
        say(f"{model.name}: Keras writes it")
        source = models.make(model, cache or folder)
        made = folder / "made.safetensors"
        cost(filled(WAYS[1].command, source, made, made))  # what cp copies; warms the source, too
        costs: dict[str, list[Cost]] = {way.name: [] for way in WAYS}
        for way in rounds(runs, keras_runs):
            spent = one(way, source, made)
            costs[way.name].append(spent)
            say(f"{model.name}: {way.name}: {spent.seconds:.2f} s, {spent.anonymous / 1e6:.0f} MB")
        yield {
            "model": model.name,
            "layers": model.layers,
            "features": model.features,
            "source_bytes": source.stat().st_size,
            "target_bytes": made.stat().st_size,
            "bare_interpreter": asdict(bare),
            "ways": {name: summary(spent, costs[CP]) for name, spent in costs.items()},
        }
        made.unlink()
        if cache is None:
            source.unlink()


def rounds(runs: int, keras_runs: int) -> Iterator[Way]:
    """The ways in turns; those of Keras only in the first rounds."""
    for number in range(runs):
        yield from (way for way in WAYS if number < keras_runs or way.name not in (SCRIPT, BACKEND))


def one(way: Way, source: Path, made: Path) -> Cost:
    """Run one way once; its target is new and is removed afterwards."""
    target = made.with_name(f"target{way.suffix}")
    try:
        return cost(filled(way.command, source, target, made), way.environment)
    finally:
        target.unlink(missing_ok=True)


def filled(command: tuple[str, ...], source: Path, target: Path, made: Path) -> list[str]:
    """The command with the names of its files filled in."""
    files = {"{source}": source, "{target}": target, "{made}": made}
    return [str(files.get(word, word)) for word in command]


def summary(costs: list[Cost], copies: list[Cost]) -> dict[str, Any]:
    """Medians; a ratio is computed within each round."""
    pairs = zip(costs, copies, strict=False)
    return {
        "seconds": [spent.seconds for spent in costs],
        "median_seconds": median(spent.seconds for spent in costs),
        "times_cp": median(spent.seconds / copy.seconds for spent, copy in pairs),
        "resident_bytes": max(spent.resident for spent in costs),
        "anonymous_bytes": max(spent.anonymous for spent in costs),
    }
