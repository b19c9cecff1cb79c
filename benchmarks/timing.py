"""The time of a call inside a process."""

import time
from collections.abc import Callable
from statistics import median

LEAST = 0.1


def seconds(call: Callable[[], object], least: float = LEAST) -> float:
    """Median seconds of a call, repeated for a while; the first call wakes the threads and is left out."""
    call()
    times: list[float] = []
    while sum(times) < least:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return median(times)
