"""A batch: what is to be done is settled first, then an executor does it, and each line is written as it comes."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import ReadError, WriteError, bounded
from ..files.locations import Location, StrPath, exists, is_endless, is_remote, locate, name_of, store_errors
from ..options import RUN, BatchOptions, Run, check_word
from ..readers import SUFFIXES
from ..targets import open_target
from ..targets.names import without_suffix
from .converting import convert_source, end_processes
from .files import file_sha256, sha256_of, state_of
from .journal import NAME, open_journal, read_report
from .record import FINISHED, SourceReport
from .settings import given, reader_of
from .sources import Source, find

if TYPE_CHECKING:
    from typing_extensions import Unpack

MEMORY_EACH = 1 << 30  # bytes: torch takes a third of it, the rest is for the largest layer
MEMORY_FREE = Path("/proc/meminfo")
SHOWN = 3
TICK = 2.0  # seconds without an answer, after which an executor is asked whether it is still there
Task = dict[str, Any]  # see ``convert_source``
Futures = dict["Future[dict[str, Any]]", Task]
Ended = SimpleQueue["Future[dict[str, Any]]"]


@dataclass(frozen=True)
class Batch:
    """What a run will do: ``tasks``; ``finished`` are the lines of sources that an earlier run has done."""

    out: Location
    tasks: Sequence[Task]
    finished: Sequence[SourceReport] = ()
    run: Run = field(default_factory=Run)


def convert_many(
    sources: StrPath | Sequence[StrPath],
    out: StrPath,
    *,
    executor: Executor | None = None,
    **options: "Unpack[BatchOptions]",
) -> Iterator[SourceReport]:
    """Convert many sources, each as ``convert_file`` does, and yield what became of each as it ends.

    Every line is in ``report.jsonl`` in ``out`` before it is yielded. A source that is refused or crashes costs
    itself only; each is converted in a process of its own, which is kept for the next one.

    Args:
        sources: files, folders (searched), globs, ``@list.txt`` with one of these in each line, and URLs of these.
        out: the folder, or its URL; the tree of the sources is kept in it.
        executor: any executor of ``concurrent.futures``, also a Dask client's (``client.get_executor()``); None makes
            ``jobs`` threads here, each with its process.
        options: those of a run: ``jobs``, ``pattern``, ``format``, ``keep_suffix``, ``resume``, ``overwrite``,
            ``fail_fast`` and ``timeout``, see ``mha_convert.options.Run``; and those of ``convert_file``, see
            ``Options``, which come before those of a ``mha-convert.toml`` next to the sources.

    Raises:
        ReadError, LayerError, LayoutError: no sources, or options that cannot be; nothing was begun.
        WriteError: two sources would have one target, targets are there already, or ``out`` cannot be written to.
    """
    batch = plan_batch(sources, out, **options)
    return run_batch(batch, executor=executor)


def sorted_options(options: Mapping[str, Any]) -> tuple[Run, dict[str, Any]]:
    """The options of the run, and those of each conversion."""
    return (
        Run(**{name: value for name, value in options.items() if name in RUN}),
        {name: value for name, value in options.items() if name not in RUN},
    )


def plan_batch(sources: StrPath | Sequence[StrPath], out: StrPath, **options: "Unpack[BatchOptions]") -> Batch:
    """What ``convert_many`` would do, and whatever is wrong with it; nothing is written."""
    run, each = sorted_options(options)
    check_word("format", run.format, RUN["format"].words)
    if run.resume and run.overwrite:
        raise WriteError(f"{out}: --resume keeps what is finished, --overwrite does not. Use one of them.")
    found = find([sources] if isinstance(sources, str | os.PathLike) else sources, run.pattern)
    settings_of, folder = reader_of(given(each)), locate(out)
    claims = claimed(found, folder, run.format, run.keep_suffix)
    threads = max(1, cores() // (run.jobs or default_jobs()))
    tasks: list[Task] = [
        {
            "source": source.place,
            "target": target,
            "folder": working_folder(),
            **dict(zip(("settings", "digest"), settings_of(source.settings), strict=True)),
            "timeout": run.timeout,
            "threads": threads,
        }
        for target, source in claims.items()
    ]
    earlier = {report.source: report for report in report_of(folder)} if run.resume else {}
    finished = [earlier[task["source"]] for task in tasks if is_finished(task, earlier.get(task["source"]))]
    done = {report.source for report in finished}
    left = [task for task in tasks if task["source"] not in done]
    if not run.overwrite:
        refuse_existing(left, folder, earlier, resume=run.resume)
    return Batch(folder, left, finished, run)


def claimed(found: Iterable[Source], folder: Location, suffix: str, keep_suffix: bool) -> dict[str, Source]:
    """Each target with the source that it belongs to.

    Raises:
        WriteError: two sources claim one target.
    """
    claims: dict[str, Source] = {}
    for source in found:
        path = folder / f"{stem(source, keep_suffix)}.{suffix}"
        if leads_out(source.tree, path, folder):
            raise WriteError(f"{source.place} would be written outside {folder}. Name it without '..'.")
        target = str(path)
        if target in claims:
            raise WriteError(
                f"{target} would be the target of '{claims[target].place}' and of "
                f"'{source.place}'. Use --keep-suffix, or convert them into two folders."
            )
        claims[target] = source
    return claims


def leads_out(tree: str, target: Location, folder: Location) -> bool:
    """Whether a target is not below the folder; names in stores may be what only some systems take for a path."""
    if ".." in PurePosixPath(tree).parts:
        return True
    if not isinstance(folder, Path) or not isinstance(target, Path):
        return False
    return not target.is_relative_to(folder) or ".." in target.relative_to(folder).parts


def stem(source: Source, keep_suffix: bool) -> str:
    """A target's place in the tree, without its suffix."""
    tree = PurePosixPath(source.tree if source.tree != "." else name_of(source.place.rstrip("/")))
    return str(tree if keep_suffix else tree.parent / without_suffix(tree.name, SUFFIXES))


