"""An end to waiting for a process: one that hangs or was stopped never answers, and takes no processor time."""

from collections.abc import Callable
from math import inf
from threading import Condition, Thread
from time import monotonic, sleep

LOOK_AGAIN = 1.0  # second


class Deadline:
    """Kills a process at a time that moves while it is spoken with.

    A thread looks at the clock once a second at most, so that moving the deadline costs nothing.

    Args:
        kill: ends the process; whoever waits for it hears that it is gone.
    """

    def __init__(self, kill: Callable[[], None]) -> None:
        self.kill = kill
        self.until, self.has_passed, self.is_needed = inf, False, True
        self.changed = Condition()
        self.thread: Thread | None = None

    def move(self, seconds: float) -> None:
        """So many seconds from now; ``inf`` for ever."""
        with self.changed:
            self.until = monotonic() + seconds
            self.changed.notify()
        if self.thread is None and seconds < inf:
            self.thread = Thread(target=self.watch, daemon=True)
            self.thread.start()

    def end(self) -> None:
        """The process is gone."""
        with self.changed:
            self.is_needed = False
            self.changed.notify()

    def watch(self) -> None:
        """Kill the process when its time is over."""
        while True:
            with self.changed:
                while self.until == inf and self.is_needed:
                    self.changed.wait()
                left = self.until - monotonic()
                if not self.is_needed:
                    return
                if left <= 0:
                    self.has_passed = True
                    self.kill()
                    return
            sleep(min(left, LOOK_AGAIN))
