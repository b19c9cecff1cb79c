"""The verbs. Each parses, calls the library and prints its result.

Nothing else in the package prints, but ``signals`` and ``streams`` one line each.
"""

import errno
import io
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from .errors import MhaConvertError, printable

if TYPE_CHECKING:
    from .batch.record import SourceReport
    from .records.plan import Plan
    from .records.proof import Conversion
    from .records.source import Checkpoint
    from .words.table import Document

EPILOG = (
    "Errors go to standard error. Exit code 0: done, and proven unless --reference none was given; 1: a clear error; "
    "2: wrong usage; 130: interrupted; 141: whoever read the output stopped."
)
app = typer.Typer(
    name="mha-convert",
    help="Move Keras MultiHeadAttention weights to PyTorch, and prove that nothing changed on the way.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A saved Keras model: .keras (also unzipped), .h5, .weights.h5, .weights.json, a SavedModel, a TensorFlow "
        "checkpoint; a URL of one (s3://, gs://, hf://, https://); - for standard input.",
        show_default=False,
    ),
]
Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE.json",
        help="The model's architecture (model.to_json()), where SOURCE holds weights only.",
        show_default=False,
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Let SOURCE ask for any memory and time. Only for files whose author you know; no code is run."
    ),
]
AttentionRows = Annotated[
    list[str] | None,
    typer.Option(
        "--attention",
        metavar="ROW",
        help="Hand-written attention with kernels of rank 2: 'encoder/*:num_heads=8,query=wq,key=wk,value=wv,"
        "output=dense', with scale=1 where scores are not divided; or a file of such rows (.toml). May be given "
        "several times.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Layout = Literal["mha", "linear", "qkv", "separate"]
LAYOUT_HELP = (
    "mha: nn.MultiheadAttention. linear: four nn.Linear in Keras' sizes. qkv: one fused nn.Linear and one for "
    "the output, as timm has them. separate: like linear, with the key names of --names."
)
LayoutName = Annotated[Layout, typer.Option("--layout", help=LAYOUT_HELP)]
LayoutIfGiven = Annotated[Layout | None, typer.Option("--layout", help=LAYOUT_HELP, show_default="mha")]
Names = Annotated[
    Literal["bart", "llama", "bert", "vit", "distilbert", "t5"] | None,
    typer.Option(
        "--names",
        help="Of layout separate: the key names of this family of Hugging Face models.",
        show_default="bart: q_proj, k_proj, v_proj, out_proj",
    ),
]
Placement = Literal["projected", "drop-in"]
PLACEMENT_HELP = (
    "projected: nn.Linear around nn.MultiheadAttention where sizes differ. "
    "drop-in: zero-padded heads instead, where that fits."
)
PlacementName = Annotated[Placement, typer.Option("--placement", help=PLACEMENT_HELP)]
PlacementIfGiven = Annotated[
    Placement | None, typer.Option("--placement", help=PLACEMENT_HELP, show_default="projected")
]
LayerNames = Annotated[
    list[str] | None,
    typer.Option(
        "--layer", metavar="NAME", help="Convert this layer only; may be given several times.", show_default=False
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option(
        "--prefix",
        metavar="P",
        help="What stands before a layer's keys, {name} for its name; '' gives the bare keys of one module.",
        show_default="{name}",
    ),
]
Rename = Annotated[
    Path | None,
    typer.Option(
        "--rename",
        metavar="RULES.toml",
        help="Other names for whole keys, after --prefix: a table [rename] of patterns and new names.",
        show_default=False,
    ),
]
Like = Annotated[
    str | None,
    typer.Option(
        "--like",
        metavar="MODEL",
        help="A state_dict (.safetensors, .pt) of your own model, or a checkpoint with one: propose which layer "
        "belongs to which attention in it, and write that as rules for --rename.",
        show_default=False,
    ),
]
Dtype = Annotated[
    Literal["float32", "float16", "bfloat16", "float64"] | None,
    typer.Option("--dtype", help="Of the target.", show_default="each layer's own"),
]
ReferenceName = Annotated[
    Literal["numpy", "keras", "none"],
    typer.Option("--reference", help="What to prove against: the formula in NumPy, genuine Keras as well, or nothing."),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Refuse layers whose class computes more than attention (rotary embeddings, subclasses)."
    ),
]


def example(*lines: str) -> str:
    """The end of a verb's help."""
    return "Example: " + "; ".join(lines)


def show_version(asked: bool) -> None:
    """Print the version and stop."""
    if asked:
        from . import __version__

        typer.echo(f"mha-convert {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of all verbs."""


@app.command(epilog=example("mha-convert inspect model.keras"))
def inspect(
    source: Source, config: Config = None, trust: Trust = False, attention: AttentionRows = None, as_json: Json = False
) -> None:
    """List the attention layers of a saved Keras model, with their sizes and placements."""
    start_hdf5()
    from .layers import survey
    from .layers.descriptions import read_attention
    from .readers import read
    from .words.inspection import inspection_as_json, inspection_as_text

    rows = read_attention(attention)
    checkpoint = read(source, config=config, trust=trust)
    findings = survey(checkpoint, rows)
    if as_json:
        print_json(inspection_as_json(checkpoint, findings))
    else:
        show(inspection_as_text(checkpoint, findings))


@app.command(
    epilog=example(
        "mha-convert convert model.keras attention.safetensors",
        "mha-convert convert model.keras one.pt --layer encoder/attn --prefix ''",
    )
)
def convert(
    source: Source,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="Ends in .safetensors or .pt; may be a URL.",
            show_default="<source's name>.safetensors in this folder",
        ),
    ] = None,
    config: Config = None,
    trust: Trust = False,
    attention: AttentionRows = None,
    layout: LayoutName = "mha",
    placement: PlacementName = "projected",
    names: Names = None,
    layer: LayerNames = None,
    prefix: Prefix = None,
    rename: Rename = None,
    like: Like = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --like: convert as proposed, if every layer has a place.")
    ] = False,
    dtype: Dtype = None,
    module: Annotated[
        Path | None,
        typer.Option(
            "--module",
            metavar="FILE.py",
            help="Also write the modules that load the target, as source that needs torch alone.",
            show_default=False,
        ),
    ] = None,
    reference: ReferenceName = "numpy",
    strict: Strict = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing target.")] = False,
    list_keys: Annotated[
        bool,
        typer.Option("--list-keys", help="Only show the target's keys, their shapes and sources; write nothing."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Convert the attention layers to a PyTorch state_dict; the target appears only if it was proven."""
    start_hdf5()
    from .pipeline import convert_file, default_target, plan_file

    if yes and like is None:
        raise typer.BadParameter("--yes is for the proposal of --like.")
    if like is not None:
        if prefix is not None or names or rename:
            raise typer.BadParameter("--like finds the names itself; leave out --prefix, --names and --rename.")
        if not yes:
            place = target or str(default_target(source))
            propose(source, like, place, config, trust, attention, layer, overwrite, as_json)
            return
    if list_keys:
        checkpoint, _, chosen = plan_file(
            source,
            config=config,
            trust=trust,
            attention=attention,
            layout=layout,
            placement=placement,
            names=names,
            layers=layer,
            prefix=prefix,
            renames=rename,
            like=like,
            dtype=dtype,
        )
        show_keys(checkpoint, chosen, as_json)
        return
    with progress(as_json) as on_progress:
        result = convert_file(
            source,
            target or default_target(source),
            config=config,
            trust=trust,
            attention=attention,
            layout=layout,
            placement=placement,
            names=names,
            layers=layer,
            prefix=prefix,
            renames=rename,
            like=like,
            dtype=dtype,
            module=module,
            reference=reference,
            strict=strict,
            overwrite=overwrite,
            on_progress=on_progress,
        )
    show_report(result, as_json)


@app.command(epilog=example("mha-convert verify model.keras attention.safetensors --reference keras"))
def verify(
    source: Source,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A file or URL that convert wrote.", show_default=False)
    ],
    config: Config = None,
    trust: Trust = False,
    reference: Annotated[
        Literal["numpy", "keras"],
        typer.Option("--reference", help="What to prove against: the formula in NumPy, or genuine Keras as well."),
    ] = "numpy",
    as_json: Json = False,
) -> None:
    """Prove an existing target against its source, by reading both files again."""
    start_hdf5()
    from .pipeline import verify_file

    with progress(as_json) as on_progress:
        result = verify_file(source, target, config=config, trust=trust, reference=reference, on_progress=on_progress)
    show_report(result, as_json)


@app.command(epilog=example("mha-convert explain model.keras encoder/attn"))
def explain(
    source: Source,
    layer: Annotated[
        str | None, typer.Argument(metavar="LAYER", help="The layer's name.", show_default="all layers")
    ] = None,
    config: Config = None,
    trust: Trust = False,
    attention: AttentionRows = None,
    layout: LayoutName = "mha",
    placement: PlacementName = "projected",
    names: Names = None,
) -> None:
    """Tell how a layer's arrays become PyTorch tensors: formula, shapes, traps, and the lines to load and call it."""
    start_hdf5()
    from .files.shell import file, option
    from .pipeline import explain_file
    from .words.explanation import alike, explanation

    command = " ".join(
        (
            file(source),
            *([option("--config", config)] if config else []),
            *([option("--names", names)] if names else []),
            *(option("--attention", row) for row in attention or ()),
        )
    )
    plans = explain_file(
        source, layer, config=config, trust=trust, attention=attention, layout=layout, placement=placement, names=names
    )
    for items in alike(plans):
        typer.echo(explanation(items, command))


@app.command(
    epilog=example(
        "mha-convert batch models --out converted",
        "mha-convert batch @list.txt 's3://bucket/**/*.keras' --out converted --jobs 4 --resume",
    )
)
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
    config: Config = None,
    trust: Trust = False,
    attention: AttentionRows = None,
    layout: LayoutIfGiven = None,
    placement: PlacementIfGiven = None,
    names: Names = None,
    layer: LayerNames = None,
    prefix: Prefix = None,
    rename: Rename = None,
    like: Like = None,
    dtype: Dtype = None,
    reference: ReferenceName = "numpy",
    strict: Strict = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show failures only.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each source, and one for the summary.")
    ] = False,
) -> None:
    """Convert many models; a report with a line for each goes beside the targets, and one failure stops no other."""
    if dask is not None and jobs is not None:
        raise typer.BadParameter("--jobs is for this machine; on a cluster its workers decide. Leave out one of them.")
    from .batch.cluster import dask_executor
    from .batch.run import plan_batch, run_batch
    from .batch.summary import Summary, summary_as_json, summary_as_text
    from .signals import note_instead

    planned = plan_batch(
        sources,
        out,
        pattern=pattern,
        format=suffix,
        keep_suffix=keep_suffix,
        resume=resume,
        overwrite=overwrite,
        timeout=timeout,
        jobs=jobs,
        config=config,
        trust=trust or None,
        attention=attention,
        layout=layout,
        placement=placement,
        names=names,
        layers=layer,
        prefix=prefix,
        renames=rename,
        like=like,
        dtype=dtype,
        reference=reference,
        strict=strict or None,
    )
    summary, total = Summary(), len(planned.tasks) + len(planned.finished)
    for done in planned.finished:
        summary.add(done)
    with ExitStack() as stack:
        executor = stack.enter_context(dask_executor(dask)) if dask is not None else None
        note_instead(lambda: f"{summary.total} of {total} sources are in {out}/report.jsonl; go on with --resume.")
        shown = stack.enter_context(batch_progress(len(planned.tasks), quiet, as_json))
        for done in run_batch(planned, executor=executor, jobs=jobs, fail_fast=fail_fast):
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
    from .batch.journal import read_report
    from .batch.summary import latest, summary_as_json, summary_as_text, summary_of

    summary = summary_of(latest(read_report(place)))
    if as_json:
        print_json(summary_as_json(summary))
    else:
        show(summary_as_text(summary, every=every))


@contextmanager
def batch_progress(total: int, quiet: bool, as_json: bool) -> "Iterator[Callable[[SourceReport], None]]":
    """Shows each source as it ends: lines of JSON; a bar with failures above it on a terminal; else plain lines."""
    from .batch.record import FINISHED
    from .batch.summary import failure, line

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


@contextmanager
def bar_of_files(total: int) -> "Iterator[Callable[[SourceReport], None]]":
    """A bar over files, with rate and time left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.text import Text

    from .batch.record import FINISHED
    from .batch.summary import line

    columns = (
        TextColumn("converting"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True, highlight=False)
    began = time.monotonic()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total, rate="")

        def shown(report: "SourceReport") -> None:
            if report.outcome not in FINISHED:
                bar.console.print(Text(line(report), "red"))
            done = bar.tasks[0].completed + 1
            bar.update(task, completed=done, rate=f"{done / max(time.monotonic() - began, 1e-3):.1f}/s")

        yield shown


def start_hdf5() -> None:
    """The process that reads HDF5 loads its library while we load ours."""
    from .readers.hdf5.process import start

    start()


def propose(
    source: str,
    like: str,
    target: str,
    config: str | None,
    trust: bool,
    attention: list[str] | None,
    layers: list[str] | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Show and write the proposal of ``--like``."""
    from .pipeline import align_source, all_matched, rules_beside, write_rules
    from .words.conversion import alignment_as_json, alignment_as_text

    checkpoint, alignment = align_source(source, like, config=config, trust=trust, attention=attention, layers=layers)
    path = rules_beside(target)
    written = alignment.pairs and write_rules(
        alignment, source, like, path, attention=attention or (), overwrite=overwrite
    )
    if as_json:
        print_json(alignment_as_json(alignment, checkpoint, like))
    else:
        steps = [f"Rules: {path}. Edit them, then: {written}", "Or give --yes."] if written else []
        show([*alignment_as_text(alignment, checkpoint, like), *steps])
    if not alignment.pairs:
        all_matched(alignment, like)  # is the error


def show_keys(checkpoint: "Checkpoint", plan: "Plan", as_json: bool) -> None:
    """What a conversion would write."""
    from .words.conversion import keys_as_json, keys_as_text

    if as_json:
        print_json(keys_as_json(checkpoint, plan))
    else:
        show(keys_as_text(checkpoint, plan))


def show_report(result: "Conversion", as_json: bool) -> None:
    """What a conversion or a verification did."""
    from .words.conversion import report_as_json, report_as_text

    if as_json:
        print_json(report_as_json(result))
    else:
        show(report_as_text(result))


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False))


