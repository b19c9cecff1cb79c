"""The process that reads HDF5: if it ends, that is an error, the next file is read, and it can open nothing."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace

import h5py
import numpy as np
import pytest

from mha_convert import read
from mha_convert.errors import ReadError
from mha_convert.files.hdf5 import process
from mha_convert.files.limits import NO_MODEL, RAISE, STRANGER
from mha_convert.files.source import Source
from mha_convert.readers.hdf5 import image as _hdf5
from mha_convert.readers.hdf5.image import Hdf5Image


def chunked(path, **options):
    """Weights in chunks, which the process has to read; returns its numbers."""
    numbers = np.arange(600, dtype="f4").reshape(20, 30)
    with h5py.File(path, "w") as file:
        file.create_dataset("layers/dense/vars/0", data=numbers, chunks=(7, 30), **options)
        file.create_group("vars")
    return numbers


def killed_by(number, monkeypatch):
    """From now on the process dies at the first bytes that it is given."""
    told = process.ask

    def ask(request, fetch):
        def deadly(start, size):
            process._reader.child.popen.send_signal(number)
            process._reader.child.popen.wait()
            return fetch(start, size)

        return told(request, deadly)

    monkeypatch.setattr(_hdf5, "ask", ask)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
def test_a_crash_of_the_library_is_an_error_and_the_next_file_is_read(number, samples, tmp_path, monkeypatch):
    chunked(tmp_path / "x.weights.h5")
    with monkeypatch.context() as patch:
        killed_by(number, patch)
        with pytest.raises(ReadError, match=rf"x.weights.h5: .* makes the HDF5 library crash \({number.name}\)"):
            read(tmp_path / "x.weights.h5")
    assert read(tmp_path / "x.weights.h5").variables
    assert read(samples / "six_heads.keras").variables


def test_a_process_that_takes_too_long_is_named_with_the_option_that_lets_it(tmp_path, monkeypatch):
    chunked(tmp_path / "x.weights.h5")
    killed_by(signal.SIGXCPU, monkeypatch)
    with pytest.raises(ReadError, match="more than 2 s to read. .*--trust"):
        read(tmp_path / "x.weights.h5")


def test_one_process_serves_many_files_and_threads(samples, tmp_path):
    numbers = chunked(tmp_path / "x.weights.h5", compression="gzip", shuffle=True, fletcher32=True)
    (variable,) = read(tmp_path / "x.weights.h5").variables
    first = process._reader.child.popen.pid
    found = []
    threads = [threading.Thread(target=lambda: found.append(variable.read())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and all(np.array_equal(array, numbers) for array in found)
    read(samples / "encoder.weights.h5")
    assert process._reader.child.popen.pid == first


@pytest.mark.process
def test_the_process_cannot_open_files(tmp_path):
    """HDF5 opens external storage by itself, if it is let; here it is asked for, past our own checks."""
    code = f"""
import io, os, sys
import h5py
import numpy as np
from mha_convert.files.hdf5 import worker
secret = {str(tmp_path / "secret.bin")!r}
np.ones(4, "f4").tofile(secret)
with h5py.File({str(tmp_path / "x.h5")!r}, "w") as file:
    file.create_dataset("out", (4,), "f4", external=[(secret, 0, 16)])
