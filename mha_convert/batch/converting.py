"""One source, converted by a process of its own that is kept for the next one; any executor may call this.

The process costs its start once, and nobody else when it crashes or hangs. It ends when this one does.
"""

import atexit
import os
from collections.abc import Mapping
from threading import Lock
from typing import Any

from .. import __version__
from ..files.child.command import python
from ..files.child.process import Child, Ended
from .files import state_of

MODULE = "mha_convert.batch.worker"
ATTEMPTS = 2  # a process that was killed may have been killed by mistake
GRACE = 5  # seconds to remove a draft


def start() -> Child:
    """A process that converts; one task at a time."""
    return Child(python(MODULE), environment={"OPENBLAS_NUM_THREADS": "1", **os.environ}, grace=GRACE)


def ask(child: Child, task: Mapping[str, Any]) -> dict[str, Any]:
    """The record; raises ``Ended`` where there is none, also because there is no time left."""
    with child.exchange(task["timeout"]):
        child.say(task)
        return child.hear().words


class Kept:
    """The processes of this one: those that work, and those that wait for a task."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.working: set[Child] = set()
        self.waiting: list[Child] = []

    def take(self) -> Child:
        """One that waits, or a new one; after a fork those that there are belong to the parent."""
        with self.lock:
            while self.waiting:
                child = self.waiting.pop()
                if child.is_running:
                    break
                child.dismiss()
            else:
                child = start()
            self.working.add(child)
        return child

    def give_back(self, child: Child, is_usable: bool) -> None:
        """Keep it for the next task, unless it ended."""
        with self.lock:
            self.working.discard(child)
            if is_usable:
                self.waiting.append(child)

    def end(self) -> None:
        """End all processes."""
        with self.lock:
            children = [*self.waiting, *self.working]
            self.waiting.clear()
        for child in children:
            child.end()


_kept = Kept()
end_processes = atexit.register(_kept.end)


def convert_source(task: dict[str, Any]) -> dict[str, Any]:
    """Convert one source; whatever happens to the process that does it, there is a record.

    Args:
        task: ``source``, ``target``, the ``folder`` where relative paths begin, ``settings`` and their ``digest``,
            ``timeout`` in seconds, ``threads``.
    """
    for attempt in range(1, ATTEMPTS + 1):
        child = _kept.take()
        try:
            record = ask(child, task)
        except Ended as ended:
            _kept.give_back(child, False)
            if not child.is_wanted:
                raise
            if not ended.in_time or attempt == ATTEMPTS:
                return lost(task, ended)
        except BaseException:
            _kept.give_back(child, False)
            raise
        else:
            _kept.give_back(child, True)
            return record
    raise AssertionError


def lost(task: dict[str, Any], ended: Ended) -> dict[str, Any]:
    """The record of a source whose process ended."""
    source = task["source"]
    if not ended.in_time:
        kind = "timeout"
        message = f"{source} was not done after {task['timeout']:g} s. Use a longer --timeout, or look at the file."
    else:
        kind = ended.signal or f"exit code {ended.code}"
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
