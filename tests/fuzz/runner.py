"""Runs mutants in worker processes, each of which handles many; if one dies, it is replaced and the mutant reported."""

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from .mutations import Mutant, mutate
from .seeds import Seed
from .trial import FAILURES, FINE, WALL, Outcome, timed

PATIENCE = 2 * WALL  # until a worker that its own alarm does not reach is ended
FORK = multiprocessing.get_context("fork")
Task = tuple[int, int]  # which seed, and the mutation's number


@dataclass(frozen=True)
class Finding:
    """One mutant with what became of it."""

    seed: str
    format: str
    number: int
    outcome: Outcome
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether it is to be mended."""
        return self.outcome.kind not in FINE


@dataclass
class Summary:
    """All that happened in a run."""

    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def failures(self) -> list[Finding]:
        """Those to be mended."""
        return [finding for finding in self.findings if finding.failed]

    @property
    def counts(self) -> Counter[str]:
        """Mutants by outcome."""
        return Counter(finding.outcome.kind for finding in self.findings)

    def table(self) -> str:
        """Outcomes by format, as text."""
        kinds = [kind for kind in (*FINE, *FAILURES) if self.counts[kind]]
        cells = Counter((finding.format, finding.outcome.kind) for finding in self.findings)
        formats = sorted({finding.format for finding in self.findings})
        lines = ["".join(f"{text:>15}" for text in ("", *kinds, "all"))]
        for name in [*formats, "all"]:
            row = [self.counts[kind] if name == "all" else cells[name, kind] for kind in kinds]
            lines.append("".join(f"{text!s:>15}" for text in (name, *row, sum(row))))
        rate = len(self.findings) / max(self.seconds, 1e-9)
        return "\n".join([*lines, f"{len(self.findings)} mutants in {self.seconds:.0f} s, {rate:.1f} in a second"])


def tasks(seeds: Sequence[Seed], mutants: int, first: int) -> Iterator[Task]:
    """So many mutants, the seeds in turn; ``first`` begins another series."""
    for index in range(mutants):
        yield index % len(seeds), first * 1_000_000 + index // len(seeds)


def work(pipe: Connection, seeds: Sequence[Seed]) -> None:
    """A worker: mutants until there are none."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import torch

    import mha_convert.verification  # noqa: F401 - loaded before the first alarm is set

    torch.set_num_threads(1)
    pipe.send(None)
    while (task := pipe.recv()) is not None:
        seed, number = task
        pipe.send(timed(mutate(seeds[seed], number, seeds)))


@dataclass
class Worker:
    """Our end of one process, with what it has in hand since when."""

    seeds: Sequence[Seed]
    process: Any = None
    pipe: Any = None
    task: Task | None = None
    since: float = 0.0

    def start(self) -> None:
        """Begin, or begin again."""
        self.pipe, theirs = FORK.Pipe()
        self.process = FORK.Process(target=work, args=(theirs, self.seeds), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.recv()

    def give(self, task: Task) -> None:
        """One mutant."""
        self.task, self.since = task, time.monotonic()
        self.pipe.send(task)

    def taken(self) -> tuple[Outcome, float] | None:
        """What became of it; None while it is in hand."""
        if self.pipe.poll():
            try:
                found: tuple[Outcome, float] = self.pipe.recv()
                return found
            except EOFError:
                self.process.join()
                return self.ended("crash", f"the process ended with {self.process.exitcode}")
        if time.monotonic() - self.since > PATIENCE:
            self.process.kill()
            self.process.join()
            return self.ended("hang", f"not even the alarm came through in {PATIENCE} s")
        return None

    def ended(self, kind: str, detail: str) -> tuple[Outcome, float]:
        """The process is gone: another one takes its place."""
        seconds = time.monotonic() - self.since
        self.pipe.close()
        self.start()
        return Outcome(kind, detail), seconds

    def stop(self) -> None:
        """No more mutants."""
        self.pipe.send(None)
        self.process.join(5)
        self.process.kill()


def run(
    seeds: Sequence[Seed], *, mutants: int, first: int, jobs: int, minutes: float = 1e9, save: Path | None = None
) -> Iterator[tuple[Finding, float]]:
    """Every mutant with what became of it, and the seconds since the beginning."""
    begin = time.monotonic()
    left = tasks(seeds, mutants, first)
    workers = [Worker(seeds) for _ in range(jobs)]
    for worker in workers:
        worker.start()
        if (task := next(left, None)) is not None:
            worker.give(task)
    while busy := [worker for worker in workers if worker.task is not None]:
        wait([worker.pipe for worker in busy], timeout=1)
        for worker in busy:
            found = worker.taken()
            if found is None or worker.task is None:
                continue
            (index, number), (outcome, seconds) = worker.task, found
            worker.task = None
            finding = Finding(seeds[index].name, seeds[index].format, number, outcome, seconds)
            if save and finding.failed:
                keep(save, mutate(seeds[index], number, seeds))
            over = time.monotonic() - begin > minutes * 60
            if not over and (task := next(left, None)) is not None:
                worker.give(task)
            yield finding, time.monotonic() - begin
    for worker in workers:
        worker.stop()


def keep(folder: Path, mutant: Mutant) -> None:
    """Write a mutant's files, to look at them."""
    place = folder / mutant.name.replace("/", "_")
    for name, content in mutant.files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
