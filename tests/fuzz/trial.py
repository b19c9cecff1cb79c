"""Converts one mutant in this process and decides whether the result is right."""

import contextlib
import json
import os
import resource
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from .mutations import RESEALED, Mutant
from .second_reader import Facts, content_of, disagreements
from .seeds import CONFIG, Seed

PROVEN, REFUSED, NO_ATTENTION = "proven", "refused", "no attention"
FINE = (PROVEN, REFUSED, NO_ATTENTION)
FAILURES = ("wrong", "crash", "hang", "memory", "traceback", "message")
SECONDS, WALL = 10, 60  # of a processor (the process that reads HDF5 has a limit of its own), and of the clock
MEGABYTES, LONGEST = 500, 1000
# How h5py, HDF5, zipfile, zlib, json and NumPy speak; a user should not have to.
LIBRARIES = (
    "Unable to", "Can't", "bad symbol table", "h5py", "H5", "errno", "Bad magic", "Bad CRC", "BadZipFile",
    "central directory", "zipfile", "Expecting", "codec can't", "recursion", "object has no", "Traceback", "NoneType",
    "invalid literal", "not supported between", "unhashable", "cannot reshape", "broadcast", "RuntimeError", "tensor(",
    "<class", "Exception", "object is not", "must be", "out of range", "index out",
)  # fmt: skip
NOTHING = "no attention with weights of its own"


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant; ``detail`` is an error's text, or what is wrong."""

    kind: str
    detail: str = ""


class Hang(BaseException):
    """The mutant took too long."""


