"""Our end of a process of our own: start it, speak with it within a time, end it, and know why it ended."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import inf
from typing import IO, Any

from .deadline import Deadline
from .messages import Channel, Message

LAST_WORDS = 64 << 10  # bytes of its stderr
DYING = 5.0  # seconds for a process that has closed its pipes
GONE = (EOFError, OSError, ValueError)  # ValueError: no message, or a pipe that ``end`` closed in another thread


class Ended(Exception):  # noqa: N818 - an answer, no error of ours
    """The process ended instead of answering.

    Args:
        code: its exit code, or minus the number of the signal that ended it.
        in_time: False where it was killed because its time was over.
        said: the end of what it wrote to stderr, where that was kept.
    """

    def __init__(self, code: int, *, in_time: bool = True, said: str = "") -> None:
        super().__init__(code)
        self.code, self.in_time, self.said = code, in_time, said

    @property
    def signal(self) -> str:
        """The name of the signal that ended it; ``""`` where none did."""
        if self.code >= 0:
            return ""
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


class Child:
    """A process that hears messages and answers them; it ends with this one, as its input does.

    Args:
        command: as ``command.python`` makes it.
        environment: its variables; None for those of this process.
        errors: an open file for what it writes to stderr, which is thrown away without one.
        grace: seconds that it has to clean up when it is ended while it works.

    Raises:
        OSError: it does not start.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        errors: IO[bytes] | None = None,
        grace: float = 0.0,
    ) -> None:
        self.errors, self.grace = errors, grace
        self.owner, self.is_wanted = os.getpid(), True
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if errors is None else errors,
            env=environment,
        )
        assert self.popen.stdin and self.popen.stdout
        self.channel = Channel(self.popen.stdout, self.popen.stdin)
        self.deadline = Deadline(self.popen.kill)

    @property
    def is_ours(self) -> bool:
        """Whether this process started it; after a fork it is our parent's."""
        return self.owner == os.getpid()

    @property
    def is_running(self) -> bool:
        """Whether it can be asked something."""
        return self.is_ours and self.popen.poll() is None

    def say(self, words: Mapping[str, Any], *blocks: bytes | memoryview) -> None:
        """Send it a message.

        Raises:
            Ended: it is gone.
        """
        try:
            self.channel.say(words, *blocks)
        except GONE as error:
            raise self.ended() from error

    def hear(self) -> Message:
        """Wait for its message.

        Raises:
            Ended: it is gone.
        """
        try:
            return self.channel.hear()
        except GONE as error:
            raise self.ended() from error

    @contextmanager
    def exchange(self, seconds: float = inf) -> Iterator[None]:
        """Speak with it in the block, for so many seconds at most.

        An exchange that is interrupted, by whatever error, cannot be taken up again, and the process is ended.
        """
        self.deadline.move(seconds)
        try:
            yield
        except Ended:
            raise
        except BaseException:
            self.end()
            raise
        finally:
            self.deadline.move(inf)

    @contextmanager
    def waits(self, seconds: float) -> Iterator[None]:
        """In the block, which is part of an exchange, it waits for us; then it has so many seconds again."""
        self.deadline.move(inf)
        yield
        self.deadline.move(seconds)

    def ended(self) -> Ended:
        """Why it is gone. It may be ending just now by itself, and then its code says why."""
        code = self.dismiss(DYING)
        return Ended(code, in_time=not self.deadline.has_passed, said=self.last_words())

    def dismiss(self, seconds: float | None = None) -> int:
        """Nothing more is asked of it: it ends by itself, or by force after so many seconds. Returns its code."""
        self.close(self.popen.stdin)
        return self.wait(seconds)

    def end(self) -> int:
        """End it, whatever it does. Returns its code."""
        self.is_wanted = False
        if self.is_ours and self.grace:
            self.popen.terminate()
        return self.wait(self.grace)

    def wait(self, seconds: float | None) -> int:
        """Until it is gone, which is by force after so many seconds; our ends of its pipes are closed."""
        if self.is_ours:
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(seconds)
            self.popen.kill()
            self.popen.wait()
            self.deadline.end()
        else:
            self.popen.returncode = 0  # nothing for us to wait for
        self.close(self.popen.stdin)
        self.close(self.popen.stdout)
        return self.popen.returncode

    def close(self, pipe: IO[bytes] | None) -> None:
        """Close our end; what was not sent yet nobody reads."""
        with suppress(OSError):
            if pipe:
                pipe.close()

    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        if self.errors is None:
            return ""
        size = self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, size - LAST_WORDS))
        return self.errors.read().decode("utf-8", "replace")
