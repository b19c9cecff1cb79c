"""Standard streams that are closed, readers that go away, and locales without UTF-8 (issue 12, point 12)."""

import json
import os
import shutil
import subprocess
import sys

import pytest

COMMAND = f"{sys.executable} -m mha_convert"
pytestmark = [pytest.mark.process, pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")]


def bash(script, folder, **environment):
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=os.environ | environment, capture_output=True, timeout=120, check=False
    )


@pytest.fixture
def folder(samples, tmp_path):
    shutil.copy(samples / "six_heads.keras", tmp_path / "m.keras")
    return tmp_path


@pytest.mark.parametrize(
    "verb", ["inspect m.keras", "inspect m.keras --json", "explain m.keras", "convert m.keras x.pt", "--help"]
)
def test_a_closed_output_is_refused_before_any_work(verb, folder):
    done = bash(f"{COMMAND} {verb} >&-", folder)
    assert done.returncode == 1
    assert done.stderr == b"error: Standard output is closed. Redirect it: > FILE, or > /dev/null.\n"
    assert [path.name for path in folder.iterdir()] == ["m.keras"]


def test_closed_streams_do_not_get_the_numbers_of_files(folder):
    """A file that is opened while stderr is closed would be number 2, and what goes wrong would be written into it."""
    done = bash(f"{COMMAND} convert m.keras x.safetensors 2>&- 0<&-; echo $?", folder)
    assert done.stdout.rstrip().endswith(b"0") and b"Proven" in done.stdout
    plain = bash(f"{COMMAND} convert m.keras y.safetensors", folder)
    assert plain.returncode == 0
    assert (folder / "x.safetensors").read_bytes() == (folder / "y.safetensors").read_bytes()
    assert bash(f"{COMMAND} convert nosuch x.pt 2>&- >&-; echo $?", folder).stdout == b"1\n"


@pytest.mark.parametrize(
    "verb", ["inspect m.keras", "inspect m.keras --json", "explain m.keras", "convert m.keras x.pt", "--help"]
)
def test_a_reader_that_goes_away_ends_the_command_in_silence(verb, folder):
    done = bash(f"{COMMAND} {verb} | true; echo ${{PIPESTATUS[0]}}", folder)
    assert (done.stdout, done.stderr) == (b"141\n", b"")


def test_errors_whose_reader_goes_away_are_no_tracebacks(folder):
    done = bash(f"{COMMAND} inspect nosuch 2>&1 >out | true; echo ${{PIPESTATUS[0]}}", folder)
    assert (done.stdout, done.stderr) == (b"141\n", b"")


def test_names_that_the_locale_does_not_know(folder):
    """A name in another script, and one that is no text, in a locale that knows ASCII alone."""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for name in ("модель.keras".encode(), b"mod\xe9l.keras"):
        shutil.copy(folder / "m.keras", os.fsdecode(os.fsencode(folder) + b"/" + name))
    done = bash(f"{COMMAND} batch . --out out", folder, **plain)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (folder / "out" / "report.jsonl").read_text().splitlines()]
    assert [line["outcome"] for line in lines if "outcome" in line] == ["converted"] * 3
    for verb in ("inspect", "explain", "convert"):
        done = bash(f"{COMMAND} {verb} модель.keras", folder, **plain)
        assert done.returncode == 0 and not done.stderr, done.stderr
    assert (folder / "модель.safetensors").exists()
