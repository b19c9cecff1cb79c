"""What every record that a user gets can do: show itself in a line, as plain data and as text.

Records say nothing themselves: how each is put into words is a row of ``words.faces``. It is looked up when it is first
asked for, as ``words`` is built on the records; this is the one place where a record looks up the tree.
"""

from importlib import import_module
from typing import Any


class Face:
    """A record with a ``repr`` of one line, ``to_dict()`` and ``to_text()``."""

    __slots__ = ()

    def __repr__(self) -> str:
        """One line with what matters, safe to print whatever the file's names are."""
        return str(_words().line(self))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for ``json.dumps``: what ``--json`` prints, or the part of it that describes this record."""
        data: dict[str, Any] = _words().data(self)
        return data

    def to_text(self) -> str:
        """What the command line prints of it, without a line end after the last line."""
        return str(_words().text(self))


def _words() -> Any:
    return import_module("mha_convert.words.faces")
