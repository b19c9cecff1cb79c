"""What every record that a user gets can do: show itself in a line, as plain data and as text.

Records say nothing themselves, and nothing here looks up the tree: ``words.faces`` has a row for each record, and hands
itself over when it is loaded. The package loads it with the first function or record that a user asks for.
"""

from typing import Any, ClassVar, Protocol


class Words(Protocol):
    """What puts records into words."""

    def line(self, record: Any) -> str:
        """One line."""

    def data(self, record: Any) -> dict[str, Any]:
        """Plain data."""

    def text(self, record: Any) -> str:
        """Text for people."""


class Face:
    """A record with a ``repr`` of one line, ``to_dict()`` and ``to_text()``."""

    __slots__ = ()
    words: ClassVar[Words]

    def __repr__(self) -> str:
        """One line with what matters, safe to print whatever the file's names are."""
        return self.words.line(self) if hasattr(Face, "words") else object.__repr__(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for ``json.dumps``: what ``--json`` prints, or the part of it that describes this record."""
        return self.words.data(self)

    def to_text(self) -> str:
        """What the command line prints of it, without a line end after the last line."""
        return self.words.text(self)
