"""How each source is converted: the options given for all, else those of the ``mha-convert.toml`` nearest to it.

A settings file may come with models from strangers: it can choose names and layouts, and name files next to itself. It
can lift no limit, skip no proof, and lead to no other folder.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import PurePath
from typing import Any

from ..errors import LayoutError, ReadError, reason
from ..files.locations import StrPath, is_file, is_link_out, is_url, locate, open_binary, store_errors
from ..files.toml import read_toml
from ..keys.renaming import read_renames
from ..layers.descriptions import read_attention
from ..options import DEFAULTS, OPTIONS, Attention, Options
from .files import stream_sha256

Settings = dict[str, Any]
FILES = ("config", "like")
# What a settings file may hold, and the option that it is.
TAKEN = {row.settings: name for name, row in OPTIONS.items() if row.settings}
TYPES = {str: "text", list: "a list", bool: "true or false", dict: "a table"}


def given(options: Mapping[str, Any]) -> Settings:
    """The options that a user gave, in a form that every worker understands: files of rules become what they hold.

    Raises:
        LayoutError: an option that ``convert_file`` does not have for many sources, or a value that it does not have.
        ReadError, LayerError: a file of rules that cannot be read.
    """
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise LayoutError(f"Option '{unknown[0]}' is not an option of a batch, expected some of {', '.join(OPTIONS)}.")
    found = {name: value for name, value in options.items() if value is not None}
    checked = Options(**found)
    if "dtype" in found:
        found["dtype"] = checked.dtype
    if "renames" in found and not isinstance(found["renames"], Mapping):
        found["renames"] = read_renames(found["renames"])
    if "attention" in found:
        found["attention"] = plain_rows(found["attention"])
    for name in FILES:
        if name in found:
            found[name] = str(found[name])
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def plain_rows(attention: Attention) -> list[dict[str, Any]]:
    """Rows of ``--attention`` as mappings."""
    return [dict(row.fields) for row in read_attention(attention)]


def reader_of(options: Settings) -> Callable[[str | None], tuple[Settings, str]]:
    """What gives the settings of a source, and their digest, by its settings file; each file is read once a run."""

    @cache
    def merged(path: str | None) -> tuple[Settings, str]:
        settings = {**(read_settings(path) if path is not None else {}), **options}
        return settings, digest(settings)

    return merged


def read_settings(path: str) -> Settings:
    """The options in a settings file.

    Raises:
        ReadError: not TOML, or something in it that a settings file does not hold.
    """
    found: Settings = {}
    for name, value in read_toml(path, "docs/batch.md").items():
        if name not in TAKEN:
            raise ReadError(
                f"{path} holds '{name}', expected some of {', '.join(TAKEN)}. Pass other options on the command line."
            )
        option = TAKEN[name]
        kind = OPTIONS[option].kind
        if kind is list and not value:
            raise ReadError(f"{path}: '{name}' is an empty list, expected at least one entry. Leave it out.")
        if not is_a(kind, value):
            raise ReadError(f"{path}: '{name}' is {type(value).__name__}, expected {TYPES[kind]}. Correct it.")
        found[option] = beside(path, name, value) if name in FILES else value
    if "attention" in found:
        found["attention"] = plain_rows(found["attention"])
    return found


def is_a(kind: type, value: Any) -> bool:
    """Whether the value has the type; a table is one of texts."""
    texts = value.values() if isinstance(value, dict) else ()
    return isinstance(value, kind) and all(isinstance(text, str) for text in texts)


def beside(path: str, name: str, file: str) -> str:
    """The place of a file that the settings name; it is in their folder."""
    if PurePath(file).name != file or is_url(file):
        raise ReadError(f"{path}: '{name}' is '{file}', expected the name of a file next to it. Put it there.")
    folder = locate(path).parent
    found = folder / file
    if not is_file(found):
        what = f"'{name}' names '{file}', and there is no such file next to it"
        raise ReadError(f"{path}: {what}. Put it there, or leave the line out.")
    if is_link_out(folder, found):
        what = f"'{name}' names '{file}', a link to a file elsewhere, which is not followed"
        raise ReadError(f"{path}: {what}. Copy the file into the folder.")
    return str(found)


def digest(settings: Settings) -> str:
    """What says whether a source was converted with these options; files that they name count with their content."""
    contents = {name: content_digest(settings[name]) for name in FILES if name in settings}
    text = json.dumps({**DEFAULTS, **settings, **contents}, sort_keys=True, default=str)
    return sha256(text.encode()).hexdigest()[:16]


def content_digest(place: StrPath) -> str:
    """SHA-256 of a file of the options.

    Raises:
        ReadError: it is missing, or no file.
    """
    path = locate(place)
    try:
        with store_errors(path), open_binary(path) as file:
            return stream_sha256(file)
    except OSError as error:
        raise ReadError(f"{place} cannot be read: {reason(error)}. Check the path.") from error
