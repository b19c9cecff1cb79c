"""The options of the command line, made of the rows in ``options.OPTIONS``."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from ..options import MODEL, OPTIONS, RUN, Option, names_of

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A saved Keras model: .keras (also unzipped), .h5, .weights.h5, .weights.json, a SavedModel, a TensorFlow "
        "checkpoint; a URL of one (s3://, gs://, hf://, https://); - for standard input.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]
Proof = Annotated[
    Literal["numpy", "keras"],
    typer.Option("--reference", help="What to prove against: the formula in NumPy, or genuine Keras as well."),
]


NUMBERS = (int, float)
ROWS = {**OPTIONS, **RUN, **MODEL}


def taking(kind: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A verb gets the options of a ``…Options`` as ``**options``: those that were given, by their names in Python."""
    names = names_of(kind)

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            verb(**{name: value for name, value in given.items() if name not in names or is_given(value)})

        # The verb's own arguments, then the shared options, then the verb's own options: the order of the help.
        own = [item for item in inspect.signature(verb).parameters.values() if item.kind is not item.VAR_KEYWORD]
        arguments = [item for item in own if item.kind is not item.KEYWORD_ONLY]
        shared = [parameter(name, ROWS[name]) for name in names]
        every = [*arguments, *shared, *(item for item in own if item.kind is item.KEYWORD_ONLY)]
        keywords = [item.replace(kind=item.KEYWORD_ONLY) for item in every]
        run.__name__, run.__doc__ = verb.__name__, verb.__doc__
        run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
        run.__annotations__ = {item.name: item.annotation for item in keywords}
        return run

    return decorate


def is_given(value: Any) -> bool:
    """Whether a user gave the option: nothing else is passed on, so that every default is in one place."""
    return value is not None and value is not False and value != []


def parameter(name: str, row: Option) -> inspect.Parameter:
    """An option as typer reads it from a signature."""
    shown: dict[str, Any] = {"metavar": row.metavar} if row.metavar else {}
    taken: Any = bool
    default: Any = False
    if row.kind is not bool:
        value: Any = Literal[tuple(row.words)] if row.words else row.kind if row.kind in NUMBERS else str
        taken, default = (list[value] if row.repeated else value) | None, None
        shown |= {"show_default": row.shown or False} | ({} if row.least is None else {"min": row.least})
    annotation = Annotated[taken, typer.Option(row.flag, help=row.help, **shown)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
