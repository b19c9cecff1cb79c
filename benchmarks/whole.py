"""A whole transformer: what its conversion costs beside one of attention of the same size, and what its source costs.

The forward passes take turns in one run: the written source, the same model by hand, and Keras' compiled one.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import Any

from . import models
from .conversion import CONVERT, CP, QUIET, filled, summary
from .forward import clock
from .processes import cost

ATTENTION, ATTENTION_PROVEN = "convert, attention alone", "convert, attention alone, proven"
WHOLE, WHOLE_PROVEN = "model", "model, proven"
WRITTEN, KERAS = "written source", "Keras, tf.function"
MODEL = (sys.executable, "-m", "mha_convert", "model")
BATCH, QUICK_BATCH = 8, 1
SIZE = models.Model(name="transformer", layers=8, features=512, mlp=2048)
QUICK = models.Model(name="transformer", layers=1, features=64, mlp=64)


def measure(model: models.Model, folder: Path, runs: int, say: Callable[[str], None]) -> dict[str, Any]:
    """One row: processes from start to end, and calls."""
    say(f"{model.name}: Keras writes it")
    source = models.make(model, folder)
    written = folder / "written"
    cost([*MODEL, str(source), str(written), "--reference", "none"])
    weights = written / "model.safetensors"
    alone = models.make(same_bytes(weights.stat().st_size), folder)
    ways: dict[str, tuple[str, ...]] = {
        CP: ("cp", "--reflink=never", "{made}", "{target}"),
        ATTENTION: (*CONVERT, str(alone), "{target}", "--reference", "none"),
        WHOLE: (*MODEL, "{source}", "{target}", "--reference", "none"),
        ATTENTION_PROVEN: (*CONVERT, str(alone), "{target}"),
        WHOLE_PROVEN: (*MODEL, "{source}", "{target}"),
    }
    costs: dict[str, list[Any]] = {name: [] for name in ways}
    for name in [name for _ in range(runs) for name in ways]:
        target = folder / ("folder" if name in (WHOLE, WHOLE_PROVEN) else "target.safetensors")
        costs[name].append(cost(filled(ways[name], source, target, weights)))
        rmtree(target) if target.is_dir() else target.unlink()
        say(f"{model.name}: {name}: {costs[name][-1].seconds:.2f} s")
    return {
        "model": model.name,
        "layers": model.layers,
        "features": model.features,
        "target_bytes": weights.stat().st_size,
        "ways": {name: summary(spent, costs[CP]) for name, spent in costs.items()},
        "forward": calls(model, source, written, BATCH if model is SIZE else QUICK_BATCH, 3 * runs),
    }


def same_bytes(size: int) -> models.Model:
    """Attention alone with as many numbers."""
    found = models.parse(f"{size / 1e6:.0f}MB") if size > 1e6 else models.parse("1MB")
    return replace(found, name="attention")


def calls(model: models.Model, source: Path, written: Path, batch: int, runs: int) -> dict[str, Any]:
    """Seconds of one call by hand, and the others as multiples of it, in turns."""
    import torch

    import mha_convert

    from .plain_transformer import plain_transformer

    x = torch.randn(batch, 196, 768)
    plain = plain_transformer(model.layers, model.features, model.mlp).eval()
    ours = mha_convert.load_model(written)
    command = [sys.executable, "-m", "benchmarks.keras_calls", str(source), str(batch)]
    genuine = subprocess.Popen(
        command,
        env=os.environ | QUIET | {"KERAS_BACKEND": "tensorflow"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    def keras_seconds() -> float:
        assert genuine.stdin and genuine.stdout
        genuine.stdin.write("again\n")
        genuine.stdin.flush()
        return float(genuine.stdout.readline())

    times: dict[str, list[float]] = {"plain": [], WRITTEN: [], KERAS: []}
    try:
        with torch.inference_mode():
            clocks = {"plain": clock(lambda: plain(x)), WRITTEN: clock(lambda: ours(x)), KERAS: keras_seconds}
            keras_seconds()
            for number in range(runs):
                names = list(clocks)
                first = number % len(names)  # so that nothing follows the same neighbour every time
                for name in names[first:] + names[:first]:
                    times[name].append(clocks[name]())
    finally:
        genuine.communicate()
    ratios = {
        name: median(a / b for a, b in zip(times[name], times["plain"], strict=True)) for name in (WRITTEN, KERAS)
    }
    return {"batch": batch, "plain_seconds": median(times["plain"]), "times_plain": ratios}
