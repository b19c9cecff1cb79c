"""TOML files of rules: ``--rename`` and ``--attention``."""

import sys
from typing import Any

from .errors import ReadError, printable, reason
from .locations import StrPath, locate, open_binary

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: StrPath, example: str) -> dict[str, Any]:
    """The document in a file or behind a URL; ``example`` is the page that shows one.

    Raises:
        ReadError: missing, or no TOML.
    """
    try:
        with open_binary(locate(path)) as file:
            return tomllib.loads(file.read().decode("utf-8"))
    except OSError as error:
        raise ReadError(f"{path}: cannot be opened: {reason(error)}. Check the path.") from error
    except ValueError as error:  # also of the encoding
        raise ReadError(f"{path}: is no TOML: {printable(error)}. Look at {example} for an example.") from error
