"""Objects in a notebook: facts and tables as HTML, with everything that came from outside escaped.

Kernel names, file names and messages may hold anything: they are text here, never markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from assay_report.texts import shortened
from assay_sampling.visible import visible

_MOST_ROWS = 20
_WIDEST = 100
_ALIGN_LEFT = "style='text-align:left'"


def page(title: str, facts: Iterable[tuple[str, object]], *tables: str, lead: str = "") -> str:
    """A title, facts that have a value as a table of two columns, and further tables (HTML already).
    ``lead``: the sentence that it begins with, in full."""
    rows = "".join(
        f"<tr><th {_ALIGN_LEFT}>{safe(name)}</th><td {_ALIGN_LEFT}>{safe(value)}</td></tr>"
        for name, value in facts
        if value not in (None, "")
    )
    first = f"<p><strong>{escape(visible(lead))}</strong></p>" if lead else ""
    return f"<div>{first}<strong>{safe(title)}</strong><table>{rows}</table>{''.join(tables)}</div>"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, most: int = _MOST_ROWS) -> str:
    """A table with at most ``most`` rows, and how many more there are."""
    head = "".join(f"<th>{safe(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{safe(_cell(value))}</td>" for value in row) + "</tr>" for row in rows[:most]
    )
    more = f"<p>{len(rows) - most:,} more rows</p>" if len(rows) > most else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def safe(value: object) -> str:
    """Any value as text of an HTML page, cut in the middle if it is long, with nothing in it hidden."""
    return escape(shortened(visible(str(value)), _WIDEST))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
