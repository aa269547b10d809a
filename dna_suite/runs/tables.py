"""Tables as text: aligned columns for a terminal, Markdown for a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dna_suite.errors import DnaError

WIDTH = 100
START = "<!-- dna report: start -->"
END = "<!-- dna report: end -->"


@dataclass
class Table:
    """A table of texts, built column by column.

    Args:
        title: what the rows share.
        toy: made from toy data; it is headed so wherever it is shown.
        headers: one for each column.
        columns: the cells of each column, one for each row.
        notes: lines below the table.
    """

    title: str
    toy: bool = False
    headers: list[str] = field(default_factory=list)
    columns: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def heading(self) -> str:
        """The title, which says so where the data is toy data."""
        return f"toy data: {self.title}" if self.toy else self.title

    def add(self, header: str, cells: list[str]) -> None:
        """Add a column at the right."""
        self.headers.append(header)
        self.columns.append(cells)

    def text(self, width: int = WIDTH) -> str:
        """The table for a terminal; columns that are too many go on below, the first one repeated."""
        lines = [self.heading]
        for chunk in self._chunks(width):
            lines.append("")
            lines.extend(self._block(chunk))
        lines.extend(f"note: {note}" for note in self.notes)
        return "\n".join(lines)

    def markdown(self) -> str:
        """The table as GitHub's Markdown."""
        rows = list(zip(*self.columns, strict=True))
        lines = [f"**{self.heading}**", "", _row(self.headers), _row(["---"] + ["---:"] * (len(self.headers) - 1))]
        lines.extend(_row(row) for row in rows)
        if self.notes:
            lines.append("")
            lines.extend(f"- {note}" for note in self.notes)
        return "\n".join(lines)

    def _width(self, column: int) -> int:
        return max(len(text) for text in [self.headers[column], *self.columns[column]])

    def _chunks(self, width: int) -> list[list[int]]:
        """Column numbers of each block that fits, each beginning with the first column; a gain stays beside its metric."""
        chunks = [[0]]
        used = self._width(0)
        for column in range(1, len(self.headers)):
            wide = 2 + self._width(column)
            gain = column + 1 if column + 1 < len(self.headers) and self.headers[column + 1] == "gain" else None
            needed = wide + (2 + self._width(gain) if gain is not None else 0)
            if used + needed > width and len(chunks[-1]) > 1 and self.headers[column] != "gain":
                chunks.append([0])
                used = self._width(0)
            chunks[-1].append(column)
            used += wide
        return chunks

    def _block(self, chunk: Sequence[int]) -> list[str]:
        widths = [self._width(column) for column in chunk]
        rows = [[self.headers[column] for column in chunk]]
        rows += [[self.columns[column][row] for column in chunk] for row in range(len(self.columns[0]))]
        lines = []
        for row in rows:
            cells = [row[0].ljust(widths[0]), *(cell.rjust(wide) for cell, wide in zip(row[1:], widths[1:], strict=True))]
            lines.append("  ".join(cells).rstrip())
        lines.insert(1, "-" * (sum(widths) + 2 * (len(widths) - 1)))
        return lines


def measure(mean: float | None, deviation: float | None, percent: bool) -> str:
    """A mean, and its deviation where there is one: percent with two decimals, other values with four digits."""
    if mean is None:
        return "-"
    if percent:
        return f"{100 * mean:.2f}" if deviation is None else f"{100 * mean:.2f} ± {100 * deviation:.2f}"
    return f"{mean:.4g}" if deviation is None else f"{mean:.4g} ± {deviation:.2g}"


def difference(mean: float | None, base: float | None, sign: float = 1.0) -> str:
    """How far a fraction lies above the base, in points; `sign` is -1 where less is better."""
    return "-" if mean is None or base is None else f"{100 * sign * (mean - base):+.2f}"


def quantity(number: int | None) -> str:
    """A count with a unit letter: 142.9 k, 100.74 M, 21.09 G."""
    if number is None:
        return "-"
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.2f} {letter}"
    return str(number)


def place(document: str, tables: str) -> str:
    """The document with what stands between its two markers replaced; an empty document becomes markers and tables.

    Raises:
        DnaError: the document holds text but not both markers.
    """
    if not document.strip():
        return f"{START}\n\n{tables}\n\n{END}\n"
    before, start, rest = document.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise DnaError(f"it holds text but no lines {START} and {END} for the tables to go between")
    return f"{before}{start}\n\n{tables}\n\n{end}{after}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
