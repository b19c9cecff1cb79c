"""The marker ``process`` is true: a test without it cannot start a process, by itself or by a fixture."""

import subprocess
import sys

import pytest
from environment import SUPPORT

TESTS = """
import multiprocessing
import os
import subprocess
import sys
import threading

import pytest

DONE = [sys.executable, "-c", ""]


@pytest.fixture(scope="module")
def silent():
    subprocess.run(DONE, check=True)

@pytest.fixture(scope="module")
def declared(starts_processes):
    subprocess.run(DONE, check=True)

@pytest.fixture
def of_one_test():
    subprocess.run(DONE, check=True)

@pytest.fixture
def above(declared):
    pass


@pytest.mark.process
def test_good_marked(of_one_test):
    subprocess.run(DONE, check=True)

def test_good_by_a_fixture_of_a_fixture(above):
    os.system("true")

def test_good_in_one_process():
    from mha_convert.files.hdf5 import process
    assert process.start().poll() is None

def test_bad_subprocess():
    subprocess.run(DONE, check=True)

def test_bad_shell():
    os.system("true")

def test_bad_fork():
    if not os.fork():
        os._exit(0)

def test_bad_spawn():
    multiprocessing.get_context("spawn").Process(target=print).start()

def test_bad_although_it_is_caught():
    with pytest.raises(BaseException):
        subprocess.run(DONE, check=True)

def test_bad_in_a_thread():
    def run():
        with pytest.raises(BaseException):
            subprocess.run(DONE, check=True)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

def test_bad_by_a_fixture(of_one_test):
    pass

@pytest.mark.process
def test_bad_as_the_fixture_serves_others_too(silent):
    pass
"""


def run(folder, *options):
    """What became of each test."""
    (folder / "conftest.py").write_text('pytest_plugins = ["process_marker"]')
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pytest.ini").write_text(f"[pytest]\nmarkers = process\npythonpath = {SUPPORT}\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-rA", "--tb=line", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    lines = [line.split()[:2] for line in done.stdout.splitlines() if line.startswith(("PASSED", "FAILED", "ERROR"))]
    return {name.partition("::test_")[2]: outcome for outcome, name in lines}, done.stdout


@pytest.mark.process
def test_an_unmarked_test_cannot_start_a_process(tmp_path):
    found, shown = run(tmp_path)
    assert len(found) == TESTS.count("def test_")
    assert {name for name, outcome in found.items() if outcome == "PASSED"} == {
        name for name in found if name.startswith("good")
    }, shown
    assert "test_it.py::test_bad_fork starts a process and is not marked: os.fork(). Mark the test with" in shown
    assert "fixture silent starts a process" in shown


@pytest.mark.process
def test_what_uses_a_declared_fixture_is_marked_before_it_is_selected(tmp_path):
    found, _ = run(tmp_path, "-m", "process", "-k", "good")
    assert found.keys() == {"good_marked", "good_by_a_fixture_of_a_fixture"}