def show(document: "Document") -> None:
    """Tables for a terminal, plain text for a pipe."""
    from .words.table import Table, as_plain_text, plain_table

    if not sys.stdout.isatty():
        typer.echo(as_plain_text(document))
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table as Drawn
    from rich.text import Text

    console = Console(highlight=False)
    for part in document:
        if not isinstance(part, Table):
            console.print(Text(part))
        elif max(map(len, plain_table(part))) <= console.width:
            drawn = Drawn(header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
            for column, heading in enumerate(part.headings):
                drawn.add_column(Text(heading), justify="right" if part.is_number(column) else "left", no_wrap=True)
            for row in part.rows:
                drawn.add_row(*map(Text, row))
            console.print(drawn)
        else:  # too wide for this terminal: one paragraph a row
            for row in part.rows:
                facts = zip(part.headings[1:], row[1:], strict=True)
                console.print(Text(row[0], "bold"))
                console.print(Padding(Text("; ".join(f"{heading} {cell}" for heading, cell in facts)), (0, 0, 0, 2)))


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar over the layers on standard error, on a terminal only."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("proving"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda name, index, total: bar.update(task, description=name, completed=index, total=total)


def main() -> None:
    """Run the command line; errors of ours become one line, everything else is a bug and keeps its traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old console without our arrows must not end in a traceback
    # Read when NumPy is imported. The proof's matrices are thin; threads take longer to start, and to wait for, than to
    # use (measured: 60 of 140 ms of NumPy's import; several seconds of a proof where others use the machine, too).
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        app()
    except MhaConvertError as error:
        fail(str(error))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise  # a broken pipe is none of our business: __main__ ends in silence
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - what is left of the output has nowhere to go
        fail("Standard output: no space left on the device. Free space or print elsewhere.")
    except MemoryError:
        fail("There is not enough memory for this layer. Give --layout linear, or one layer at a time with --layer.")


def fail(text: str) -> NoReturn:
    """One line on standard error, and exit code 1; paths may hold anything, so all of it is escaped."""
    typer.echo(f"error: {printable(text, limit=10_000)}", err=True)
    sys.exit(1)
