"""The verbs for many files: ``batch``, and ``report`` of what it did."""

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..options import ConvertOptions
from .options import Json, taking
from .screen import bar_of_files, print_json, show
from .verbs import app, example

if TYPE_CHECKING:
    from ..batch.record import SourceReport


@app.command(
    epilog=example(
        "mha-convert batch models --out converted",
        "mha-convert batch @list.txt 's3://bucket/**/*.keras' --out converted --jobs 4 --resume",
    )
)
@taking(ConvertOptions)
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
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern",
            metavar="GLOB",
            help="Which files of a folder are models, by name or path in it.",
            show_default="all with Keras' suffixes, and SavedModels",
        ),
    ] = None,
    suffix: Annotated[Literal["safetensors", "pt"], typer.Option("--format", help="Of the targets.")] = "safetensors",
    keep_suffix: Annotated[
        bool,
        typer.Option("--keep-suffix", help="Call the target of a.h5 a.h5.safetensors, where a.keras is there too."),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            metavar="N",
            min=1,
            help="Sources at once, each in a process.",
            show_default="by cores and memory",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on: leave what an earlier run finished, if nothing changed since.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin anew, and replace existing targets.")] = False,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Begin no further source after one that was refused or crashed.")
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1, help="What one source may take.")
    ] = 3600,
    dask: Annotated[
        str | None,
        typer.Option(
            "--dask",
            metavar="ADDRESS",
            help="Work on the Dask cluster with this scheduler (tcp://host:8786) instead of here.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show failures only.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each source, and one for the summary.")
    ] = False,
    **options: Any,
) -> None:
    """Convert many models; a report with a line for each goes beside the targets, and one failure stops no other."""
    if dask is not None and jobs is not None:
        raise typer.BadParameter("--jobs is for this machine; on a cluster its workers decide. Leave out one of them.")
    from ..batch.cluster import dask_executor
    from ..batch.run import plan_batch, run_batch
    from ..batch.summary import Summary, summary_as_json, summary_as_text
    from ..signals import note_instead

    planned = plan_batch(
        sources,
        out,
        jobs=jobs,
        pattern=pattern,
        format=suffix,
        keep_suffix=keep_suffix,
        resume=resume,
        overwrite=overwrite,
        fail_fast=fail_fast,
        timeout=timeout,
        **options,
    )
    summary, total = Summary(), len(planned.tasks) + len(planned.finished)
    for done in planned.finished:
        summary.add(done)
    with ExitStack() as stack:
        executor = stack.enter_context(dask_executor(dask)) if dask is not None else None
        note_instead(lambda: f"{summary.total} of {total} sources are in {out}/report.jsonl; go on with --resume.")
        shown = stack.enter_context(batch_progress(len(planned.tasks), quiet, as_json))
        for done in run_batch(planned, executor=executor):
            summary.add(done)
            shown(done)
    left = total - summary.total
    if as_json:
        typer.echo(json.dumps({"summary": summary_as_json(summary, earlier=len(planned.finished), left=left)}))
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
    from ..batch.record import FINISHED
    from ..batch.summary import failure, line

    if as_json:
        yield lambda report: typer.echo(json.dumps(report.as_json()))
    elif quiet:
        yield lambda report: None if report.outcome in FINISHED else typer.echo(failure(report), err=True)
    elif sys.stderr.isatty():
        with bar_of_files(total) as shown:
            yield shown
    else:
        count = itertools.count(1)
        yield lambda report: typer.echo(f"{next(count)}/{total} {line(report)}", err=True)