content = io.BytesIO(open({str(tmp_path / "x.h5")!r}, "rb").read())
assert h5py.File(content)["out"][0] == 1
worker.close_files()
for attempt in (lambda: h5py.File(content)["out"][0], lambda: open(secret), lambda: os.open("/", 0)):
    try:
        attempt()
    except OSError:
        continue
    sys.exit("it opened a file")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_plugins_are_off_and_nothing_of_the_environment_gets_in(monkeypatch, samples):
    process._reader.stop()
    for name in ("HDF5_PLUGIN_PATH", "HDF5_DRIVER", "PYTHONPATH", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, "/elsewhere")
    seen = {}
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *args, **kwargs: seen.update(kwargs["env"]) or popen(*args, **kwargs)
    )
    assert read(samples / "encoder.weights.h5").variables
    assert seen["HDF5_PLUGIN_PRELOAD"] == "::" and "/elsewhere" not in seen.values()


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_has_a_process_of_its_own(samples):
    read(samples / "encoder.weights.h5")
    ours = process._reader.child.popen.pid
    pid = os.fork()
    if not pid:
        with suppress(BaseException):
            read(samples / "encoder.weights.h5")
            other = process._reader.child.popen.pid
            process._reader.stop()
            os._exit(0 if other != ours else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert read(samples / "encoder.weights.h5").variables and process._reader.child.popen.pid == ours


def test_an_error_in_the_middle_of_an_exchange_does_not_spoil_the_next(tmp_path, samples, monkeypatch):
    """Another program cuts the file off after its length was asked for."""
    chunked(tmp_path / "x.weights.h5")
    image = Hdf5Image(Source(tmp_path / "x.weights.h5"))
    size = image.length
    os.truncate(tmp_path / "x.weights.h5", 700)
    with monkeypatch.context() as patch:
        patch.setattr(Source, "size", lambda source: size)
        with pytest.raises(ReadError, match="became shorter"), image.open():
            raise AssertionError
    copy = shutil.copy(samples / "encoder.weights.h5", tmp_path / "y.weights.h5")
    assert read(copy).variables


def test_trust_lifts_what_the_message_says(tmp_path, monkeypatch):
    chunked(tmp_path / "x.weights.h5")
    monkeypatch.setattr("mha_convert.files.limits.STRANGER", replace(STRANGER, objects=2))
    with pytest.raises(ReadError, match="more than 2 groups and arrays. .*--trust") as caught:
        read(tmp_path / "x.weights.h5")
    assert RAISE in str(caught.value)
    assert len(read(tmp_path / "x.weights.h5", trust=True).variables) == 1


def test_trust_holds_for_one_file(tmp_path, monkeypatch):
    """Also for what is read of it later, and for no other that is described meanwhile."""
    chunked(tmp_path / "x.weights.h5")
    monkeypatch.setattr("mha_convert.files.limits.STRANGER", replace(STRANGER, objects=2))
    (trusted,) = read(tmp_path / "x.weights.h5", trust=True).variables
    with pytest.raises(ReadError, match="groups and arrays") as caught:
        read(tmp_path / "x.weights.h5")
    assert RAISE in str(caught.value)
    assert trusted.read().shape == (20, 30)


def test_a_limit_that_trust_does_not_lift_does_not_name_it_when_arrays_are_read(tmp_path, monkeypatch):
    chunked(tmp_path / "x.weights.h5")
    (trusted,) = read(tmp_path / "x.weights.h5", trust=True).variables
    (other,) = read(tmp_path / "x.weights.h5").variables
    killed_by(signal.SIGXCPU, monkeypatch)
    for variable, next_step in ((trusted, NO_MODEL), (other, RAISE)):
        with pytest.raises(ReadError, match=next_step.replace("(", r"\(").replace(")", r"\)")):
            variable.read()


def test_links_in_a_folder_do_not_lead_out_of_it_but_in_the_cache_of_a_hub(samples, tmp_path):
    """An archive can hold links; the Hugging Face cache does, into its own ``blobs``."""
    folder = tmp_path / "snapshots" / "0123"
    (tmp_path / "blobs").mkdir()
    shutil.unpack_archive(samples / "six_heads.keras", folder, "zip")
    elsewhere, blob = tmp_path / "model.weights.h5", tmp_path / "blobs" / "abc"
    shutil.copy(folder / "model.weights.h5", blob)
    (folder / "model.weights.h5").replace(elsewhere)
    (folder / "model.weights.h5").symlink_to(blob)
    assert read(folder).variables
    (folder / "model.weights.h5").unlink()
    (folder / "model.weights.h5").symlink_to(elsewhere)
    with pytest.raises(ReadError, match="'model.weights.h5' is a link to a file elsewhere"):
        read(folder)
    assert read(folder, trust=True).variables


def test_a_process_that_was_stopped_is_given_up(samples, tmp_path, monkeypatch):
    """Point 12 of issue 12: SIGSTOP takes no processor time, and nobody may wake the process again."""
    monkeypatch.setattr(process, "patience", lambda seconds: 1.5)
    chunked(tmp_path / "x.weights.h5")
    with monkeypatch.context() as patch:
        told = process.ask

        def ask(request, fetch):
            def stopping(start, size):
                process._reader.child.popen.send_signal(signal.SIGSTOP)
                return fetch(start, size)

            return told(request, stopping)

        patch.setattr(_hdf5, "ask", ask)
        began = time.monotonic()
        with pytest.raises(
            ReadError, match=r"x.weights.h5: .* said nothing for 2 s, and may have been stopped. Run it again."
        ):
            read(tmp_path / "x.weights.h5")
    assert time.monotonic() - began < 20
    assert read(tmp_path / "x.weights.h5").variables


def test_a_process_that_waits_for_us_is_not_given_up(tmp_path, monkeypatch):
    """A store may be slow to give the bytes that the process asks for."""
    monkeypatch.setattr(process, "patience", lambda seconds: 1.5)
    chunked(tmp_path / "x.weights.h5")
    told, slept = process.ask, []

    def ask(request, fetch):
        def slow(start, size):
            if not slept:
                slept.append(time.sleep(4))
            return fetch(start, size)

        return told(request, slow)

    monkeypatch.setattr(_hdf5, "ask", ask)
    assert read(tmp_path / "x.weights.h5").variables and slept
