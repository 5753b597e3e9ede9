"""Tables as every reporter draws them."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from assay_client.cli.reporters.text import printable


def table(title: str, columns: Sequence[str], *, right: Sequence[str] = ()) -> Table:
    """An empty table; the columns in ``right`` hold numbers."""
    drawn = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        drawn.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return drawn


def facts(pairs: Sequence[tuple[str, str]]) -> Table:
    """Names and values, one pair a line, aligned."""
    drawn = Table(box=None, show_header=False, pad_edge=False)
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in pairs:
        drawn.add_row(name, Text(printable(value)))
    return drawn


SYNTHETIC_NOTICE = "synthetic: no silicon produced these data"


def synthetic_mark(synthetic: bool) -> list[tuple[str, str]]:
    """The line that every rendering of synthetic data carries; none for measured data."""
    return [("data", SYNTHETIC_NOTICE)] if synthetic else []
