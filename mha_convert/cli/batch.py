"""The verbs for many files: ``batch``, and ``report`` of what it did."""

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..options import BatchOptions
from .options import Json, taking
from .screen import bar_of_files, complain, print_json, show
from .verbs import app, example

if TYPE_CHECKING:
    from ..batch.record import SourceReport


@app.command(
    epilog=example(
        "mha-convert batch models --out converted",
        "mha-convert batch @list.txt 's3://bucket/**/*.keras' --out converted --jobs 4 --resume",
    )
)
@taking(BatchOptions)
def batch(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="Saved Keras models, folders that are searched for them, globs, @list.txt with one of these in each "
            "line, URLs of these.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="Where the targets go, in the sources' tree; may be a URL.",
            show_default=False,
        ),
    ],
    *,
    dask: Annotated[
        str | None,
        typer.Option(
            "--dask",
            metavar="ADDRESS",
            help="Work on the Dask cluster with this scheduler (tcp://host:8786) instead of on this machine.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show failures only.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each source, and one for the summary.")
    ] = False,
    **options: Any,
) -> None:
    """Convert many models; a report next to the targets has a line for each, and no failure stops the others."""
    if dask is not None and "jobs" in options:
        raise typer.BadParameter("--jobs is for this machine; on a cluster its workers decide. Leave out one of them.")
    from ..batch.cluster import dask_executor
    from ..batch.run import plan_batch, run_batch
    from ..batch.summary import Summary, summary_as_json, summary_as_text
    from ..signals import note_instead

    planned = plan_batch(sources, out, **options)
    summary, total = Summary(), len(planned.tasks) + len(planned.finished)
    for done in planned.finished:
        summary.add(done)
    with ExitStack() as stack:
        executor = stack.enter_context(dask_executor(dask)) if dask is not None else None
        note_instead(lambda: f"{summary.total} of {total} sources are in {out}/report.jsonl; continue with --resume.")
        shown = stack.enter_context(batch_progress(len(planned.tasks), quiet, as_json))
        for done in run_batch(planned, executor=executor):
            summary.add(done)
            shown(done)
    left = total - summary.total
    if as_json:
        print_json(summary_as_json(summary, earlier=len(planned.finished), left=left), indent=None)
    elif not quiet:
        show(summary_as_text(summary, earlier=len(planned.finished), left=left))
    if summary.has_failed:
        raise typer.Exit(1)


@app.command(epilog=example("mha-convert report converted/report.jsonl"))
def report(
    place: Annotated[
        str, typer.Argument(metavar="REPORT", help="A report.jsonl that batch wrote.", show_default=False)
    ],
    every: Annotated[bool, typer.Option("--all", help="Name all sources of a kind of failure.")] = False,
    as_json: Json = False,
) -> None:
    """Show the summary of a batch again, with its failures sorted by kind."""
    from ..batch.journal import read_report
    from ..batch.summary import latest, summary_as_json, summary_as_text, summary_of

    summary = summary_of(latest(read_report(place)))
    if as_json:
        print_json(summary_as_json(summary))
    else:
        show(summary_as_text(summary, every=every))


@contextmanager
def batch_progress(total: int, quiet: bool, as_json: bool) -> "Iterator[Callable[[SourceReport], None]]":
    """Shows each source as it ends: lines of JSON; a bar with failures above it on a terminal; else plain lines."""
    from ..batch.record import FINISHED, failure, line

    if as_json:
        yield lambda report: print_json(report.to_dict(), indent=None)
    elif quiet:
        yield lambda report: None if report.outcome in FINISHED else complain(failure(report))
    elif sys.stderr.isatty():
        with bar_of_files(total) as shown:
            yield shown
    else:
        count = itertools.count(1)
        yield lambda report: complain(f"{next(count)}/{total} {line(report)}")
