"""The options of the command line, made of the rows in ``options.OPTIONS``."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import typer

from ..options import OPTIONS, Option

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


def taking(kind: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A verb gets the options of a ``…Options`` as ``**options``: those that were given, by their names in Python."""
    names = [name for name in OPTIONS if name in all_keys(kind)]

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            verb(**{name: value for name, value in given.items() if name not in names or is_given(value)})

        own = [item for item in inspect.signature(verb).parameters.values() if item.kind is not item.VAR_KEYWORD]
        shared = [parameter(name, OPTIONS[name]) for name in names]
        every = [*(item for item in own if item.kind is not item.KEYWORD_ONLY), *shared]
        every += [item for item in own if item.kind is item.KEYWORD_ONLY]
        keywords = [item.replace(kind=item.KEYWORD_ONLY) for item in every]
        run.__name__, run.__doc__ = verb.__name__, verb.__doc__
        run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
        run.__annotations__ = {item.name: item.annotation for item in keywords}
        return run

    return decorate


def all_keys(kind: type) -> frozenset[str]:
    """The names that a ``TypedDict`` has, its parents' among them."""
    return frozenset(kind.__annotations__) | frozenset(getattr(kind, "__optional_keys__", ()))


def is_given(value: Any) -> bool:
    """Whether a user gave the option: nothing else is passed on, so that every default stands in one place."""
    return value is not None and value is not False and value != []


def parameter(name: str, row: Option) -> inspect.Parameter:
    """An option as typer reads it from a signature."""
    shown: dict[str, Any] = {"metavar": row.metavar} if row.metavar else {}
    taken: Any = Literal[tuple(row.words)] if row.words else str
    if row.kind is bool:
        taken, default = bool, False
    else:
        taken, default = (list[taken] if row.repeated else taken) | None, None
        shown["show_default"] = row.shown or False
    annotation = Annotated[taken, typer.Option(row.flag, help=row.help, **shown)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def flags(given: Mapping[str, Any]) -> list[str]:
    """The options as they are written on a command line, for commands that are printed."""
    from ..files.shell import option

    return [
        option(OPTIONS[name].flag, value)
        for name, values in given.items()
        for value in (values if OPTIONS[name].repeated else [values])
    ]
