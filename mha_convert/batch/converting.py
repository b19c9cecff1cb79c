"""One source, converted by a process of its own that is kept for the next one; any executor may call this.

The process costs its start once, and nobody else when it crashes or hangs. It ends when this one does.
"""

import atexit
import json
import os
import signal
import subprocess
from contextlib import suppress
from threading import Event, Lock, Timer
from typing import Any

from .. import __version__
from ..files.child import python
from .files import state_of

MODULE = "mha_convert.batch.worker"
ATTEMPTS = 2  # a process that was killed may have been killed by mistake
GRACE = 5  # seconds to remove a draft


class Ended(Exception):  # noqa: N818 - an answer, not an error of ours
    """The process ended instead of answering."""

    def __init__(self, code: int, in_time: bool) -> None:
        super().__init__(code)
        self.code, self.in_time = code, in_time


class Process:
    """A process that converts; one task at a time."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.is_wanted = True
        self.popen = subprocess.Popen(
            python(MODULE),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"OPENBLAS_NUM_THREADS": "1", **os.environ},
            encoding="utf-8",
        )

    def ask(self, task: dict[str, Any]) -> dict[str, Any]:
        """The record; raises ``Ended`` where there is none, also because there is no time left."""
        assert self.popen.stdin and self.popen.stdout
        too_late = Event()
        timer = Timer(task["timeout"], self.kill, [too_late])
        timer.daemon = True
        timer.start()
        line = ""
        try:
            with suppress(BrokenPipeError, ValueError):  # ValueError: closed by ``end``
                self.popen.stdin.write(json.dumps(task) + "\n")
                self.popen.stdin.flush()
                line = self.popen.stdout.readline()
        finally:
            timer.cancel()
        if not line.endswith("\n"):
            raise Ended(self.end(), not too_late.is_set())
        record: dict[str, Any] = json.loads(line)
        return record

    def kill(self, too_late: Event) -> None:
        """Kill it when its time is over."""
        too_late.set()
        self.popen.kill()

    def end(self) -> int:
        """End it, by force if need be; its exit code."""
        self.popen.terminate()
        try:
            code = self.popen.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            code = self.popen.wait()
        self.close()
        return code

    def close(self) -> None:
        """Close our ends of its pipes."""
        for stream in (self.popen.stdin, self.popen.stdout):
            with suppress(OSError):
                if stream:
                    stream.close()


class Kept:
    """The processes of this one: those that work, and those that wait for a task."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.working: set[Process] = set()
        self.waiting: list[Process] = []

    def take(self) -> Process:
        """One that waits, or a new one; after a fork those that there are belong to the parent."""
        with self.lock:
            while self.waiting:
                process = self.waiting.pop()
                if process.owner == os.getpid() and process.popen.poll() is None:
                    break
                process.close()
            else:
                process = Process()
            self.working.add(process)
        return process

    def give_back(self, process: Process, is_usable: bool) -> None:
        """Keep it for the next task, unless it ended."""
        with self.lock:
            self.working.discard(process)
            if is_usable:
                self.waiting.append(process)

    def end(self) -> None:
        """End all processes."""
        with self.lock:
            processes = [*self.waiting, *self.working]
            self.waiting.clear()
        for process in processes:
            process.is_wanted = False
            if process.owner == os.getpid():
                process.end()


_kept = Kept()
end_processes = atexit.register(_kept.end)


def convert_source(task: dict[str, Any]) -> dict[str, Any]:
    """Convert one source; whatever happens to the process that does it, there is a record.

    Args:
        task: ``source``, ``target``, the ``folder`` where relative paths begin, ``settings`` and their ``digest``,
            ``timeout`` in seconds, ``threads``.
    """
    for attempt in range(1, ATTEMPTS + 1):
        process = _kept.take()
        try:
            record = process.ask(task)
        except Ended as ended:
            _kept.give_back(process, False)
            if not process.is_wanted:
                raise
            if not ended.in_time or attempt == ATTEMPTS:
                return lost(task, ended)
        except BaseException:
            process.end()
            _kept.give_back(process, False)
            raise
        else:
            _kept.give_back(process, True)
            return record
    raise AssertionError


def lost(task: dict[str, Any], ended: Ended) -> dict[str, Any]:
    """The record of a source whose process ended."""
    source = task["source"]
    if not ended.in_time:
        kind = "timeout"
        message = f"{source} was not done after {task['timeout']:g} s. Use a longer --timeout, or look at the file."
    else:
        kind = signal.Signals(-ended.code).name if ended.code < 0 else f"exit code {ended.code}"
        step = "It may have run out of memory: use fewer --jobs" if kind == "SIGKILL" else "Please report this"
        message = f"{source}: the process that converted it ended ({kind}), {ATTEMPTS} times. {step}."
    return {
        "source": source,
        "target": None,
        "outcome": "crashed",
        "error": {"kind": kind, "message": message},
        "state": state_of(source),
        "settings": task["digest"],
        "version": __version__,
    }
