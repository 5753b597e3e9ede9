"""Tables and lists of facts for all reporters, readable in pipes and on narrow terminals.

Numbers are never broken or cut: a number that lost its last digits looks like another.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.text import Text

from assay_client.cli.reporters.text import clipped
from assay_sampling.visible import visible

SYNTHETIC_NOTICE = "synthetic: no silicon produced these data"
SIMULATED_NOTICE = "simulated: a cycle-level simulator ran these launches"

_GAP = "  "
_LEAST_WIDTH = 12
_LEAST_TEXT_WIDTH = 24
_LEAST_WIDTH_IN_A_PIPE = 40


@dataclass
class Table:
    """A table of texts.

    Args:
        title: printed above it.
        columns: the headings, broken at spaces if that makes a column narrower.
        right: headings of the columns that hold numbers.
        clip: headings of the columns that are cut on a narrow console.
        spare: headings of the columns that are left out, in this order, if the console is too narrow; a line
            below the table names them.
    """

    title: str
    columns: Sequence[str]
    right: Sequence[str] = ()
    clip: Sequence[str] = ()
    spare: Sequence[str] = ()
    rows: list[list[str]] = field(default_factory=list)

    def add_row(self, *cells: str) -> None:
        self.rows.append([" ".join(visible(cell).split()) for cell in cells])

    def print(self, console: Console) -> None:
        """Draw it. On a narrow terminal the remaining columns follow below, with the first ones repeated.

        In a pipe or a file every row stays one line; names keep some length there if it is too long anyway.
        """
        gone = self._too_many(console.width)
        if gone:
            self._only([i for i, name in enumerate(self.columns) if name not in gone]).print(console)
            console.print(f"(left out on this narrow terminal: {', '.join(gone)})", soft_wrap=True)
            return
        widths = self._widths(console.width)
        if not console.is_terminal and _span(widths) > console.width:
            widths = self._widths(console.width, _LEAST_WIDTH_IN_A_PIPE)
        if not console.is_terminal or _span(widths) <= console.width:
            self._draw(console, widths)
            return
        room = console.width - _span(widths[:-1]) - len(_GAP)
        if self.columns[-1] not in self.right and room >= _LEAST_TEXT_WIDTH:
            longest = max([len(word) for row in self.rows for word in row[-1].split()], default=0)
            self._draw(console, [*widths[:-1], max(room, longest)])
            return
        for number, part in enumerate(self._parts(widths, console.width)):
            part.title = f"{self.title.partition(',')[0]} (continued)" if number else self.title
            part._draw(console, part._widths(console.width))

    def _parts(self, widths: Sequence[int], available: int) -> list[Table]:
        """Tables that fit; each repeats the columns that name a row: the first, or all before the numbers."""
        leading = next((i for i, name in enumerate(self.columns) if name in self.right), len(widths))
        keys = list(range(leading if 0 < _span(widths[:leading]) <= available / 2 else 1))
        blocks, block = [], list(keys)
        for index in range(len(keys), len(widths)):
            if len(block) > len(keys) and _span([widths[i] for i in [*block, index]]) > available:
                blocks.append(block)
                block = list(keys)
            block.append(index)
        return [self._only(indices) for indices in [*blocks, block]]

    def _draw(self, console: Console, widths: Sequence[int]) -> None:
        """Draw it with these widths; a longer text in the last column continues on the lines below."""
        heads = [_wrapped(name, width) for name, width in zip(self.columns, widths, strict=True)]
        height = max(map(len, heads))
        console.print(Text(f"\n{visible(self.title)}", style="bold"), soft_wrap=True)
        for level in range(height):
            cells = [([""] * (height - len(head)) + head)[level] for head in heads]
            console.print(Text(self._line(cells, widths), style="bold"), soft_wrap=True)
        console.print("-" * _span(widths), soft_wrap=True)
        for row in self.rows:
            last = row[-1:]
            if last and len(row[-1]) > widths[-1] and self.columns[-1] not in self.clip:
                last = textwrap.wrap(row[-1], widths[-1], break_long_words=False, break_on_hyphens=False)
            for number, cell in enumerate(last):
                cells = [*([""] * (len(row) - 1) if number else row[:-1]), cell]
                console.print(self._line(cells, widths), soft_wrap=True)

    def _too_many(self, available: int) -> list[str]:
        """The spare columns to leave out so that the others fit, in order."""
        widths = dict(zip(self.columns, self._natural_widths(), strict=True))
        gone: list[str] = []
        for name in self.spare:
            if _span(list(widths.values())) <= available:
                break
            del widths[name]
            gone.append(name)
        return gone

    def _only(self, indices: Sequence[int]) -> Table:
        return Table(
            self.title,
            [self.columns[index] for index in indices],
            self.right,
            self.clip,
            rows=[[row[index] for index in indices] for row in self.rows],
        )

    def _natural_widths(self) -> list[int]:
        return [
            max([len(word) for word in name.split()] + [len(row[index]) for row in self.rows])
            for index, name in enumerate(self.columns)
        ]

    def _widths(self, available: int, least: int = _LEAST_WIDTH) -> list[int]:
        widths = self._natural_widths()
        for name in [name for name in self.clip if name in self.columns]:
            index = list(self.columns).index(name)
            excess = _span(widths) - available
            widths[index] = min(widths[index], max(widths[index] - excess, least))
        return widths

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        placed = [
            clipped(cell, width).rjust(width) if name in self.right else clipped(cell, width).ljust(width)
            for name, cell, width in zip(self.columns, cells, widths, strict=True)
        ]
        return _GAP.join(placed).rstrip()


def _span(widths: Sequence[int]) -> int:
    """The width of a line of columns with the gaps between them."""
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _wrapped(name: str, width: int) -> list[str]:
    lines: list[str] = []
    for word in name.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def print_facts(pairs: Sequence[tuple[str, str]], console: Console) -> None:
    """Names and values, one pair a line, aligned; the terminal wraps long lines."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        console.print(f"{name.ljust(width)}{_GAP}{' '.join(visible(value).split())}".rstrip(), soft_wrap=True)


def origin_label(profile: Mapping[str, Any]) -> str:
    """What every table of a recording that is not of silicon says; empty for measured data."""
    return "; ".join(text for _, text in origin_mark(profile))


def origin_mark(profile: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The line that every rendering of a recording that is not of silicon carries."""
    if profile.get("simulated"):
        return [("data", SIMULATED_NOTICE)]
    return synthetic_mark(bool(profile.get("synthetic")))


def synthetic_mark(synthetic: bool) -> list[tuple[str, str]]:
    """The line that every rendering of synthetic data carries; none for measured data."""
    return [("data", SYNTHETIC_NOTICE)] if synthetic else []
