"""What is printed: documents as tables, text or JSON, and bars while one waits."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ..errors import bounded, shortened

if TYPE_CHECKING:
    from ..batch.record import SourceReport
    from ..words.table import Document


def print_json(document: dict[str, Any], indent: int | None = 2) -> None:
    """One JSON document on standard output; in one line without ``indent``."""
    typer.echo(json.dumps(document, indent=indent, allow_nan=False))


def show(document: "Document") -> None:
    """Tables for a terminal, plain text for a pipe."""
    from ..words.table import Table, as_plain_text, plain_table, safe

    if not sys.stdout.isatty():
        typer.echo(as_plain_text(document))
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table as Drawn
    from rich.text import Text

    console = Console(highlight=False)
    for part in safe(document):
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
        yield lambda name, index, total: bar.update(task, description=shortened(name, 60), completed=index, total=total)


@contextmanager
def bar_of_files(total: int) -> "Iterator[Callable[[SourceReport], None]]":
    """A bar over files, with rate and time left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.text import Text

    from ..batch.record import FINISHED, line

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
                bar.console.print(Text(bounded(line(report)), "red"))
            done = bar.tasks[0].completed + 1
            bar.update(task, completed=done, rate=f"{done / max(time.monotonic() - began, 1e-3):.1f}/s")

        yield shown


def complain(line: str) -> None:
    """One line on standard error; paths and names may hold anything, so all of it is escaped."""
    typer.echo(bounded(line), err=True)


def fail(kind: str, text: str) -> NoReturn:
    """One line on standard error, with ``--json`` a document as well, and exit code 1."""
    complain(f"error: {text}")
    if wants_json():
        print_error(kind, text)
    sys.exit(1)


def wants_json() -> bool:
    """Whether the command asks for JSON: also where its options could not be read."""
    return "--json" in sys.argv[1:]


def print_error(kind: str, text: str) -> None:
    """The document of an error; in one line for ``batch``, whose lines are documents."""
    from ..words.documents import error_document

    print_json(error_document(kind, text), indent=None if sys.argv[1:2] == ["batch"] else 2)
