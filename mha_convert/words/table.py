"""Text that is drawn by a terminal and aligned for a pipe: a document is a sequence of lines and tables."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under headings; numbers are set right."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def is_number(self, column: int) -> bool:
        """Whether the column reads as numbers."""
        return all(row[column].lstrip("+").replace(",", "").isdigit() for row in self.rows)


Document = Sequence[str | Table]


def as_plain_text(document: Document) -> str:
    """The document for a pipe: aligned columns, nothing drawn."""
    return "\n".join(line for part in document for line in (plain_table(part) if isinstance(part, Table) else [part]))


def plain_table(table: Table) -> list[str]:
    """The table's lines, two spaces between columns."""
    widths = [max(map(len, column)) for column in zip(table.headings, *table.rows, strict=True)]
    right = [table.is_number(column) for column in range(len(widths))]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (table.headings, *table.rows)
    ]
