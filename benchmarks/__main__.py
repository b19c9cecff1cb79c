"""``python -m benchmarks`` measures, prints the tables, and writes them with the figures and a plot."""

import tempfile
from pathlib import Path
from typing import Annotated, Literal

import typer

from . import batch, conversion, figures, forward, machine, models, plot, table, whole

DEFAULT_SIZES = "1MB,10MB,100MB,ViT-B,1.26GB,4GB"


def main(
    sizes: Annotated[str, typer.Option(help="Models to convert: bytes of attention, or ViT-B.")] = DEFAULT_SIZES,
    runs: Annotated[int, typer.Option(min=1, help="Rounds of every conversion; calls have three times as many.")] = 5,
    keras_runs: Annotated[int, typer.Option(min=1, help="Rounds in which Keras also converts, which is slow.")] = 3,
    only: Annotated[
        Literal["conversion", "forward", "whole", "batch"] | None,
        typer.Option(help="Measure one part; keep the others."),
    ] = None,
    quick: Annotated[bool, typer.Option(help="Measure the smallest sizes once, to see whether it works.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for figures.json and growth.png.")] = Path("benchmark-results"),
    page: Annotated[Path | None, typer.Option(help="Markdown file for the table, between its markers.")] = None,
    files: Annotated[int, typer.Option(min=4, help="Small models in the batch.")] = 2000,
    jobs: Annotated[int, typer.Option(min=1, help="Processes of the batch.")] = 2,
    cache: Annotated[Path | None, typer.Option(help="Folder to keep the models in; default: delete them.")] = None,
) -> None:
    """Compare conversions with a copy of the same bytes, modules and models with plain ones, a batch with its parts."""
    wanted = [models.parse(text) for text in ("1MB" if quick else sizes).split(",")]
    runs, keras_runs = (1, 1) if quick else (runs, keras_runs)
    plot.require()
    found = figures.load(out) | machine.describe()
    if only in (None, "conversion"):
        # In this folder and not in /tmp, which may be memory: a copy is compared with a copy on this disk.
        with tempfile.TemporaryDirectory(prefix="benchmark-", dir=cache or Path.cwd()) as folder:
            for row in conversion.measure(wanted, Path(folder), runs, keras_runs, cache, say):
                figures.save(out, figures.with_conversion(found, row))
    if only in (None, "forward"):
        found["forward"] = []
        for row in forward.measure(forward.QUICK if quick else forward.SIZES, 3 * runs, say):
            found["forward"].append(row)
            figures.save(out, found)
    if only in (None, "whole"):
        with tempfile.TemporaryDirectory(prefix="benchmark-", dir=cache or Path.cwd()) as folder:
            found["whole"] = [whole.measure(whole.QUICK if quick else whole.SIZE, Path(folder), runs, say)]
            figures.save(out, found)
    if only in (None, "batch"):
        with tempfile.TemporaryDirectory(prefix="benchmark-", dir=cache or Path.cwd()) as folder:
            found["batch"] = [batch.measure(12 if quick else files, jobs, Path(folder), say)]
    figures.save(out, found)
    if found["conversion"]:
        plot.growth(found["conversion"], out / "growth.png")
    text = table.markdown(found)
    figures.put(page or out / "figures.md", text)
    typer.echo(text)


def say(text: str) -> None:
    """Print progress to standard error."""
    typer.echo(text, err=True)


if __name__ == "__main__":
    typer.run(main)
