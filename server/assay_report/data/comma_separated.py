"""Flat tables as CSV by RFC 4180: commas, quotes doubled, lines end with CR LF, UTF-8, a header.

Spreadsheets take a cell that begins with one of ``= + - @``, a tab or a line break for a formula. A text that
does gets an apostrophe before it; numbers have no need of it, and are written in full. Characters
that hide or turn text are written by their number.
"""

from __future__ import annotations

import csv
import io

from assay_report.data.flat import DataTable, Value
from assay_sampling.visible import visible

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\n")


def csv_text(table: DataTable) -> str:
    """The table; a missing value is an empty cell, and truth is ``true`` or ``false``."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow([defused(column.key) for column in table.columns])
    writer.writerows(zip(*([_cell(v) for v in column.values] for column in table.columns), strict=True))
    return stream.getvalue()


def defused(text: str) -> str:
    """The text with nothing hidden, with an apostrophe before it where a spreadsheet would calculate it."""
    text = visible(text)
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return defused(value) if isinstance(value, str) else repr(value)