def scratch() -> Path:
    """A folder in memory where there is one."""
    return Path(tempfile.mkdtemp(prefix="mha-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))


@contextlib.contextmanager
def written(files: dict[str, bytes], main: str) -> Iterator[Path]:
    """The files in a folder of their own; gives what is to be converted."""
    folder = scratch()
    try:
        for name, content in files.items():
            place = folder / "source" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        yield folder / "source" / main if main else folder / "source"
    finally:
        shutil.rmtree(folder)


def convert(seed: Seed, files: dict[str, bytes], layout: str) -> list[Facts]:
    """The facts of every layer that was converted and proven."""
    from mha_convert import convert_file

    with written(files, seed.main) as source:
        config = source.parent / CONFIG if seed.config else None
        target = source.parent / "target.safetensors"
        report = convert_file(source, target, config=config, layout=layout, overwrite=True)
        assert report.proven, "a conversion without an error is not proven"
        facts = [facts_of(item.layer) for item in report.plan.layers]
        if layout == "linear":
            check_target(target, report.plan.layers, facts)
    return facts


def facts_of(layer: Any) -> Facts:
    """What the report says of a layer, with its numbers."""
    names = (
        "num_heads",
        "num_key_value_heads",
        "key_dim",
        "value_dim",
        "use_bias",
        "sliding_window",
        "dropout",
        "attention_axes",
    )
    names = names if hasattr(layer, "query") else ("dropout",)
    arrays = {role: np.ascontiguousarray(variable.read()) for role, variable in layer.arrays.items()}
    return Facts(
        name=layer.name,
        arrays={role: array.tobytes() for role, array in arrays.items()},
        paths={role: variable.path for role, variable in layer.arrays.items()},
        shapes={role: array.shape for role, array in arrays.items()},
        dtypes={role: array.dtype.name for role, array in arrays.items()},
        settings={name: getattr(layer, name) for name in names}
        | ({"use_gate": layer.gate is not None} if hasattr(layer, "gate") else {}),
        made="query.kernel" not in arrays or any(variable.made_of for variable in layer.arrays.values()),
    )


def check_target(target: Path, plans: Any, facts: list[Facts]) -> None:
    """In layout linear each kernel is one matrix: joined axes, transposed."""
    from safetensors.numpy import load_file

    places = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj", "gate": "gate_proj"}
    if any(layer.made for layer in facts) or any(plan.layer.dtype == "bfloat16" for plan in plans):
        return
    tensors = load_file(target)
    for plan, layer in zip(plans, facts, strict=True):
        for role, name in places.items():
            if f"{role}.kernel" in layer.arrays:
                tensor, shape = tensors[plan.key(f"{name}.weight")], layer.shapes[f"{role}.kernel"]
                inner = shape[0] if role != "output" else shape[0] * shape[1]
                kernel = layer.array(f"{role}.kernel").reshape(inner, -1)
                assert np.array_equal(kernel.T, tensor), f"WRONG {layer.name}: {name}.weight is not the {role} kernel"


_genuine: dict[tuple[str, str], list[Facts] | None] = {}


def genuine(seed: Seed, layout: str) -> list[Facts] | None:
    """The conversion of the seed itself; None where it is refused."""
    from mha_convert.errors import MhaConvertError

    if (seed.name, layout) not in _genuine:
        try:
            _genuine[seed.name, layout] = convert(seed, seed.files, layout)
        except MhaConvertError:
            _genuine[seed.name, layout] = None
    return _genuine[seed.name, layout]


def layout_of(mutant: Mutant) -> str:
    """The default layout for every other mutant, where the seed fits it."""
    return "mha" if mutant.number % 2 and genuine(mutant.seed, "mha") else "linear"


def attempt(mutant: Mutant) -> Outcome:
    """Convert the mutant, with an eye on time, memory, the message, and the result."""
    from mha_convert.errors import MhaConvertError

    layout = layout_of(mutant)
    expected = genuine(mutant.seed, layout)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start_clocks()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            facts = convert(mutant.seed, mutant.files, layout)
        stop_clocks()
        outcome = judged(mutant, facts, expected)
    except MhaConvertError as error:
        outcome = message_outcome(str(error))
    except Hang:
        outcome = Outcome("hang", f"more than {SECONDS} s of a processor, or {WALL} s\n{traceback.format_exc()}")
    except MemoryError:
        outcome = Outcome("memory", traceback.format_exc())
    except AssertionError as error:
        outcome = Outcome("wrong" if str(error).startswith("WRONG") else "traceback", traceback.format_exc())
    except BaseException:
        outcome = Outcome("traceback", traceback.format_exc())
    finally:
        stop_clocks()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    return Outcome("memory", f"{grown} MB more\n{outcome}") if grown > MEGABYTES else outcome


def start_clocks() -> None:
    """A busy machine must not make a mutant slow: what counts is the processor's time."""
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, stop)
    signal.alarm(WALL)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)


def stop_clocks() -> None:
    """No alarm any more."""
    signal.alarm(0)
    signal.setitimer(signal.ITIMER_PROF, 0)


def stop(*_: object) -> None:
    """An alarm."""
    raise Hang


def message_outcome(text: str) -> Outcome:
    """Whether a refusal is one clear line."""
    faults = [word for word in LIBRARIES if word in text]
    faults += [] if text.isprintable() else ["a control character or a line break"]
    faults += [f"{len(text)} characters"] if len(text) > LONGEST else []
    faults += [] if len(text) > 40 and text.endswith((".", "?")) else ["no sentence"]
    if faults:
        return Outcome("message", f"{', '.join(faults)}: {text}")
    return Outcome(NO_ATTENTION if NOTHING in text else REFUSED, text)


def judged(mutant: Mutant, facts: list[Facts], expected: list[Facts] | None) -> Outcome:
    """Whether what was converted is what the mutant holds."""
    seed = mutant.seed
    if expected == facts and (mutant.in_place or any(seed.format.startswith(name) for name in CHECKED)):
        return Outcome(PROVEN, "as the seed")
    if any(seed.format.startswith(name) for name in CHECKED):
        return judged_by_bytes(mutant, facts) if RESEALED in mutant.what else judged_by_checksum(facts, expected)
    if expected and mutant.in_place and only_numbers(mutant, facts, expected):
        return Outcome(PROVEN, "other numbers")
    said = in_a_fork(mutant, facts)
    if said is None and expected and same_but_for_names(facts, expected):
        return Outcome(PROVEN, "as the seed, under a name that h5py cannot read")
    if said is None:
        return Outcome("wrong", "the second reader cannot read it, and it was converted")
    return Outcome("wrong", "\n".join(said)) if said else Outcome(PROVEN, "the second reader agrees")


