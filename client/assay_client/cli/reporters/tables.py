"""Tables and lists of facts as every reporter draws them: columns that survive pipes and narrow screens.

Numbers are never broken or cut, whatever the width: a figure that lost its last digits looks like another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from assay_client.cli.reporters.text import clipped, printable

SYNTHETIC_NOTICE = "synthetic: no silicon produced these data"

_GAP = "  "
_LEAST_WIDTH = 12


@dataclass
class Table:
    """A table of texts.

    Args:
        title: stands above it.
        columns: the headings, broken at spaces where that makes a column narrower.
        right: headings of the columns that hold numbers.
        clip: headings of the columns that are cut where the console is narrow.
        spare: headings of the columns that go, the first first, where it is too narrow for all; a line below
            the table names them.
    """

    title: str
    columns: Sequence[str]
    right: Sequence[str] = ()
    clip: Sequence[str] = ()
    spare: Sequence[str] = ()
    rows: list[list[str]] = field(default_factory=list)

    def add_row(self, *cells: str) -> None:
        self.rows.append([" ".join(printable(cell).split()) for cell in cells])

    def print(self, console: Console) -> None:
        """Draw it; a line that is still too long is left to the terminal to wrap."""
        gone = self._too_many(console.width)
        if gone:
            self._without(gone).print(console)
            console.print(f"(left out on this narrow terminal: {', '.join(gone)})", soft_wrap=True)
            return
        widths = self._widths(console.width)
        heads = [_wrapped(name, width) for name, width in zip(self.columns, widths, strict=True)]
        height = max(map(len, heads))
        console.print(Text(f"\n{self.title}", style="bold"), soft_wrap=True)
        for level in range(height):
            cells = [([""] * (height - len(head)) + head)[level] for head in heads]
            console.print(Text(self._line(cells, widths), style="bold"), soft_wrap=True)
        console.print("-" * (sum(widths) + len(_GAP) * (len(widths) - 1)), soft_wrap=True)
        for row in self.rows:
            console.print(self._line(row, widths), soft_wrap=True)

    def _too_many(self, available: int) -> list[str]:
        """The spare columns that must go for the others to fit, in order."""
        widths = dict(zip(self.columns, self._natural_widths(), strict=True))
        gone: list[str] = []
        for name in self.spare:
            if sum(widths.values()) + len(_GAP) * (len(widths) - 1) <= available:
                break
            del widths[name]
            gone.append(name)
        return gone

    def _without(self, gone: Sequence[str]) -> Table:
        kept = [index for index, name in enumerate(self.columns) if name not in gone]
        return Table(
            self.title,
            [self.columns[index] for index in kept],
            self.right,
            self.clip,
            rows=[[row[index] for index in kept] for row in self.rows],
        )

    def _natural_widths(self) -> list[int]:
        return [
            max([len(word) for word in name.split()] + [len(row[index]) for row in self.rows])
            for index, name in enumerate(self.columns)
        ]

    def _widths(self, available: int) -> list[int]:
        widths = self._natural_widths()
        for name in self.clip:
            index = list(self.columns).index(name)
            excess = sum(widths) + len(_GAP) * (len(widths) - 1) - available
            widths[index] = min(widths[index], max(widths[index] - excess, _LEAST_WIDTH))
        return widths

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        placed = [
            clipped(cell, width).rjust(width) if name in self.right else clipped(cell, width).ljust(width)
            for name, cell, width in zip(self.columns, cells, widths, strict=True)
        ]
        return _GAP.join(placed).rstrip()


def _wrapped(name: str, width: int) -> list[str]:
    lines: list[str] = []
    for word in name.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def print_facts(pairs: Sequence[tuple[str, str]], console: Console) -> None:
    """Names and values, one pair a line, aligned; the terminal wraps what is long."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        console.print(
            f"{name.ljust(width)}{_GAP}{' '.join(printable(value).split())}".rstrip(), soft_wrap=True
        )


def synthetic_mark(synthetic: bool) -> list[tuple[str, str]]:
    """The line that every rendering of synthetic data carries; none for measured data."""
    return [("data", SYNTHETIC_NOTICE)] if synthetic else []
