"""Our end of the process that reads HDF5: started early, used for many files, replaced after a crash."""

import atexit
import importlib.util
import os
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from threading import Lock
from typing import Any

from ...errors import ReadError
from ..child.command import python
from ..child.messages import Message
from ..child.process import Child, Ended

Fetch = Callable[[int, int], bytes]
SILENCE = 60.0  # seconds by the clock that a busy machine may add to those of a processor
MODULE = "mha_convert.files.hdf5.worker"
NO_PLUGINS = "::"
NOT_OURS = ("HDF5_", "PYTHON")
OUT_OF_TIME = ("SIGXCPU", "SIGKILL")  # at the soft limit of processor time, and at the hard one


class Reader:
    """The process, a new one where the last one ended. A request is answered before the next, whatever thread asks."""

    def __init__(self) -> None:
        self.child: Child | None = None
        self.lock = Lock()

    def start(self) -> Child:
        """Begin early: it loads h5py while we load the rest.

        Raises:
            ReadError: there is no Python to start.
        """
        if self.child is not None and self.child.is_running:
            return self.child
        self.stop()
        environment = {name: text for name, text in os.environ.items() if not name.startswith(NOT_OURS)}
        environment |= {"HDF5_PLUGIN_PRELOAD": NO_PLUGINS, "HDF5_USE_FILE_LOCKING": "FALSE"}
        environment["OPENBLAS_NUM_THREADS"] = "1"
        try:
            self.child = Child(python(MODULE, folders=folders(), site=False), environment=environment)
        except OSError as error:
            raise ReadError(
                f"HDF5: the Python that should read it, {sys.executable!r}, does not start: {error.strerror}. "
                "Run mha-convert in an ordinary Python."
            ) from error
        return self.child

    def ask(self, request: dict[str, Any], fetch: Fetch) -> Message:
        """The answer, with the bytes of an array; ``fetch(start, size)`` gives bytes of the file.

        Raises:
            Ended: the process ended, or said nothing for too long.
        """
        with self.lock:
            child, seconds = self.start(), patience(request["seconds"])
            with child.exchange(seconds):
                child.say(request)
                while "start" in (answer := child.hear()).words:
                    with child.waits(seconds):
                        content = fetch(answer.words["start"], answer.words["size"])
                    child.say({}, content)
                return answer

    def stop(self) -> None:
        """End the process; after a fork, leave it to our parent."""
        child, self.child = self.child, None
        if child is not None:
            child.end()


def patience(seconds: float) -> float:
    """Seconds by the clock for what may take so many of a processor; 0 is any number."""
    return SILENCE + 10 * seconds if seconds else inf


def folders() -> list[str]:
    """Where h5py, NumPy and this package are; the process sees no other folder."""
    specs = [importlib.util.find_spec(name) for name in ("h5py", "numpy")]
    found = [str(Path(spec.origin).parent.parent) for spec in specs if spec and spec.origin]
    return list(dict.fromkeys([*found, str(Path(__file__).parents[3])]))


def why_ended(ended: Ended, seconds: float) -> tuple[str, str]:
    """What the end of the process says of the file: the kind of refusal, and the fact."""
    if not ended.in_time:
        return (
            "silent",
            f"was read by a process that said nothing for {patience(seconds):.0f} s, and may have been stopped",
        )
    if ended.signal in OUT_OF_TIME:
        return "limit", f"takes the HDF5 library more than {seconds:.0f} s to read"
    return "damaged", f"makes the HDF5 library crash ({ended.signal or f'code {ended.code}'})"


_reader = Reader()
start, ask = _reader.start, _reader.ask
atexit.register(_reader.stop)  # it answers nobody any more