CHECKED = ("tfckpt", "checkpoint", "savedmodel")  # numbers and names lie under checksums


def judged_by_bytes(mutant: Mutant, facts: list[Facts]) -> Outcome:
    """An index that was changed and sealed again may name other places; what lies there is what is converted."""
    content = b"".join(mutant.files.values())
    strange = [role for layer in facts for role, array in layer.arrays.items() if array not in content]
    return (
        Outcome("wrong", f"numbers that lie nowhere: {strange}") if strange else Outcome(PROVEN, "where its index says")
    )


def judged_by_checksum(facts: list[Facts], expected: list[Facts] | None) -> Outcome:
    """Names may have changed, with what says them; numbers and roles may not."""
    known = [layer.arrays for layer in expected or ()]
    strange = [layer.name for layer in facts if layer.arrays not in known]
    if strange:
        return Outcome("wrong", f"other numbers than the seed's, in spite of checksums: {strange}")
    return Outcome(PROVEN, "the seed's numbers")


def same_but_for_names(facts: list[Facts], expected: list[Facts]) -> bool:
    """Whether each layer is one of the seed's, whatever it is called."""
    known = [(layer.arrays, layer.settings) for layer in expected]
    return all((layer.arrays, layer.settings) in known for layer in facts)


def only_numbers(mutant: Mutant, facts: list[Facts], expected: list[Facts]) -> bool:
    """Whether every array is the mutant's bytes where the seed has it, and all the rest as in the seed."""
    if len(facts) != len(expected) or any(layer.made for layer in facts):
        return False
    places = offsets(mutant.seed)
    content = b"".join(mutant.files.values())
    for ours, theirs in zip(facts, expected, strict=True):
        if (ours.name, ours.paths, ours.shapes, ours.settings) != (
            theirs.name,
            theirs.paths,
            theirs.shapes,
            theirs.settings,
        ):
            return False
        for role, array in ours.arrays.items():
            start = places.get(ours.paths[role])
            if array != theirs.arrays[role] and (start is None or content[start : start + len(array)] != array):
                return False
    return True


_offsets: dict[str, dict[str, int]] = {}


def offsets(seed: Seed) -> dict[str, int]:
    """Where each array of the seed lies, of all its files in a row."""
    if seed.name not in _offsets:
        found: dict[str, int] = {}
        start = 0
        for content in seed.files.values():
            if content.startswith(b"\x89HDF"):
                with h5py.File(BytesIO(content), "r") as file:
                    note_offsets(file, start, found)
            start += len(content)
        _offsets[seed.name] = found
    return _offsets[seed.name]


def note_offsets(file: h5py.File, start: int, found: dict[str, int]) -> None:
    """Those of one file."""

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.id.get_offset() is not None:
            found[name] = start + item.id.get_offset()

    file.visititems(visit)


def in_a_fork(mutant: Mutant, facts: list[Facts]) -> list[str] | None:
    """What the second reader says, in a process that a damaged file may crash; None where it cannot read."""
    source, sink = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(WALL)
            said = list(disagreements(facts, content_of(mutant.files, mutant.seed.main)))
            os.write(sink, json.dumps(said[:20]).encode()[:60_000])
            code = 0
        finally:
            os._exit(code)
    os.close(sink)
    with os.fdopen(source, "rb") as stream:
        text = stream.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(text) if status == 0 else None


def timed(mutant: Mutant) -> tuple[Outcome, float]:
    """The outcome and the seconds."""
    start = time.monotonic()
    return attempt(mutant), time.monotonic() - start
