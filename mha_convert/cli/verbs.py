"""The verbs for one file. Each parses, calls the library and prints its result."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..options import (
    ConvertOptions,
    LayoutOptions,
    MatchOptions,
    ModelOptions,
    PlanOptions,
    ProofOptions,
    SourceOptions,
)
from .options import Json, Overwrite, Proof, Source, taking
from .screen import print_json, progress, show

if TYPE_CHECKING:
    from ..records.face import Face

EPILOG = (
    "Errors go to standard error. Exit code 0: done, and proven unless --reference none was given; 1: a clear error; "
    "2: wrong usage; 130: interrupted; 141: the reader of the output stopped."
)
app = typer.Typer(
    name="mha-convert",
    help="Move Keras MultiHeadAttention weights to PyTorch, and prove that nothing changed on the way.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def example(*lines: str) -> str:
    """The end of a verb's help."""
    return "Example: " + "; ".join(lines)


def show_version(asked: bool) -> None:
    """Print the version and stop."""
    if asked:
        from .. import __version__

        typer.echo(f"mha-convert {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of all verbs."""


@app.command(epilog=example("mha-convert inspect model.keras", "mha-convert inspect model.keras --graph"))
@taking(SourceOptions)
def inspect(
    source: Source,
    *,
    graph: Annotated[
        bool, typer.Option("--graph", help="List every call of a layer instead, in order, with what it is called with.")
    ] = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """List the attention layers of a saved Keras model, with their sizes and what each layout adds."""
    start_hdf5()
    from ..inspection import inspect_file, inspect_graph

    if graph and "attention" in options:
        raise typer.BadParameter("--graph lists layers as the file has them; leave out --attention.")
    answer(inspect_graph(source, **options) if graph else inspect_file(source, **options), as_json)


@app.command(
    epilog=example(
        "mha-convert convert model.keras attention.safetensors",
        "mha-convert convert model.keras one.pt --layer encoder/attn --prefix ''",
    )
)
@taking(ConvertOptions)
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
    *,
    module: Annotated[
        Path | None,
        typer.Option(
            "--module",
            metavar="FILE.py",
            help="Also write the modules that load the target, as source that needs torch alone.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Convert the attention layers to a PyTorch state_dict; the target appears only if it was proven."""
    start_hdf5()
    from ..pipeline import convert_file
    from ..readers import SUFFIXES
    from ..targets.names import default_target

    if "like" in options and {"prefix", "renames"} & options.keys():
        raise typer.BadParameter("--like gives the names itself; leave out --prefix and --rename.")
    with progress(as_json) as on_progress:
        result = convert_file(
            source,
            target or default_target(source, SUFFIXES),
            module=module,
            overwrite=overwrite,
            on_progress=on_progress,
            **options,
        )
    answer(result, as_json)


@app.command(epilog=example("mha-convert model model.keras my_model"))
@taking(ModelOptions)
def model(
    source: Source,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="What to write; a new name.", show_default=False)],
    *,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a folder that this verb wrote.")] = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Convert a whole model to a folder of PyTorch source and weights; it appears only if it was proven."""
    start_hdf5()
    from ..models import convert_model

    with progress(as_json) as on_progress:
        result = convert_model(source, folder, overwrite=overwrite, on_progress=on_progress, **options)
    answer(result, as_json)


@app.command(epilog=example("mha-convert keys model.keras --layout bert --prefix 'bert.encoder.{name}'"))
@taking(PlanOptions)
def keys(source: Source, *, as_json: Json = False, **options: Any) -> None:
    """Show the keys that convert would write, with their shapes and what each is made of; nothing is written."""
    start_hdf5()
    from ..pipeline import plan_file

    answer(plan_file(source, **options), as_json)


@app.command(epilog=example("mha-convert match model.keras my_model.pt --rules my_model.rename.toml"))
@taking(MatchOptions)
def match(
    source: Source,
    like: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A state_dict (.safetensors, .pt) of your own model, or a checkpoint with one.",
            show_default=False,
        ),
    ],
    *,
    rules: Annotated[
        Path | None,
        typer.Option(
            "--rules", metavar="RULES.toml", help="Where to write the match as rules for --rename.", show_default=False
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Show which layer belongs to which attention of your own model, by shapes and order; convert --like applies it."""
    start_hdf5()
    from ..keys.proposal import all_matched, write_rules
    from ..pipeline import match_file

    found = match_file(source, like, **options)
    written = (
        rules
        and found.pairs
        and write_rules(found, source, rules, attention=options.get("attention", ()), overwrite=overwrite)
    )
    if found.pairs or not as_json:  # one document, which is the error's where there is no match
        answer(found, as_json)
    if written and not as_json:
        from ..words.table import CommandLine

        show([CommandLine(f"Rules: {rules}. Edit them, then: {written}")])
    if not found.pairs:
        all_matched(found, like)  # is the error


@app.command(epilog=example("mha-convert verify model.keras attention.safetensors --reference keras"))
@taking(ProofOptions)
def verify(
    source: Source,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A file or URL that convert wrote.", show_default=False)
    ],
    *,
    reference: Proof = "numpy",
    as_json: Json = False,
    **options: Any,
) -> None:
    """Prove an existing target against its source, by reading both files again."""
    start_hdf5()
    from ..pipeline import verify_file

    with progress(as_json) as on_progress:
        result = verify_file(source, target, reference=reference, on_progress=on_progress, **options)
    answer(result, as_json)


@app.command(epilog=example("mha-convert explain model.keras encoder/attn"))
@taking(LayoutOptions)
def explain(
    source: Source,
    layer: Annotated[
        str | None, typer.Argument(metavar="LAYER", help="The layer's name.", show_default="all layers")
    ] = None,
    *,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Explain how a layer's arrays become PyTorch tensors: formula, shapes, traps, and how to load and call it."""
    start_hdf5()
    from ..pipeline import explain_file

    answer(explain_file(source, layer, **options), as_json)


def answer(record: "Face", as_json: bool) -> None:
    """Print what a verb found, as a JSON document or for people."""
    from ..words import faces

    if as_json:
        print_json(faces.data(record))
    else:
        show(faces.parts(record))


def start_hdf5() -> None:
    """The process that reads HDF5 loads its library while we load ours."""
    from ..files.hdf5.process import start

    start()
