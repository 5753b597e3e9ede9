"""A report as data: flat tables with the keys of its JSON, as CSV and Parquet.

A table has a column for each key of the JSON, ``a.b`` for a key within a key. Lists and objects without fixed
keys (parameters, notes, names of runs) are JSON text. No value is rounded.

CSV is by RFC 4180: commas, quotes doubled, lines end with CR LF, UTF-8, a header. Spreadsheets take a cell
that begins with one of ``= + - @``, a tab or a line break for a formula. A text that does gets an apostrophe
before it; numbers have no need of it, and are written in full. Characters that hide or turn text are written
by their number.
"""

from __future__ import annotations

import csv
import io
import json
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from assay_report.model.report import COMPARISONS, Report
from assay_report.verdicts.verdicts import verdicts_of
from assay_sampling.visible import visible, visible_json

if TYPE_CHECKING:
    import pyarrow as pa

SENTENCE = "assay.sentence"
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\n")
Kind = Literal["number", "integer", "truth", "text"]
Value = float | int | bool | str | None
_KINDS: Mapping[Any, Kind] = {float: "number", int: "integer", bool: "truth"}
MAIN = "rows"
"""The table that stands for the report where there is room for one."""
_OF_VERDICTS = ("gpus", "suite", "best", "flags", "excluded")
_OF_REPORT = (
    "summary", MAIN, "recommendations", "runs", "failed_runs", "provenance", *COMPARISONS, "published",
    "simulated",
)  # fmt: skip


@dataclass(frozen=True)
class DataColumn:
    """A column: its key in the JSON, its kind, and a value for each entry."""

    key: str
    kind: Kind
    values: tuple[Value, ...]


@dataclass(frozen=True)
class DataTable:
    """The entries of one list of the report."""

    name: str
    columns: tuple[DataColumn, ...]


def data_tables(report: Report) -> Iterator[DataTable]:
    """Every list of the report that has entries, and always ``rows``."""
    verdicts = verdicts_of(report)
    lists = [*((name, verdicts) for name in _OF_VERDICTS), *((name, report) for name in _OF_REPORT)]
    for name, holder in lists:
        entries = getattr(holder, name)
        if entries or name == MAIN:
            yield flat_table(name, _model(type(holder), name), entries)


def main_table(report: Report) -> DataTable:
    """The table of rows."""
    return flat_table(MAIN, _model(Report, MAIN), report.rows)


def flat_table(name: str, model: type[BaseModel], entries: Sequence[BaseModel]) -> DataTable:
    """Entries of one model as columns."""
    documents = [entry.model_dump(mode="json") for entry in entries]
    columns = [
        DataColumn(".".join(path), kind, tuple(_value(document, path, kind) for document in documents))
        for path, kind in _leaves(model)
    ]
    return DataTable(name, tuple(columns))


def _model(holder: type[BaseModel], name: str) -> type[BaseModel]:
    """The model of the entries of a list."""
    model: type[BaseModel] = typing.get_args(holder.model_fields[name].annotation)[0]
    return model


def _leaves(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Kind]]:
    for name, field in model.model_fields.items():
        inner = _without_none(field.annotation)
        here = (*path, name)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _leaves(inner, here)
        else:
            yield here, _KINDS.get(inner, "text")


def _without_none(annotation: Any) -> Any:
    """``X`` of ``X | None``."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        known = [each for each in typing.get_args(annotation) if each is not type(None)]
        return known[0] if len(known) == 1 else annotation
    return annotation


def _value(document: Any, path: tuple[str, ...], kind: Kind) -> Value:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    if document is None:
        return None
    if kind == "number":
        return float(document)
    if kind != "text" or isinstance(document, str):
        leaf: Value = document
        return leaf
    return visible_json(json.dumps(document, ensure_ascii=False))


def csv_text(table: DataTable) -> str:
    """The table; a missing value is an empty cell, and truth is ``true`` or ``false``."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow([defused(column.key) for column in table.columns])
    writer.writerows(zip(*([_csv_cell(v) for v in column.values] for column in table.columns), strict=True))
    return stream.getvalue()


def defused(text: str) -> str:
    """The text with nothing hidden, with an apostrophe before it where a spreadsheet would calculate it."""
    text = visible(text)
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def _csv_cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return defused(value) if isinstance(value, str) else repr(value)


def arrow_table(table: DataTable) -> pa.Table:
    """The table in Arrow: float64, int64, bool or string columns; a missing value is null."""
    import pyarrow as pa  # noqa: PLC0415 - a third of a second that other forms do not need

    kinds: dict[Kind, pa.DataType] = {
        "number": pa.float64(), "integer": pa.int64(), "truth": pa.bool_(), "text": pa.string(),
    }  # fmt: skip
    return pa.table({column.key: pa.array(column.values, kinds[column.kind]) for column in table.columns})


def parquet_bytes(table: DataTable, sentence: str | None = None) -> bytes:
    """The file, with ``sentence`` under :data:`SENTENCE` in its metadata; one table gives the same bytes."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    metadata = None if sentence is None else {SENTENCE: sentence}
    sink = pa.BufferOutputStream()
    pq.write_table(arrow_table(table).replace_schema_metadata(metadata), sink)
    return bytes(sink.getvalue().to_pybytes())


def report_parquet(report: Report) -> bytes:
    """The table of rows, with the report's first sentence."""
    return parquet_bytes(main_table(report), verdicts_of(report).overall.sentence)
