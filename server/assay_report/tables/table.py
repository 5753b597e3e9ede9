"""A report's table, and the builder that makes it from columns and entries.

A column defines in one place its title, its unit, its alignment, where there is room for it, and how its
cells come from an entry. Forms only draw: they compute nothing and add no rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Literal, TypeVar

from assay_report.texts import ABSENT

Entry = TypeVar("Entry")
Alignment = Literal["left", "right"]
Mark = Literal["", "above", "refused"]


class Width(StrEnum):
    """Where there is room for a column."""

    NARROW = "narrow"
    """Everywhere."""
    WIDE = "wide"
    """On pages, which scroll; a terminal leaves it out."""
    LONG = "long"
    """Sentences: pages wrap them; a terminal shows the brief cells, and the sentences as remarks below."""


@dataclass(frozen=True)
class Cell:
    """A text; ``brief`` replaces it where there is little room (for LONG columns: nothing).

    ``mark``: what a form that can should emphasise: an error above the campaign's target, or a refusal.
    """

    text: str
    brief: str | None = None
    mark: Mark = ""

    @property
    def empty(self) -> bool:
        return self.text == ABSENT


@dataclass(frozen=True)
class Column:
    """A column's heading and layout, without its cells.

    Args:
        title: the quantity, without its unit.
        unit: empty where there is none.
        alignment: numbers go to the right.
        width: where there is room for it.
        shared: where all cells are equal, a narrow form may show the value once, in the table's title.
        clips: a narrow form may cut the middle out of its cells.
        brief: its title in narrow forms, if that differs.
    """

    title: str
    unit: str = ""
    alignment: Alignment = "left"
    width: Width = Width.NARROW
    shared: bool = False
    clips: bool = False
    brief: str = ""

    @property
    def heading(self) -> str:
        return f"{self.title} / {self.unit}" if self.unit else self.title

    @property
    def narrow_heading(self) -> str:
        title = self.brief or self.title
        return f"{title} {self.unit}" if self.unit else title


@dataclass(frozen=True)
class Table:
    """A table of texts; ``notes`` are the sentences that a reader needs to understand it."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Filled(Generic[Entry]):
    """A column and how it fills its cells. ``optional``: it is left out where no entry has a value."""

    column: Column
    cell: Callable[[Entry], Cell | str]
    optional: bool = False


def names(
    title: str, cell: Callable[[Entry], Cell | str], *, optional: bool = False, shared: bool = False,
    clips: bool = False, brief: str = "", width: Width = Width.NARROW,
) -> Filled[Entry]:  # fmt: skip
    """A column of texts."""
    column = Column(title, width=width, shared=shared, clips=clips, brief=brief)
    return Filled(column, cell, optional)


def numbers(
    title: str, cell: Callable[[Entry], Cell | str], unit: str = "", *, optional: bool = False,
    width: Width = Width.NARROW,
) -> Filled[Entry]:  # fmt: skip
    """A column of numbers."""
    return Filled(Column(title, unit, "right", width), cell, optional)


def sentences(title: str, cell: Callable[[Entry], Cell | str], *, optional: bool = False) -> Filled[Entry]:
    """A column of long texts."""
    return Filled(Column(title, width=Width.LONG), cell, optional)


def table_of(
    title: str, columns: Sequence[Filled[Entry]], entries: Iterable[Entry], notes: Sequence[str] = ()
) -> Table:
    """The table of all entries, without the optional columns in which no entry has a value."""
    all_entries = list(entries)
    cells = [[_cell(column.cell(entry)) for entry in all_entries] for column in columns]
    filled_columns = [
        (column.column, shown)
        for column, shown in zip(columns, cells, strict=True)
        if not column.optional or any(not cell.empty for cell in shown)
    ]
    rows = tuple(tuple(shown[at] for _, shown in filled_columns) for at in range(len(all_entries)))
    return Table(title, tuple(column for column, _ in filled_columns), rows, tuple(notes))


def filled(*tables: Table) -> list[Table]:
    """Those of the tables that have rows, in their order."""
    return [table for table in tables if table.rows]


def condensed(table: Table) -> tuple[Table, tuple[str, ...]]:
    """The table without the columns in which all rows say one thing, and these as sentences: "launches 12".

    Columns without any value go without a word, and in ``shared`` ones a missing value does not count. A
    table of one row stays as it is, and the first column too.
    """
    if len(table.rows) < 2:
        return table, ()
    positions, facts = [], []
    for at, column in enumerate(table.columns):
        cell_texts = {row[at].text for row in table.rows}
        texts = cell_texts - {ABSENT, ""}
        if at == 0 or len(cell_texts if not column.shared else texts) > 1:
            positions.append(at)
        elif texts:
            only = texts.pop()
            facts.append(f"{column.title} {only}{f' {column.unit}' if column.unit else ''}")
    columns = tuple(table.columns[at] for at in positions)
    rows = tuple(tuple(row[at] for at in positions) for row in table.rows)
    return Table(table.title, columns, rows, table.notes), tuple(facts)


def _cell(shown: Cell | str) -> Cell:
    return Cell(shown) if isinstance(shown, str) else shown
