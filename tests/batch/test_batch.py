"""Batches on this machine: what they write and report, what they survive, and what they leave behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest
from faults import as_in_a_terminal

import mha_convert
from mha_convert.batch import converting
from mha_convert.batch.journal import read_report
from mha_convert.batch.run import plan_batch

pytestmark = pytest.mark.process  # the package starts its workers
SECONDS, MANY = 120, 24
COMMAND = (sys.executable, "-m", "mha_convert")
MODELS = ("six_heads.keras", "textbook.keras", "translator.h5", "encoder.weights.h5")


@pytest.fixture
def models(samples, tmp_path):
    """Genuine models in a tree, one file without attention, and one that is none."""
    folder = tmp_path / "models"
    (folder / "deep" / "er").mkdir(parents=True)
    for number, name in enumerate(MODELS):
        shutil.copyfile(samples / name, folder / ("", "deep", "deep/er", "deep")[number] / name)
    with h5py.File(folder / "deep" / "dense.weights.h5", "w") as file:
        file.create_group("vars")
        file["layers/dense/vars/0"] = np.ones((3, 4), np.float32)
    (folder / "broken.keras").write_bytes(b"PK\3\4 and nothing else")
    return folder


@pytest.fixture
def many(samples, tmp_path):
    """Twenty-four models with numbers of their own."""
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(MANY):
        path = folder / f"{number:02}.h5"
        shutil.copyfile(samples / "translator.h5", path)
        with h5py.File(path, "r+") as file:
            change(file, number)
    return folder


def change(file, seed):
    """Other numbers in all arrays."""
    random = np.random.default_rng(seed)
    arrays = []
    file.visititems(lambda name, item: arrays.append(item) if isinstance(item, h5py.Dataset) else None)
    for array in arrays:
        if array.dtype == np.float32:
            array[...] = random.normal(size=array.shape)


def start(*arguments, cwd, **options):
    """The command, under way."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def run(*arguments, cwd=None, code=0):
    """The command from beginning to end."""
    process = start(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == code, err
    assert "Traceback" not in err
    return out, err


def lines(folder):
    """The report's lines by source."""
    found = [json.loads(line) for line in (folder / "report.jsonl").read_text().splitlines()]
    return {Path(line["source"]).name: line for line in found}


def tree_of(folder):
    """Every file with its content's hash."""
    return {
        path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_batch_does_what_single_conversions_do(models, tmp_path):
    out, err = run("batch", models, "--out", tmp_path / "out", "--jobs", 2, code=1)
    found = lines(tmp_path / "out")
    expected = {
        "six_heads.keras": "six_heads.safetensors",
        "textbook.keras": "deep/textbook.safetensors",
        "translator.h5": "deep/er/translator.safetensors",
        "encoder.weights.h5": "deep/encoder.safetensors",
    }
    assert set(tree_of(tmp_path / "out")) == {"report.jsonl", *expected.values()}
    for name, target in expected.items():
        line, written = found[name], tmp_path / "out" / target
        single = tmp_path / "single.safetensors"
        report = mha_convert.convert_file(line["source"], single, overwrite=True)
        assert written.read_bytes() == single.read_bytes()
        assert (line["outcome"], line["proven"], line["target"]) == ("converted", True, str(written))
        assert line["source_sha256"] == sha256(Path(line["source"]).read_bytes()).hexdigest()
        assert line["target_sha256"] == sha256(written.read_bytes()).hexdigest()
        assert [layer["name"] for layer in line["layers"]] == [item.layer.name for item in report.plan.layers]
        ledgers = {layer["name"]: layer["ledger"]["source"] for layer in line["layers"]}
        assert ledgers == {name: ledger.source for name, ledger in report.ledgers.items()}
        assert line["proof"]["comparisons"] == len(report.comparisons)
        assert 0 < line["proof"]["relative"] <= line["proof"]["bound"] < 1e-5
        assert line["seconds"] > 0
        assert line["peak_memory"] > 1 << 20
    assert found["dense.weights.h5"]["outcome"] == "no attention"
    assert found["broken.keras"]["outcome"] == "refused"
    assert found["broken.keras"]["error"]["kind"] == "ReadError"
    assert err.count("\n") == 6
    assert f"refused: {models}/broken.keras is a zip archive that ends too early" in err
    assert "converted           4\nno attention        1\nrefused             1\ncrashed             0\n" in out


def test_a_cluster_has_its_own_number_of_workers(models, tmp_path):
    _, err = run("batch", models, "--out", tmp_path / "out", "--jobs", 2, "--dask", "tcp://127.0.0.1:9", code=2)
    assert "--jobs is for this machine" in err


def test_files_without_attention_are_no_failure(models, tmp_path):
    (models / "broken.keras").unlink()
    run("batch", models, "--out", tmp_path / "out", "--format", "pt", "--reference", "none")
    assert lines(tmp_path / "out")["dense.weights.h5"]["outcome"] == "no attention"
    assert not lines(tmp_path / "out")["six_heads.keras"]["proven"]
    assert (tmp_path / "out" / "six_heads.pt").is_file()


def test_every_way_to_show_it(models, tmp_path):
    options = ("batch", models, "--out", tmp_path / "out", "--overwrite", "--reference", "none")
    out, err = run(*options, "--json", code=1)
    *reports, summary = map(json.loads, out.splitlines())
    assert err == ""
    assert {Path(line["source"]).name: line for line in reports} == lines(tmp_path / "out")
    assert summary["summary"]["outcomes"] == {"converted": 4, "no attention": 1, "refused": 1, "crashed": 0}
    out, err = run(*options, "--quiet", code=1)
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"{models}/broken.keras is a zip archive")


def test_the_summary_can_be_shown_again(models, tmp_path):
    for number in range(5):
        shutil.copyfile(models / "broken.keras", models / f"broken{number}.keras")
    shown, _ = run("batch", models, "--out", tmp_path / "out", "--reference", "none", code=1)
    again, _ = run("report", tmp_path / "out" / "report.jsonl")
    assert again == shown
    assert "refused, ReadError, 6 ×: is a zip archive that ends too early or is damaged" in again
    assert "  and 3 more" in again
    every, _ = run("report", tmp_path / "out" / "report.jsonl", "--all")
    assert all(f"  {models}/broken{number}.keras" in every for number in range(5))
    document = json.loads(run("report", tmp_path / "out" / "report.jsonl", "--json")[0])
    assert [len(entry["sources"]) for entry in document["failures"]] == [6]


@pytest.mark.parametrize("content", [b"{}\n", b"[1]\n", b"no json\n", b'{"source": "x", "outcome": "fine"}\n'])
def test_what_is_no_report_is_refused(tmp_path, content):
    (tmp_path / "report.jsonl").write_bytes(content)
    _, err = run("report", tmp_path / "report.jsonl", code=1)
    assert err == (
        f"error: {tmp_path}/report.jsonl: line 1 is not a line of a report, expected what batch writes. "
        "Pass a report.jsonl of mha-convert.\n"
    )


def test_nothing_is_replaced_unless_it_is_asked_for(models, tmp_path):
    out = tmp_path / "out"
    (out / "deep").mkdir(parents=True)
    (out / "deep" / "textbook.safetensors").write_text("mine")
    for option in ((), ("--resume",)):
        _, err = run("batch", models, "--out", out, *option, code=1)
        assert err == (
            f"error: {out}/deep/textbook.safetensors exists already, and no run that could be resumed has written it. "
            "Move it, or use --overwrite.\n"
        )
    assert tree_of(out) == {"deep/textbook.safetensors": sha256(b"mine").hexdigest()}
    run("batch", models, "--out", out, "--overwrite", "--reference", "none", code=1)
    _, err = run("batch", models, "--out", out, code=1)
    assert err == f"error: {out}/report.jsonl is of an earlier run. Use --resume to continue, or --overwrite.\n"


def done_now(models, out, **options):
    """What a resumed run does, by file name."""
    reports = mha_convert.convert_many(models, out, resume=True, reference="none", **options)
    return {Path(report.source).name: report.outcome for report in reports}


def test_a_resumed_run_does_what_is_not_finished(models, tmp_path):
    out = tmp_path / "out"
    first = done_now(models, out)
    assert len(first) == 6
    assert done_now(models, out) == {"broken.keras": "refused"}, "refused sources are tried again"

    (out / "six_heads.safetensors").unlink()
    target = out / "deep" / "textbook.safetensors"
    target.write_bytes(target.read_bytes()[::-1])
    assert set(done_now(models, out)) == {"broken.keras", "six_heads.keras", "textbook.keras"}

    shutil.copyfile(models / "deep" / "textbook.keras", models / "broken.keras")
    with h5py.File(models / "deep" / "er" / "translator.h5", "r+") as file:
        change(file, 1)
    assert done_now(models, out) == {"broken.keras": "converted", "translator.h5": "converted"}

    os.utime(models / "six_heads.keras")
    assert done_now(models, out) == {}, "another time, but the same bytes"

    before = (models / "deep" / "er" / "translator.h5").stat()
    with h5py.File(models / "deep" / "er" / "translator.h5", "r+") as file:
        change(file, 2)
    os.utime(models / "deep" / "er" / "translator.h5", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert done_now(models, out) == {"translator.h5": "converted"}, "other bytes under the old time"

    assert len(done_now(models, out, layout="linear")) == 6, "other options"
    assert done_now(models, out, layout="linear") == {}
    fresh = {report.source: report for report in read_report(out / "report.jsonl")}
    for report in fresh.values():
        if report.target:
            assert report.target_sha256 == sha256(Path(report.target).read_bytes()).hexdigest()


def test_options_in_files_count_with_their_content(models, tmp_path):
    (models / "mha-convert.toml").write_text('prefix = "a.{name}."\n')
    assert len(done_now(models, tmp_path / "out")) == 6
    assert set(done_now(models, tmp_path / "out")) == {"broken.keras"}
    (models / "mha-convert.toml").write_text('prefix = "b.{name}."\n')
    assert len(done_now(models, tmp_path / "out")) == 6
    stored = mha_convert.open_target(tmp_path / "out" / "six_heads.safetensors")
    assert all(key.startswith("b.attention.") for key in stored.shapes)


def test_a_half_written_line_is_no_line(models, tmp_path):
    out = tmp_path / "out"
    done_now(models, out)
    report = out / "report.jsonl"
    whole = report.read_text().splitlines(keepends=True)
    report.write_text("".join(whole[:-1]) + whole[-1][:40])
    left = Path(json.loads(whole[-1])["source"]).name
    assert set(done_now(models, out)) == {left, "broken.keras"}
    assert all(line.endswith("}") and json.loads(line) for line in report.read_text().splitlines())


def test_two_runs_never_share_a_folder(many, tmp_path):
    first = start("batch", many, "--out", "out", cwd=tmp_path)
    wait_for(lambda: (tmp_path / "out" / "report.jsonl").exists())
    _, err = run("batch", many, "--out", "out", "--resume", cwd=tmp_path, code=1)
    assert "out: another run of batch is writing to it. Wait until it has ended, or use another --out." in err
    first.communicate(timeout=SECONDS)
    assert first.returncode == 0
    assert len(lines(tmp_path / "out")) == MANY


def test_the_first_failure_ends_a_run_that_shall_fail_fast(models, tmp_path):
    out, _ = run("batch", models, "--out", tmp_path / "out", "--fail-fast", "--jobs", 1, code=1)
    assert len(lines(tmp_path / "out")) < 6
    assert "sources were not started. Continue with --resume." in out
    run("batch", models, "--out", tmp_path / "out", "--resume", code=1)
    assert len(lines(tmp_path / "out")) == 6


EXECUTORS = {
    "threads": lambda: ThreadPoolExecutor(2),
    "processes": lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn")),
}


@pytest.mark.parametrize("name", EXECUTORS)
def test_any_executor_will_do(models, tmp_path, name):
    with EXECUTORS[name]() as executor:
        reports = list(mha_convert.convert_many(models, tmp_path / "out", executor=executor, reference="none"))
    assert sorted(report.outcome for report in reports) == ["converted"] * 4 + ["no attention", "refused"]


def test_a_process_serves_many_sources_and_ends_with_the_run(many, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(converting, "start", counting(converting.start, started))
    reports = list(mha_convert.convert_many(many, tmp_path / "out", jobs=2, reference="none"))
    assert len(reports) == MANY
    assert len(started) == 2
    assert all(child.popen.poll() is not None for child in started)


def counting(original, started):
    """The function that starts a process, which also notes it."""

    def start():
        started.append(original())
        return started[-1]

    return start


UNRULY = """
import json, os, signal, sys, time
sys.path[:] = sys.argv[1:]
from mha_convert.batch import worker
plain = worker.convert_task

def convert_task(task):
    source = task["source"]
    if "once" in source and not os.path.exists(source + ".mark"):
        open(source + ".mark", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    if "segfault" in source:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "killed" in source:
        os.kill(os.getpid(), signal.SIGKILL)
    if "exit" in source:
        os._exit(3)
    if "hang" in source:
        time.sleep(600)
    if "bug" in source:
        import mha_convert.pipeline
        mha_convert.pipeline.convert_file = lambda *a, **k: 1 / 0
    if "print" in source:
        print("noise"); os.write(1, b"more noise")
    return plain(task)

worker.convert_task = convert_task
worker.main()
"""


def test_whatever_happens_to_a_process_costs_one_file(samples, tmp_path, monkeypatch):
    monkeypatch.setattr(converting, "python", lambda module: [sys.executable, "-c", UNRULY, *sys.path])
    folder = tmp_path / "models"
    folder.mkdir()
    names = ("a", "bug", "exit", "hang", "killed", "once", "print", "segfault", "z")
    for name in names:
        shutil.copyfile(samples / "textbook.keras", folder / f"{name}.keras")
    reports = mha_convert.convert_many(folder, tmp_path / "out", jobs=2, timeout=10, reference="none")
    found = {Path(report.source).stem: report for report in reports}
    outcomes = {
        name: (report.outcome, report.error["kind"] if report.error else None) for name, report in found.items()
    }
    assert outcomes == {
        "a": ("converted", None),
        "bug": ("crashed", "bug"),
        "exit": ("crashed", "exit code 3"),
        "hang": ("crashed", "timeout"),
        "killed": ("crashed", "SIGKILL"),
        "once": ("converted", None),
        "print": ("converted", None),
        "segfault": ("crashed", "SIGSEGV"),
        "z": outcomes["z"],
    }
    place = f"{folder}/"
    messages = {name: report.error["message"].removeprefix(place) for name, report in found.items() if report.error}
    assert messages["hang"] == "hang.keras was not done after 10 s. Use a longer --timeout, or look at the file."
    assert messages["segfault"].startswith("segfault.keras: the process that converted it ended (SIGSEGV), 2 times.")
    assert "It may have run out of memory: use fewer --jobs." in messages["killed"]
    assert messages["bug"].startswith("bug.keras stopped with ZeroDivisionError: division by zero. This is a bug")


def wait_for(condition, process=None):
    """Until it holds."""
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.01)


def converters(process):
    """The processes that convert for a command."""
    found = psutil.Process(process.pid).children()
    return [child for child in found if any("batch.worker" in part for part in child.cmdline())]


def count(folder):
    """Lines in the report so far."""
    report = folder / "report.jsonl"
    return report.read_bytes().count(b"\n") if report.exists() else 0


def whole(out):
    """Every source has its target, and nothing else is there."""
    found = lines(out)
    assert {line["outcome"] for line in found.values()} == {"converted"}
    assert len(found) == MANY
    assert set(tree_of(out)) == {"report.jsonl", *(f"{number:02}.safetensors" for number in range(MANY))}
    for line in found.values():
        assert sha256((out.parent / line["target"]).read_bytes()).hexdigest() == line["target_sha256"]
        assert sha256((out.parent / line["source"]).read_bytes()).hexdigest() == line["source_sha256"]


def test_a_worker_that_is_killed_costs_nothing(many, tmp_path):
    process = start("batch", many, "--out", "out", "--jobs", 2, cwd=tmp_path)
    for number in (3, 12):
        wait_for(lambda number=number: count(tmp_path / "out") >= number, process)
        converters(process)[0].kill()
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    whole(tmp_path / "out")


def test_a_run_that_is_killed_is_gone_on_with(many, tmp_path):
    process = start("batch", many, "--out", tmp_path / "out", "--jobs", 2, cwd=tmp_path)
    wait_for(lambda: count(tmp_path / "out") >= 10, process)
    orphans = converters(process)
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(orphans, timeout=30)
    assert not alive, "the workers end with the run"
    before = count(tmp_path / "out")
    assert 10 <= before < MANY
    out, err = run("batch", many, "--out", tmp_path / "out", "--resume", "--jobs", 2, cwd=tmp_path)
    assert err.count("\n") == MANY - before
    assert f"{before} of them an earlier run had finished." in out
    whole(tmp_path / "out")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_whole_targets_and_nothing_else(many, tmp_path, number):
    process = start(
        "batch", many, "--out", "out", "--jobs", 2, cwd=tmp_path, process_group=0, preexec_fn=as_in_a_terminal
    )
    wait_for(lambda: count(tmp_path / "out") >= 5, process)
    workers = converters(process)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("Interrupted: ")
    assert not psutil.wait_procs(workers, timeout=30)[1]
    found = lines(tmp_path / "out")
    for path in (tmp_path / "out").glob("*.safetensors"):
        assert mha_convert.open_target(path).description
    assert not list((tmp_path / "out").glob(".*"))
    assert len(found) < MANY
    run("batch", many, "--out", "out", "--resume", cwd=tmp_path)
    whole(tmp_path / "out")


def test_a_consumer_may_stop_early(many, tmp_path):
    reports = mha_convert.convert_many(many, tmp_path / "out", jobs=2, reference="none")
    first = next(reports)
    assert first.outcome == "converted"
    reports.close()
    assert not [child for child in psutil.Process().children() if "batch.worker" in " ".join(child.cmdline())]
    assert count(tmp_path / "out") == 1


def test_a_task_is_small(models, tmp_path):
    """Nothing but paths and options goes to a worker."""
    tasks = plan_batch(models, tmp_path / "out").tasks
    assert max(len(json.dumps(task)) for task in tasks) < 1000


def test_a_bar_with_failures_above_it_on_a_terminal(models, tmp_path):
    import pty

    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "batch", models, "--out", tmp_path / "out", "--reference", "none"],
        stdout=subprocess.DEVNULL,
        stderr=child,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(child)
    shown = bytearray()

    def read():
        while part := safe_read(parent):
            shown.extend(part)

    reader = threading.Thread(target=read)
    reader.start()
    assert process.wait(SECONDS) == 1
    reader.join(SECONDS)
    os.close(parent)
    text = shown.decode()
    assert "refused: " in text
    assert "converting" in text
    assert "6/6" in text
    assert "/s" in text


def safe_read(descriptor):
    """What a terminal shows; nothing when the other end is closed."""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""


def test_a_process_that_died_while_it_waited_is_replaced_and_leaves_no_pipe():
    kept = converting.Kept()
    dead = kept.take()
    kept.give_back(dead, True)
    dead.popen.kill()
    dead.popen.wait()
    other = kept.take()
    assert other is not dead and other.popen.poll() is None
    assert dead.popen.stdin.closed and dead.popen.stdout.closed
    kept.end()
    assert other.popen.stdin.closed


def test_a_process_that_is_asked_nothing_ends_by_itself():
    """While a thread of it still waits for a task."""
    code = "from mha_convert.batch import worker; worker.IDLE = 0.2; worker.main()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.wait(60) == 0
    assert process.communicate() == (None, b"")
