"""Batches on a genuine Dask cluster: a scheduler and two workers on loopback, processes that can be killed."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest
from faults import as_in_a_terminal

import mha_convert
from mha_convert.batch.converting import convert_source
from mha_convert.batch.run import plan_batch

SECONDS = 120
MANY = 40
CONVERTED = (
    "keras-2.4/square.h5",
    "keras-2.10/slash_names.h5",
    "keras-2.12/nested.keras",
    "keras-2.12/square.tfckpt",
    "keras-2.15/square.savedmodel",
    "keras-3.0.5/square.keras",
    "keras-3.3.3/block.keras",
    "keras-3.15.1/cross.keras",
    "keras-3.15.1/shared.keras",
    "keras-3.15.1/square.weights.h5",
)
REFUSED = ("keras-3.15.1/gate.keras", "keras-3.0.5/broken/square.h5")
WITHOUT = "dense.weights.h5"
SAME = ("outcome", "error", "proven", "reference", "layers", "proof", "variables", "notes", "source_sha256")
SAME += ("target_sha256", "state", "settings")


@dataclass
class Cluster:
    """The scheduler's address and process, and the processes that look after one worker each."""

    address: str
    scheduler: subprocess.Popen
    nannies: list[subprocess.Popen]

    def worker(self):
        """The process of the first worker, below the one that starts it again when it dies."""
        below = psutil.Process(self.nannies[0].pid).children()
        return next(child for child in below if "spawn_main" in " ".join(child.cmdline()))


@contextmanager
def running_cluster(folder):
    """A cluster whose processes stand in a folder of their own, where no relative path leads to a source."""
    file = folder / "scheduler.json"
    common = ("--scheduler-file", file, "--host", "127.0.0.1", "--no-dashboard")
    alone = ("--nthreads", 1, "--memory-limit", 0, "--local-directory", folder)
    scheduler = dask("scheduler", *common, "--port", 0, folder=folder)
    nannies = []
    try:
        wait_for(file.exists)
        nannies += [dask("worker", *common, *alone, folder=folder) for _ in range(2)]
        wait_for(lambda: (folder / "log").read_text().count("Registered to:") == 2)
        yield Cluster(json.loads(file.read_text())["address"], scheduler, nannies)
    finally:
        for process in [*nannies, scheduler]:
            end(process)


def dask(what, *arguments, folder):
    """A process of a cluster."""
    command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *map(str, arguments)]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)


def end(process):
    """End a process and those below it, at once: workers wait long for a scheduler that is gone."""
    below = []
    with suppress(psutil.NoSuchProcess):
        below = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    for left in below:
        with suppress(psutil.NoSuchProcess):
            left.kill()


def wait_for(fact):
    """Wait until it is true."""
    for _ in range(SECONDS * 10):
        if fact():
            return
        time.sleep(0.1)
    raise AssertionError(fact)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, starts_processes):
    """A cluster for all tests that leave its scheduler alone."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def models(golden, tmp_path):
    """Files of many kinds in a tree: some are converted, two refused, one has no attention."""
    for name in (*CONVERTED, *REFUSED):
        target = tmp_path / "models" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (golden / name).is_dir() else shutil.copyfile)(golden / name, target)
    with h5py.File(tmp_path / "models" / WITHOUT, "w") as file:
        file.create_group("vars")
        file["layers/dense/vars/0"] = np.ones((3, 4), np.float32)
    return tmp_path / "models"


@pytest.fixture
def many(samples, tmp_path):
    """Forty models, each with numbers of its own."""
    (tmp_path / "many").mkdir()
    random = np.random.default_rng(0)
    for number in range(MANY):
        path = tmp_path / "many" / f"{number:02}.h5"
        shutil.copyfile(samples / "translator.h5", path)
        with h5py.File(path, "r+") as file:
            for name in ("query", "key", "value", "attention_output"):
                array = found(file, f"self_attention/{name}/kernel")
                array[...] = random.normal(size=array.shape)
    return tmp_path / "many"


def found(file, part):
    """The one array whose name has this in it."""
    names = []
    file.visit(names.append)
    return file[next(name for name in names if part in name)]


def start(*arguments, cwd, **env):
    """The command, under way."""
    command = [sys.executable, "-m", "mha_convert", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | env,
        preexec_fn=as_in_a_terminal,
    )


def run(*arguments, cwd, code=0, **env):
    """The command from beginning to end."""
    return finish(start(*arguments, cwd=cwd, **env), code)


def finish(process, code):
    """What a command prints until it ends."""
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == code, err
    assert "Traceback" not in err
    return out, err


def after(process, count, then):
    """Do something when the command has shown so many sources."""
    for _ in range(count):
        assert "converted" in process.stderr.readline()
    then()


def lines(folder):
    """The report's lines by source; no source has two."""
    read = [json.loads(line) for line in (folder / "report.jsonl").read_text().splitlines()]
    by_source = {line["source"]: line for line in read}
    assert len(by_source) == len(read)
    return by_source


