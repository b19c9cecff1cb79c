"""One module for all processes of our own: messages both ways, deadlines, and why a process ended."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from io import BytesIO

import numpy as np
import pytest

from mha_convert.files.child.arrays import arrays_of, blocks_of, rows_of
from mha_convert.files.child.command import python
from mha_convert.files.child.messages import LENGTH, Channel
from mha_convert.files.child.process import Child, Ended

pytestmark = pytest.mark.process
SECONDS = 20
ECHO = """
import os, sys, time
from contextlib import suppress
from mha_convert.files.child.messages import to_parent

def main():
    parent = to_parent()
    print("printed"); os.write(1, b"written")
    with suppress(EOFError, BrokenPipeError):
        while True:
            words, blocks = parent.hear()
            if "sleep" in words:
                time.sleep(words["sleep"])
            if "end" in words:
                sys.exit(words["end"])
            if "raise" in words:
                raise ValueError(words["raise"])
            parent.say(words, *blocks)
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a process that echoes, sleeps or ends, as it is told."""
    (tmp_path / "echoes.py").write_text(ECHO)
    monkeypatch.syspath_prepend(tmp_path)
    started = []

    def start(**options):
        started.append(Child(python("echoes"), **options))
        return started[-1]

    yield start
    for child in started:
        child.end()


def said(words, *blocks):
    """The bytes of a message."""
    out = BytesIO()
    Channel(BytesIO(), out).say(words, *blocks)
    return out.getvalue()


def test_words_and_blocks_come_back_as_they_were(start):
    blocks = [b"", b"\0\n\xff", os.urandom(3 << 20)]
    words = {"name": "Ä\udcff\n", "rows": [1, 2.5, None, True]}
    child = start()
    for _ in range(3):
        child.say(words, *blocks)
        assert child.hear() == (words, blocks)
    assert child.dismiss() == 0


def test_arrays_come_back_as_they_were(start):
    arrays = {
        "scalar": np.float64(3.5),
        "nothing": np.empty((0, 3), "f4"),
        "flags": np.array([[True, False]]),
        "big-endian": np.arange(6, dtype=">i4").reshape(2, 3),
        "strided": np.arange(24.0).reshape(4, 6)[::2, ::3].T,
        "block/0": np.random.default_rng(0).standard_normal((300, 400)),
    }
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    child = start()
    child.say({"arrays": rows_of(arrays)}, *blocks_of(arrays))
    words, blocks = child.hear()
    found = arrays_of(words["arrays"], blocks)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)


def test_arrays_are_sent_from_where_they_are():
    array = np.arange(12.0).reshape(3, 4)
    (block,) = blocks_of({"x": array})
    assert np.shares_memory(np.frombuffer(block, np.uint8), array)


@pytest.mark.parametrize("left", [1, 3, 10, -1])
def test_a_message_that_is_cut_off_is_the_end(left):
    with pytest.raises(EOFError):
        Channel(BytesIO(said({"a": 1}, b"12345")[:left]), BytesIO()).hear()


@pytest.mark.parametrize("text", [LENGTH.pack(3) + b"[1,", LENGTH.pack(0xFFFFFFFF)])
def test_what_is_not_a_message_is_refused(text):
    with pytest.raises(ValueError):
        Channel(BytesIO(text), BytesIO()).hear()


@pytest.mark.parametrize(("words", "code", "name"), [({"end": 0}, 0, ""), ({"end": 3}, 3, "")])
def test_why_a_process_ended(start, words, code, name):
    child = start()
    with pytest.raises(Ended) as caught, child.exchange(SECONDS):
        child.say(words)
        child.hear()
    assert (caught.value.code, caught.value.signal, caught.value.in_time) == (code, name, True)
    assert child.popen.stdin.closed and child.popen.stdout.closed and not child.is_running


@pytest.mark.skipif(not hasattr(signal, "SIGSEGV") or os.name == "nt", reason="no such signals")
def test_the_signal_that_ended_a_process_has_its_name(start):
    child = start()
    child.say({"sleep": SECONDS})
    child.popen.send_signal(signal.SIGSEGV)
    with pytest.raises(Ended) as caught:
        child.hear()
    assert caught.value.signal == "SIGSEGV" and caught.value.code == -signal.SIGSEGV
    assert Ended(-40).signal in ("signal 40", "SIGRT_6")
    with pytest.raises(Ended):  # also where the first that fails is to speak
        child.say({"big": "x" * (1 << 20)})


def test_the_last_words_are_kept_where_there_is_a_file_for_them(start, tmp_path):
    with (tmp_path / "errors").open("w+b") as errors:
        child = start(errors=errors)
        child.say({"raise": "of its own"})
        with pytest.raises(Ended) as caught:
            child.hear()
        assert {"ValueError: of its own", "printed"} <= set(caught.value.said.splitlines())


def test_a_process_that_does_not_answer_in_time_is_killed(start):
    child = start()
    with child.exchange(SECONDS):
        child.say({})
        child.hear()
    began = time.monotonic()
    with pytest.raises(Ended) as caught, child.exchange(0.5):
        child.say({"sleep": 600})
        child.hear()
    assert not caught.value.in_time and time.monotonic() - began < SECONDS


def test_time_in_which_the_process_waits_for_us_does_not_count(start):
    child = start()
    with child.exchange(1.5):
        child.say({})
        child.hear()
        with child.waits(1.5):
            time.sleep(3)
        child.say({"sleep": 0.5})
        child.hear()
    time.sleep(2)  # nor the time between exchanges
    assert child.is_running


def test_an_exchange_that_an_error_interrupts_ends_the_process(start):
    child = start()
    with pytest.raises(ZeroDivisionError), child.exchange():
        child.say({"sleep": 600})
        raise ZeroDivisionError
    assert not child.is_running and not child.is_wanted


def test_a_process_that_another_thread_ends_is_heard_to_be_gone(start):
    child = start(grace=SECONDS)
    child.say({"sleep": 600})
    threading.Timer(0.5, child.end).start()
    with pytest.raises(Ended), child.exchange():
        child.hear()
    assert not child.is_wanted


def test_a_process_ends_with_its_parent(tmp_path):
    (tmp_path / "echoes.py").write_text(ECHO)
    folders = [str(tmp_path), *sys.path]
    program = f"""
import os, sys
sys.path[:] = {folders!r}
from mha_convert.files.child.command import python
from mha_convert.files.child.process import Child
child = Child(python("echoes"))
child.say({{}})
child.hear()
print(child.popen.pid, flush=True)
os._exit(0)
"""
    pid = int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
    until = time.monotonic() + SECONDS
    with suppress(ProcessLookupError):
        while time.monotonic() < until:
            os.kill(pid, 0)
            time.sleep(0.05)
        raise AssertionError("it is still there")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_after_a_fork_the_process_is_the_parents(start):
    child = start()
    child.say({})
    child.hear()
    pid = os.fork()
    if not pid:
        with suppress(BaseException):
            assert not child.is_running
            child.end()
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    child.say({"still": "there"})
    assert child.hear().words == {"still": "there"}
