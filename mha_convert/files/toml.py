"""TOML files of rules and settings: ``--rename``, ``--attention``, ``mha-convert.toml``."""

import re
import sys
from collections.abc import Iterator
from typing import Any

from ..errors import ReadError, reason
from .limits import RULES, RULES_DEPTH
from .locations import StrPath, locate
from .small_files import read_small
from .source import Source

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SPLIT = "Write it in several files, or leave out what is not needed"
# Texts and comments may hold anything: how each begins and ends. A backslash takes the letter after it along.
BEGINNING = re.compile(r"\"{3}|'{3}|[\"'#]")
ENDS = {
    '"""': re.compile(r"\\.|\"{3,5}", re.DOTALL),
    '"': re.compile(r"\\.|[\"\n]", re.DOTALL),
    "'''": re.compile(r"'{3,5}"),
    "'": re.compile(r"['\n]"),
    "#": re.compile(r"\n"),
}
BETWEEN_NAMES = re.compile(r"[\n,=\[\]{}]")


def read_toml(path: StrPath, example: str) -> dict[str, Any]:
    """The document in a file or at a URL; ``example`` is the page that shows one.

    Raises:
        ReadError: missing, not a file, too large, or not TOML.
    """
    try:
        text = read_small(Source(locate(path)), RULES, "TOML", SPLIT).decode("utf-8")
        refuse_deep(text, path, example)
        return tomllib.loads(text)
    except OSError as error:
        raise ReadError(f"{path} cannot be opened: {reason(error)}. Check the path.") from error
    except ValueError as error:  # also of the encoding
        raise ReadError(f"{path} is not TOML: {error}. Look at {example} for an example.") from error
    except RecursionError as error:
        raise too_deep(path, example) from error


def refuse_deep(text: str, path: StrPath, example: str) -> None:
    """Refuse names of very many parts before they are parsed, which might not end in anybody's time."""
    bare = " ".join(outside_texts(text))
    if any(name.count(".") >= RULES_DEPTH for name in BETWEEN_NAMES.split(bare)):
        raise too_deep(path, example)


def outside_texts(text: str) -> Iterator[str]:
    """What is outside texts and comments; one that does not end takes the rest, which no parser gets to either."""
    at = 0
    while begun := BEGINNING.search(text, at):
        yield text[at : begun.start()]
        ends = (end for end in ENDS[begun[0]].finditer(text, begun.end()) if end[0][0] != "\\")
        end = next(ends, None)
        if end is None:
            return
        at = end.start() if end[0] == "\n" else end.end()
    yield text[at:]


def too_deep(path: StrPath, example: str) -> ReadError:
    """The error for tables in tables without end."""
    return ReadError(
        f"{path} is nested more than {RULES_DEPTH} deep, which no rules or settings are. "
        f"Look at {example} for an example."
    )