def targets(folder):
    """Every file but the report, with its content."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "report.jsonl"
    }


def test_a_cluster_writes_what_this_machine_writes(cluster, models, tmp_path):
    """Paths are relative on purpose: the workers stand elsewhere."""
    _, err = run("batch", "models", "--out", "there", "--keep-suffix", "--dask", cluster.address, cwd=tmp_path, code=1)
    run("batch", "models", "--out", "here", "--keep-suffix", cwd=tmp_path, code=1)
    there, here = lines(tmp_path / "there"), lines(tmp_path / "here")
    assert set(there) == set(here)
    for source, line in there.items():
        assert [line[name] for name in SAME] == [here[source][name] for name in SAME]
    assert targets(tmp_path / "there") == targets(tmp_path / "here")
    assert len(targets(tmp_path / "there")) == len(CONVERTED)
    count = Counter(line["outcome"] for line in there.values())
    assert count == {"converted": len(CONVERTED), "refused": len(REFUSED), "no attention": 1}
    assert there[f"models/{WITHOUT}"]["outcome"] == "no attention"
    assert "has a gate" in there[f"models/{REFUSED[0]}"]["error"]["message"]
    assert f"refused: models/{REFUSED[0]}: Layout 'mha' cannot hold this" in err


def test_a_killed_worker_costs_nothing(cluster, many, tmp_path):
    process = start("batch", many, "--out", "out", "--dask", cluster.address, cwd=tmp_path)
    after(process, 5, cluster.worker().kill)
    out, _ = finish(process, 0)
    assert f"converted          {MANY}\n" in out
    read = lines(tmp_path / "out")
    assert {line["outcome"] for line in read.values()} == {"converted"}
    assert set(read) == {str(path) for path in many.iterdir()}
    assert set(targets(tmp_path / "out")) == {f"{number:02}.safetensors" for number in range(MANY)}


@pytest.mark.process
def test_a_killed_scheduler_ends_the_run_which_can_be_gone_on_with(many, tmp_path_factory, tmp_path):
    with running_cluster(tmp_path_factory.mktemp("short")) as short:
        process = start("batch", many, "--out", "out", "--dask", short.address, cwd=tmp_path)
        after(process, 5, short.scheduler.kill)
        _, err = finish(process, 1)
    done = lines(tmp_path / "out")
    assert 5 <= len(done) < MANY
    last = err.splitlines()[-1]
    assert last.startswith("error: out/report.jsonl is not complete: the executor dropped ")
    assert last.endswith(f"dropped {MANY - len(done)} sources. Look at its scheduler, and continue with --resume.")
    out, _ = run("batch", many, "--out", "out", "--resume", cwd=tmp_path)
    assert f"{len(done)} of them an earlier run had finished." in out
    assert {line["outcome"] for line in lines(tmp_path / "out").values()} == {"converted"}
    assert len(lines(tmp_path / "out")) == MANY
    assert set(targets(tmp_path / "out")) == {f"{number:02}.safetensors" for number in range(MANY)}


def test_a_run_that_is_interrupted_leaves_the_cluster_for_the_next(cluster, many, models, tmp_path):
    process = start("batch", many, "--out", "out", "--dask", cluster.address, cwd=tmp_path)
    after(process, 3, lambda: process.send_signal(signal.SIGINT))
    finish(process, 130)
    assert len(lines(tmp_path / "out")) < MANY
    run("batch", many, "--out", "out", "--resume", "--dask", cluster.address, cwd=tmp_path)
    assert len(lines(tmp_path / "out")) == MANY


@pytest.mark.process
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "no address", "nonsense://x:1", "tls://127.0.0.1:9"])
def test_an_address_where_no_scheduler_answers(samples, tmp_path, address):
    _, err = run("batch", samples, "--out", "out", "--dask", address, cwd=tmp_path, code=1)
    assert err.startswith(f"error: {address}: no Dask scheduler answers there: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.process
def test_without_the_extra_it_is_named(samples, tmp_path):
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "distributed.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join([str(tmp_path / "stub"), *filter(None, sys.path)])
    _, err = run("batch", samples, "--out", "out", "--dask", "tcp://x:1", cwd=tmp_path, code=1, PYTHONPATH=path)
    assert err == (
        "error: tcp://x:1: --dask needs a package that is not installed: distributed. "
        'Run `pip install "mha-convert[dask]"`.\n'
    )


def test_nothing_but_paths_and_options_goes_through_the_scheduler(models, tmp_path):
    for task in plan_batch(models, tmp_path / "out", keep_suffix=True).tasks:
        assert len(pickle.dumps((convert_source, task))) < 2000


SCRIPT = """
import sys
from distributed import Client
from mha_convert import convert_many

with Client(sys.argv[1]) as client:
    for report in convert_many(sys.argv[2], sys.argv[3], executor=client.get_executor(), reference="none"):
        print(report.outcome)
"""


def test_a_client_of_the_users_own(cluster, samples, tmp_path):
    command = [sys.executable, "-c", SCRIPT, cluster.address, samples, tmp_path / "out"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=SECONDS)
    assert result.stdout.split() == ["converted"] * 5, result.stderr
    assert len(targets(tmp_path / "out")) == 5


def test_an_executor_that_takes_no_tasks_is_in_every_line(samples, tmp_path):
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    reports = list(mha_convert.convert_many(samples, tmp_path / "out", executor=executor))
    assert [report.outcome for report in reports] == ["crashed"] * 5
    assert "the executor lost it (RuntimeError: cannot schedule new futures" in reports[0].error["message"]


@pytest.mark.process
def test_a_machine_without_the_users_folder_says_so(samples, tmp_path):
    (task,) = plan_batch(samples / "textbook.keras", tmp_path / "out").tasks
    record = convert_source(task | {"source": "textbook.keras", "folder": str(Path("/nowhere"))})
    assert (record["outcome"], record["target"]) == ("refused", None)
    assert record["error"]["message"] == (
        "textbook.keras is below /nowhere, which the machine that converts does not have: there is no such file. "
        "Name a folder that all machines share."
    )
    assert convert_source(task | {"folder": "/nowhere"})["outcome"] == "converted"
