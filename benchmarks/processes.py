"""What one process costs from start to end: time and memory, as Linux counts them."""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

INTERVAL = 0.003
UNUSUAL = ("PYTHONDONTWRITEBYTECODE",)  # with it, Python compiles our sources again at every start


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds, and bytes of memory at the peak.

    ``resident`` is the largest resident set, with pages of mapped files that the system may take back at any time;
    ``anonymous`` is what cannot be taken back, seen by looking every few milliseconds.
    """

    seconds: float
    resident: int
    anonymous: int


def cost(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> Cost:
    """Run a command on its own; RuntimeError with its output if it fails."""
    with tempfile.TemporaryFile() as messages, ThreadPoolExecutor(1) as pool:
        os.sync()  # what was written before must not slow this down
        begin = time.perf_counter()
        process = subprocess.Popen(
            command, env=usual_environment() | (environment or {}), stdout=subprocess.DEVNULL, stderr=messages
        )
        anonymous = pool.submit(largest_anonymous, process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            messages.seek(0)
            raise RuntimeError(f"{command}: exit code {process.returncode}: {messages.read()[-2000:].decode()}")
        return Cost(seconds=seconds, resident=usage.ru_maxrss * 1024, anonymous=anonymous.result())


def usual_environment() -> dict[str, str]:
    """The environment of this process, as a user has it."""
    return {name: value for name, value in os.environ.items() if name not in UNUSUAL}


def largest_anonymous(pid: int) -> int:
    """Samples memory until the process has ended."""
    largest = 0
    while now := anonymous_bytes(pid):
        largest = max(largest, now)
        time.sleep(INTERVAL)
    return largest


def anonymous_bytes(pid: int) -> int:
    """Anonymous memory of a running process; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    match = re.search(r"RssAnon:\s+(\d+) kB", status)
    return int(match[1]) * 1024 if match else 0