def report_of(folder: Location) -> Iterator[SourceReport]:
    """The lines of an earlier run; none where there was none."""
    with store_errors(folder):
        if exists(folder / NAME):
            yield from read_report(str(folder / NAME))


def is_finished(task: Task, report: SourceReport | None) -> bool:
    """Whether an earlier run did this task: with these options, from this source, and the target is still there.

    A source whose sizes and times are the same counts as the same; of others the SHA-256 decides.
    """
    if report is None or report.outcome not in FINISHED or report.settings != task["digest"]:
        return False
    if report.outcome == "converted" and not is_intact(task["target"], report):
        return False
    state = state_of(task["source"])
    if state is not None and state == report.state:
        return True
    with suppress(OSError, ReadError):  # whoever converts it says what is wrong
        return report.source_sha256 is not None and sha256_of(task["source"]) == report.source_sha256
    return False


def is_intact(target: str, report: SourceReport) -> bool:
    """Whether the target is where the report says, byte for byte; one in a store only has to be there."""
    path = locate(target)
    with store_errors(path):
        if report.target != target or not exists(path):
            return False
        if not is_remote(path) and is_endless(path):
            return False
        return is_remote(path) or file_sha256(path) == report.target_sha256


def refuse_existing(
    tasks: Sequence[Task], folder: Location, earlier: Mapping[str, SourceReport], *, resume: bool
) -> None:
    """Replace nothing that no run has written.

    Raises:
        WriteError: a report or a target is there, and nobody said what to do with it.
    """
    with store_errors(folder):
        if not resume and exists(folder / NAME):
            raise WriteError(f"{folder / NAME} is of an earlier run. Use --resume to continue, or --overwrite.")
        taken = [task["target"] for task in tasks if exists(locate(task["target"]))]
    known = {report.target for report in earlier.values()}
    foreign = [target for target in taken if not (resume and (target in known or is_ours(target)))]
    if foreign:
        more = f" and {len(foreign) - SHOWN} more" if len(foreign) > SHOWN else ""
        raise WriteError(
            f"{', '.join(foreign[:SHOWN])}{more} exists already, and no run that could be resumed has written it. "
            "Move it, or use --overwrite."
        )


