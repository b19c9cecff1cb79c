"""``--attention``: which kernels of a file are attention that somebody wrote, as rows of data.

A row is ``"encoder/*:num_heads=8,query=wq,key=wk,value=wv,output=dense"``, a mapping with ``path`` and the same
fields, or one of the tables ``[[attention]]`` of a TOML file.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any

from ..errors import LayerError, ReadError
from ..files.locations import StrPath
from ..files.toml import read_toml
from ..options import Attention, Row
from ..records.layer import ROLES, AttentionRow

TABLE, PATH, SUFFIX = "attention", "path", ".toml"
NUMBERS = ("num_heads", "num_key_value_heads")
SCALE = "scale"
SCALES = ("1/sqrt(key_dim)", "1/sqrt(width)")  # width: the columns of the query kernel, all heads together
BIASES = {f"{role}_bias": role for role in ROLES}
TEXTS = (*ROLES, *BIASES, "name")
MOST_DIGITS = 19
SMALLEST = 1e-30  # of a scale: beyond, float32 holds nothing of a query
REQUIRED = ("num_heads", *ROLES)
EXAMPLE = "Write it like 'encoder/*:num_heads=8,query=wq,key=wk,value=wv,output=dense'"


def read_attention(attention: Attention) -> tuple[AttentionRow, ...]:
    """Rows for ``survey`` and ``find_layers``.

    Args:
        attention: one row or several: text, a mapping, or a path or URL that ends in ``.toml``.

    Raises:
        ReadError: a file is missing, not TOML, or holds something else.
        LayerError: a row without a path, without one of its fields, or with one that no row has.
    """
    given: Sequence[Row] = (
        [] if attention is None else [attention] if isinstance(attention, str | PathLike | Mapping) else attention
    )
    return tuple(row for item in given for row in rows_of(item))


def rows_of(item: Row) -> Iterator[AttentionRow]:
    """One row, or those of a file."""
    if isinstance(item, Mapping):
        yield checked(item, f"Attention row '{item.get(PATH, '')}'")
    elif isinstance(item, PathLike) or (item.endswith(SUFFIX) and "=" not in item):
        for number, table in enumerate(tables(item), 1):
            yield checked(table, f"{item}: row {number}")
    else:
        yield checked(fields_of(item), f"Attention row '{item}'")


def fields_of(text: str) -> dict[str, Any]:
    """The fields of ``PATH:FIELD=VALUE,FIELD=VALUE``; a colon in a path belongs into a file."""
    path, colon, rest = text.partition(":")
    fields: dict[str, Any] = {PATH: path} if colon else {}
    for part in rest.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name in fields:
            wrong = "has no path with a colon after it" if not colon else f"has '{part}'"
            again = ", a field that it has already" if equals else ", expected FIELD=VALUE"
            raise LayerError(f"Attention row '{text}' {wrong}{again if colon else ''}. {EXAMPLE}.")
        fields[name] = value_of(name, value)
    return fields


def value_of(name: str, text: str) -> Any:
    """A number where the field wants one and the text is one; else the text."""
    if name in NUMBERS and text.isascii() and text.isdecimal():
        return int(text) if len(text) < MOST_DIGITS else text
    if name == SCALE:
        with suppress(ValueError):
            return float(text)
    return text


def checked(fields: Mapping[str, Any], subject: str) -> AttentionRow:
    """The record, or an error that names all that is wrong with the row."""
    facts = list(faults(fields))
    if facts:
        raise LayerError(f"{subject}: {'; '.join(facts)}. {EXAMPLE}.")
    return AttentionRow(
        path=fields[PATH],
        **{name: fields[name] for name in (*NUMBERS, SCALE, "name") if name in fields},
        kernels={role: fields[role] for role in ROLES},
        biases={role: fields[name] for name, role in BIASES.items() if name in fields},
    )


def faults(fields: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong, each fact as expected against actual."""
    missing = [name for name in (PATH, *REQUIRED) if name not in fields]
    if missing:
        yield f"it has no {', no '.join(missing)}"
    unknown = [str(name) for name in fields if name not in (PATH, *NUMBERS, SCALE, *TEXTS)]
    if unknown:
        yield f"has {', '.join(unknown)}, expected some of {', '.join((*NUMBERS, SCALE, *TEXTS))}"
    for name in NUMBERS:
        value = fields.get(name, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            yield f"{name} is {value}, expected a number from 1"
    if not is_scale(fields.get(SCALE, 1)):
        yield f"{SCALE} is {fields[SCALE]}, expected a number above 0, {' or '.join(SCALES)}"
    for name in (PATH, *TEXTS):
        if not isinstance(fields.get(name, "x"), str) or not fields.get(name, "x"):
            yield f"{name} is {fields[name] or 'empty'}, expected a name"


def is_scale(value: Any) -> bool:
    """Whether scores may be multiplied by the number, or the word is for one."""
    if isinstance(value, str):
        return value in SCALES
    return isinstance(value, int | float) and not isinstance(value, bool) and SMALLEST <= value <= 1 / SMALLEST


def tables(path: StrPath) -> list[Mapping[str, Any]]:
    """The tables ``[[attention]]`` of a TOML file, in its order.

    Raises:
        ReadError: missing, not TOML, or something else in it.
    """
    document = read_toml(path, "docs/layers.md")
    found = document.get(TABLE)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found) or len(document) > 1:
        holds = ", ".join(f"'{name}'" for name in document) or "nothing"
        raise ReadError(f"{path} holds {holds}, expected tables [[{TABLE}]] and nothing else. Leave out the rest.")
    return found
