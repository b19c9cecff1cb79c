"""Runs the verbs on the hostile files, each file in a process of its own, and writes what happened as JSON.

    python tests/support/hostile_cases.py SET RESULT.json [0/2]

SET is a folder that ``make_hostile.py`` wrote. The processes are forked from this one, so that Python and NumPy start
once. The kernel reports (inotify) when a file that does not belong to the case is opened, by whatever code.
"""

import contextlib
import ctypes
import io
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

PROCESSES = 2
WALL = 60  # seconds until a case counts as hung, on whatever machine
IN_OPEN = 0x20
libc = ctypes.CDLL(None)


class Watch:
    """Whether anything in some folders was opened."""

    def __init__(self, *folders: Path) -> None:
        self.descriptor = libc.inotify_init1(os.O_NONBLOCK)
        for folder in folders:
            assert libc.inotify_add_watch(self.descriptor, os.fsencode(folder), IN_OPEN) > 0

    def opened(self) -> bool:
        """Since it was asked last."""
        return bool(select.select([self.descriptor], [], [], 0)[0] and os.read(self.descriptor, 1 << 16))


def verb(arguments: list[str]) -> dict:
    """Exit code and output of one verb, in this process."""
    from mha_convert import cli

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "replace") for _ in range(2))
    sys.argv = ["mha-convert", *arguments]
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
            code = "traceback"
    for stream in (out, err):
        stream.flush()
    return {"code": code or 0, "out": out.buffer.getvalue().decode(), "err": err.buffer.getvalue().decode()}


def case(source: str, folder: Path, target: str) -> dict:
    """The verbs on one file, without a proof of what was converted; runs in the forked process."""
    os.chdir(folder)
    converted = str(folder / "x.safetensors")
    found = {
        "inspect": verb(["inspect", source]),
        "convert": verb(["convert", source, converted, "--reference", "none"]),
    }
    found["written"] = sorted(path.name for path in folder.iterdir())
    found["model"] = verb(["model", source, str(folder / "model"), "--reference", "none"])
    found["modelled"] = sorted(path.name for path in folder.glob("model/*"))
    found["left"] = sorted(path.name for path in folder.iterdir())
    accepted = found["convert"]["code"] == 0
    found["verify"] = {} if accepted else verb(["verify", source, target])  # the proof needs torch: not in this process
    from mha_convert.files.hdf5 import process

    process._reader.stop()
    own, worker = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    found["megabytes"] = (own.ru_maxrss + worker.ru_maxrss) // 1024
    found["seconds"] = round(sum(used.ru_utime + used.ru_stime for used in (own, worker)), 2)
    return found


def proof(source: str, folder: Path, target: str) -> dict:
    """The proof of a file that was converted."""
    os.chdir(folder)
    return {"verify": verb(["verify", source, target])}


def run(source: str, target: str, keep: Path | None, task: Callable[[str, Path, str], dict] = case) -> dict:
    """``task`` in a forked process; a signal or a hang are outcomes, too."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "out"
        folder.mkdir()
        result = Path(name) / "result.json"
        pid = os.fork()
        if not pid:
            try:
                found = task(source, folder, target)
                result.write_text(json.dumps(found))
                if keep and (folder / "x.safetensors").exists():
                    (folder / "x.safetensors").replace(keep)
            except BaseException:
                traceback.print_exc()
            os._exit(0)
        until, status = time.monotonic() + WALL, 0
        while time.monotonic() < until:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            time.sleep(0.005)
        else:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return {"hang": True}
        if os.WIFSIGNALED(status):
            return {"signal": os.WTERMSIG(status)}
        return json.loads(result.read_text())


def main(folder: Path, place: Path, part: str = "0/1") -> None:
    """Every case of the manifest."""
    from mha_convert import models  # noqa: F401 - loaded before the processes are forked
    from mha_convert.readers.tensorflow.protobuf import message_classes
    from mha_convert.words import conversion, inspection  # noqa: F401

    message_classes()
    results = {}
    first, step = map(int, part.split("/"))
    cases = json.loads((folder / "manifest.json").read_text())["cases"][first::step]
    targets = place.parent / "targets"
    targets.mkdir(exist_ok=True)
    good = targets / "good.safetensors"
    run(str(folder / "files" / "ok_base.keras"), "", good)
    watch = Watch(folder / "canary")
    assert not watch.opened()
    for entry in cases:
        found = run(str(folder / "files" / entry["file"]), str(good), targets / f"{entry['id'][:40]!a}.safetensors")
        results[entry["id"]] = {**found, "opened": watch.opened()}
    import torch  # noqa: F401 - only the proof needs it, and it alone takes the memory that a conversion may take

    import mha_convert.verification  # noqa: F401

    for entry in cases:
        target = targets / f"{entry['id'][:40]!a}.safetensors"
        if target.exists():
            results[entry["id"]] |= run(str(folder / "files" / entry["file"]), str(target), None, proof)
    place.write_text(json.dumps(results))


def run_all(maker: Path, folder: Path) -> None:
    """Make the set in ``folder`` and run it in two processes; ``cases.json`` has the manifest with the outcomes."""
    made = folder / "set"
    subprocess.run([sys.executable, maker, made], check=True, capture_output=True, timeout=120)
    before = set(made.rglob("*"))
    runs = []
    for number in range(PROCESSES):
        (folder / str(number)).mkdir()
        result = folder / str(number) / "result.json"
        program = [sys.executable, __file__, made, result, f"{number}/{PROCESSES}"]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
        runs.append(subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    results = {}
    for number, process in enumerate(runs):
        output, _ = process.communicate()
        assert process.returncode == 0, output.decode()
        results |= json.loads((folder / str(number) / "result.json").read_text())
    manifest = json.loads((made / "manifest.json").read_text())["cases"]
    (folder / "cases.json").write_text(json.dumps([{**entry, **results[entry["id"]]} for entry in manifest]))
    (folder / "new.json").write_text(json.dumps(sorted(map(str, set(made.rglob("*")) - before))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