def is_ours(target: str) -> bool:
    """Whether a target says of itself that this package made it: of a run that was killed before it could report it."""
    with suppress(ReadError):
        return bool(open_target(target).description)
    return False


def run_batch(batch: Batch, *, executor: Executor | None = None) -> Iterator[SourceReport]:
    """Run a planned batch; see ``convert_many``. The report is opened, and work begins, with the first line.

    Raises:
        WriteError: the report cannot be written, or the executor ended before the work did.
    """
    journal = open_journal(batch.out, keep=batch.run.resume)
    with ExitStack() as stack:
        stack.callback(journal.close)
        workers = executor or stack.enter_context(ThreadPoolExecutor(batch.run.jobs or default_jobs()))
        stack.callback(end_processes)
        futures: Futures = {}
        stack.callback(cancel, futures)
        ended: Ended = SimpleQueue()
        for task in batch.tasks:
            future = submit(workers, task)
            futures[future] = task
            future.add_done_callback(ended.put)
        is_stopped = False
        for future in each_ended(futures, ended, workers):
            if future.cancelled() and not is_stopped:
                break
            task = futures.pop(future)
            if future.cancelled():
                continue
            report = outcome(future, task)
            journal.write(report)
            yield report
            if batch.run.fail_fast and report.outcome not in FINISHED:
                is_stopped = True
                cancel(futures)
        refuse_lost(futures, journal.place)


def submit(workers: Executor, task: Task) -> "Future[dict[str, Any]]":
    """Give a task to the executor; one that takes none any more has lost it."""
    try:
        return workers.submit(convert_source, task)
    except Exception as error:  # every executor has errors of its own
        future: Future[dict[str, Any]] = Future()
        future.set_exception(error)
        return future


def each_ended(futures: Futures, ended: Ended, workers: Executor) -> "Iterator[Future[dict[str, Any]]]":
    """Those that end, as they end, until there are no more or the executor is gone."""
    while futures:
        try:
            yield ended.get(timeout=TICK)
        except Empty:
            if is_gone(workers):
                return


def is_gone(workers: Executor) -> bool:
    """Whether it is a Dask client's, and has lost its scheduler: some of its futures never end then."""
    client = getattr(workers, "_client", None)
    return getattr(client, "status", "running") != "running"


def refuse_lost(futures: Futures, report: Location) -> None:
    """Say so where the executor dropped what we did not cancel.

    Raises:
        WriteError: some are left.
    """
    count = len(futures)
    futures.clear()  # there is nobody to cancel them
    if count:
        raise WriteError(
            f"{report} is not complete: the executor dropped {count} source{'s' * (count != 1)}. "
            "Look at its scheduler, and continue with --resume."
        )


def cancel(futures: Futures) -> None:
    """Begin none of those that have not begun."""
    for future in list(futures):
        future.cancel()


def outcome(future: "Future[dict[str, Any]]", task: Task) -> SourceReport:
    """The line of a task that has ended."""
    error = future.exception()
    if error is None:
        return SourceReport(**future.result())
    message = (
        f"{task['source']}: the executor lost it ({type(error).__name__}: {error}). Look at its workers, and --resume."
    )
    return SourceReport(
        source=task["source"],
        target=None,
        outcome="crashed",
        error={"kind": type(error).__name__, "message": bounded(message)},
        settings=task["digest"],
        version=__version__,
    )


def working_folder() -> str:
    """Where relative paths begin, for machines and processes that work elsewhere; none where it was removed."""
    with suppress(OSError):
        return str(Path.cwd())
    return ""


def default_jobs() -> int:
    """As many as there are cores, and memory for."""
    with suppress(OSError):
        fields = dict(line.split(":", 1) for line in MEMORY_FREE.read_text().splitlines())
        return max(1, min(cores(), int(fields["MemAvailable"].split()[0]) * 1024 // MEMORY_EACH))
    return cores()


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
