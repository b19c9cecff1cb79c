"""Our end of the process that reads HDF5: started early, used for many files, replaced after a crash."""

import atexit
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from threading import Condition, Lock, Thread
from time import monotonic, sleep
from typing import IO, Any

from ...errors import ReadError
from ..child import python
from .messages import receive, send

Fetch = Callable[[int, int], bytes]
MOST = 1 << 30  # bytes of an answer's JSON
SILENCE = 60.0  # seconds by the clock that a busy machine may add to those of a processor
LOOK_AGAIN = 1.0  # second
SILENT = 1 << 16  # no return code
MODULE = "mha_convert.files.hdf5.worker"
NO_PLUGINS = "::"
NOT_OURS = ("HDF5_", "PYTHON")


class Watch:
    """Ends a process that says nothing for too long: one that was stopped takes no processor time, which is limited."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.process: subprocess.Popen[bytes] | None = None
        self.patience, self.until, self.gave_up = 0.0, inf, False
        self.thread: Thread | None = None

    @contextmanager
    def over(self, process: "subprocess.Popen[bytes]", patience: float) -> Iterator[None]:
        """Watch over the block; 0 waits for ever."""
        self.patience, self.gave_up = patience, False
        self.expect()
        if patience:
            with self.changed:
                self.process = process
                self.changed.notify()
            if self.thread is None or not self.thread.is_alive():  # a fork has none
                self.thread = Thread(target=self.wait, daemon=True)
                self.thread.start()
        try:
            yield
        finally:
            with self.changed:
                self.process = None

    def expect(self) -> None:
        """From now on the process is to say something."""
        self.until = monotonic() + self.patience

    def pause(self) -> None:
        """From now on it waits for us."""
        self.until = inf

    def wait(self) -> None:
        """Kill the process when its time is over; what waits for it then hears that it is gone."""
        while True:
            with self.changed:
                while self.process is None:
                    self.changed.wait()
                left = self.until - monotonic()
                if left <= 0:
                    self.gave_up = True
                    self.process.kill()
                    self.process = None
            sleep(min(max(left, 0.0), LOOK_AGAIN))


class Worker:
    """The process. A request is answered before the next one is taken, whatever thread asks."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.owner = 0
        self.lock = Lock()
        self.watch = Watch()

    def start(self) -> subprocess.Popen[bytes]:
        """Begin early: it loads h5py while we load the rest."""
        if self.process is not None and self.owner == os.getpid() and self.process.poll() is None:
            return self.process
        self.forget()
        environment = {name: text for name, text in os.environ.items() if not name.startswith(NOT_OURS)}
        environment |= {"HDF5_PLUGIN_PRELOAD": NO_PLUGINS, "HDF5_USE_FILE_LOCKING": "FALSE"}
        environment["OPENBLAS_NUM_THREADS"] = "1"
        try:
            self.process = subprocess.Popen(
                python(MODULE, folders=folders(), site=False),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        except OSError as error:
            raise ReadError(
                f"HDF5: the Python that should read it, {sys.executable!r}, does not start: {error.strerror}. "
                "Run mha-convert in an ordinary Python."
            ) from error
        self.owner = os.getpid()
        return self.process

    def ask(self, request: dict[str, Any], fetch: Fetch) -> tuple[dict[str, Any], bytes]:
        """The answer and its payload; ``fetch(start, size)`` gives bytes of the file.

        Raises:
            EOFError: the process ended; its return code is the argument, or ``SILENT``.
        """
        with self.lock:
            process = self.start()
            assert process.stdin and process.stdout
            try:
                with self.watch.over(process, patience(request["seconds"])):
                    send(process.stdin, request)
                    while True:
                        answer = receive(process.stdout, MOST)
                        if "start" not in answer:
                            return answer, exactly(process.stdout, answer["payload"])
                        self.watch.pause()
                        content = fetch(answer["start"], answer["size"])
                        self.watch.expect()
                        process.stdin.write(content)
                        process.stdin.flush()
            except (EOFError, BrokenPipeError, ValueError) as error:
                code = self.stop()
                raise EOFError(SILENT if self.watch.gave_up else code) from error
            except BaseException:  # an interrupted exchange cannot be taken up again
                self.stop()
                raise

    def stop(self) -> int:
        """End the process; its return code."""
        process = self.process
        if process is None or self.owner != os.getpid():
            return 0
        with suppress(OSError):
            if process.stdin:
                process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)  # it may be ending by itself, and then its return code tells why
        process.kill()
        code = process.wait()
        self.forget()
        return code

    def forget(self) -> None:
        """Close our ends of its pipes; after a fork the process is our parent's."""
        process, self.process = self.process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):
                if stream:
                    stream.close()
        if self.owner != os.getpid():
            process.returncode = 0


def patience(seconds: float) -> float:
    """Seconds by the clock for what may take so many of a processor; 0 is any number."""
    return seconds and SILENCE + 10 * seconds


def exactly(source: IO[bytes], size: int) -> bytes:
    """Read ``size`` bytes, no fewer."""
    content = source.read(size)
    if len(content) < size:
        raise EOFError
    return content


def folders() -> list[str]:
    """Where h5py, NumPy and this package are; the process sees no other folder."""
    specs = [importlib.util.find_spec(name) for name in ("h5py", "numpy")]
    found = [str(Path(spec.origin).parent.parent) for spec in specs if spec and spec.origin]
    return list(dict.fromkeys([*found, str(Path(__file__).parents[3])]))


def why_ended(code: int, seconds: float) -> tuple[str, str]:
    """What a return code says of the file: the kind of refusal, and the fact."""
    if code == SILENT:
        return (
            "silent",
            f"was read by a process that said nothing for {patience(seconds):.0f} s, and may have been stopped",
        )
    if hasattr(signal, "SIGXCPU") and code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "limit", f"takes the HDF5 library more than {seconds:.0f} s to read"
    name = signal.Signals(-code).name if code < 0 else f"code {code}"
    return "damaged", f"makes the HDF5 library crash ({name})"


_worker = Worker()
start, ask = _worker.start, _worker.ask


@atexit.register
def _end() -> None:
    """Leave no process behind; it answers nobody any more."""
    if _worker.process is not None and _worker.owner == os.getpid():
        _worker.process.kill()
        _worker.process.wait()
        _worker.forget()
