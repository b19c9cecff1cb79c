"""Text that is drawn by a terminal and aligned for a pipe: a document is a sequence of lines and tables.

Lines and cells hold text as it came from files. It is escaped here, once, when it is printed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import bounded, printable, shortened

CELL = 200  # characters


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under headings; numbers are set right."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def is_number(self, column: int) -> bool:
        """Whether the column reads as numbers."""
        return all(row[column].lstrip("+").replace(",", "").isdigit() for row in self.rows)


class CommandLine(str):
    """A line with a command for pasting, whose words are quoted and bounded: it is never cut."""

    __slots__ = ()


Document = Sequence[str | Table]


def safe(document: Document) -> list[str | Table]:
    """The document as it may be printed: every line and cell escaped, in one line, and of bounded length."""
    return [safe_table(part) if isinstance(part, Table) else safe_line(part) for part in document]


def safe_line(line: str) -> str:
    """A line as it may be printed."""
    return printable(line) if isinstance(line, CommandLine) else bounded(line)


def safe_table(table: Table) -> Table:
    """The table with its cells as they may be printed."""
    return Table(table.headings, tuple(tuple(shortened(cell, CELL) for cell in row) for row in table.rows))


def as_plain_text(document: Document) -> str:
    """The document for a pipe: aligned columns, nothing drawn."""
    return "\n".join(
        line for part in document for line in (plain_table(part) if isinstance(part, Table) else [safe_line(part)])
    )


def plain_table(table: Table) -> list[str]:
    """The table's lines, two spaces between columns, as they may be printed."""
    table = safe_table(table)
    widths = [max(map(len, column)) for column in zip(table.headings, *table.rows, strict=True)]
    right = [table.is_number(column) for column in range(len(widths))]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (table.headings, *table.rows)
    ]


def count(number: int, noun: str) -> str:
    """``1 layer``, ``2 layers``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


# Layers of every kind.
