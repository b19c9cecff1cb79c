"""Many small models: a batch with several jobs, compared with the same conversions in one warm process, in sequence."""

import io
import json
import statistics
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mha_convert.batch.run import convert_many

from .processes import usual_environment

GENUINE = Path(__file__).parents[1] / "samples"
SUFFIXES = (".keras", ".h5")
WEIGHTS = "model.weights.h5"
EDGE = 100  # sources at the beginning and at the end, whose memory is compared
WARM = 3

SINGLES = """
import json, sys, time
from pathlib import Path
from mha_convert import convert_file

sources, out = sys.argv[1:-1], Path(sys.argv[-1])
seconds = []
for number, source in enumerate(sources):
    began = time.perf_counter()
    convert_file(source, out / f"{number}.safetensors")
    seconds.append(time.perf_counter() - began)
print(json.dumps(seconds))
"""


def measure(count: int, jobs: int, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Seconds of the batch, and of single conversions without start-up; memory at both ends of the run.

    ``loops`` is how many times as long a conversion takes beside others: what no batch can do better.
    """
    sources = list(copies(count, folder / "models"))
    say(f"{count} models: one by one")
    singles = started([sources], folder / "singles")
    say(f"{count} models: {jobs} such loops at once, that share nothing")
    at_once = started([sources[first::jobs] for first in range(jobs)], folder / "loops")
    say(f"{count} models: batch with {jobs} jobs")
    began = time.perf_counter()
    reports = list(convert_many(folder / "models", folder / "out", jobs=jobs))
    seconds = time.perf_counter() - began
    failed = [report.error for report in reports if not report.proven]
    assert not failed, failed[:3]
    peaks = [report.peak_memory or 0 for report in reports]
    return {
        "files": count,
        "jobs": jobs,
        "singles": sum(singles),
        "single": statistics.median(singles),
        "loops": sum(at_once) / sum(singles),
        "seconds": seconds,
        "ratio": seconds / (sum(singles) / jobs),
        "memory_first": statistics.median(peaks[jobs : EDGE + jobs]),
        "memory_last": statistics.median(peaks[-EDGE:]),
    }


def copies(count: int, folder: Path) -> Iterator[Path]:
    """Copies of genuine files, each with weights of its own, in folders of a hundred."""
    models = sorted(path for path in GENUINE.iterdir() if path.name.endswith(SUFFIXES))
    for number in range(count):
        model, random = models[number % len(models)], np.random.default_rng(number)
        path = folder / f"{number // 100:03}" / f"{number:05}{''.join(model.suffixes)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(changed(model.read_bytes(), random))
        yield path


def changed(content: bytes, random: np.random.Generator) -> bytes:
    """A copy of the file with other numbers in its arrays."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return changed_hdf5(content, random)
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            member = old.read(name)
            new.writestr(name, changed_hdf5(member, random) if name == WEIGHTS else member)
    return made.getvalue()


def changed_hdf5(content: bytes, random: np.random.Generator) -> bytes:
    """A copy of an HDF5 file with other numbers in its arrays."""
    image = io.BytesIO(content)
    with h5py.File(image, "r+") as file:

        def change(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and item.dtype.kind == "f":
                item[...] = random.normal(size=item.shape).astype(item.dtype)

        file.visititems(change)
    return image.getvalue()


def started(parts: Sequence[Sequence[Path]], out: Path) -> list[float]:
    """Seconds of each conversion with its proof, in sequence, in one process for each part.

    The first ones, which load torch, are done again and not counted.
    """
    processes = []
    for number, sources in enumerate(parts):
        folder = out / str(number)
        folder.mkdir(parents=True)
        command = [sys.executable, "-c", SINGLES, *map(str, [*sources[:WARM], *sources]), str(folder)]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=usual_environment()))
    seconds: list[float] = []
    for process in processes:
        output, _ = process.communicate()
        seconds += json.loads(output)[WARM:]
    return seconds
