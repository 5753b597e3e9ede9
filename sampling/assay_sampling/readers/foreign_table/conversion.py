"""Launches from a table of another tool and its mapping.

A row is a launch, or several: ``repeat`` says how many, ``expand`` names a list of which each element is one.
A counter's cell that is empty, ``n/a`` or NaN is "not measured"; in any other column it is an error.

Format: docs/how-to/foreign-tables.md. Memory: the table's cells, and 150 bytes a launch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.counters.definitions import counter_of_metric, is_metric, registry
from assay_sampling.counters.own_names import column_of_metric
from assay_sampling.counters.plausibility import Plausibility
from assay_sampling.errors import InputError, LaunchTableError
from assay_sampling.launches.checks import check_batch
from assay_sampling.launches.in_memory import Launches, sort_launches
from assay_sampling.launches.table import (
    BASE_FIELDS,
    SHAPE_COLUMNS,
    CounterColumn,
    Device,
    Names,
    TableMetadata,
    launch_schema,
    make_batch,
    origin_of,
)
from assay_sampling.readers.foreign_table.mapping import (
    TARGETS,
    TEXTS,
    Source,
    TableMapping,
    counter_unit,
    factor_of,
)
from assay_sampling.readers.foreign_table.rows import ForeignRows, read_rows
from assay_sampling.readers.numbers import parse_numbers

FORMAT = "foreign-table"
_MOST_LAUNCHES = 1 << 28
_MOST_INT32, _MOST = 2**31 - 1, 2**53
_NEEDED = ("process", "launch")
_FIX = "correct the cell, or leave its row out with: skip"
_TYPES = {item.name: item.type for item in BASE_FIELDS}


@dataclass(frozen=True)
class ForeignTable:
    """The launches of a table, how many ``rows`` it has, and its columns that nothing was made of."""

    launches: Launches
    rows: int
    left_out: tuple[str, ...]


def read_foreign_table(path: Path, mapping: TableMapping, *, synthetic: bool = False) -> ForeignTable:
    """Read the launches of a table; ``synthetic`` marks them as not measured.

    Raises InputError naming file, line or row, and column of what cannot be a launch, or the column that the
    mapping names and the file lacks.
    """
    rows = read_rows(
        path,
        lambda names: _columns_read(path, mapping, names),
        records=mapping.records,
        separator=mapping.separator,
    )
    chosen_rows = _chosen_rows(rows, mapping)
    made = _Conversion(rows, mapping, *_expanded(rows, mapping, chosen_rows))
    launches = made.launches(synthetic=synthetic)
    used = {*rows.cells}
    return ForeignTable(launches, rows.rows, tuple(name for name in rows.names if name not in used))


def _columns_read(path: Path, mapping: TableMapping, names: Sequence[str]) -> list[str]:
    named = mapping.columns()
    for name in named:
        if name not in names:
            shown = ", ".join(map(repr, list(names)[:20]))
            more = f" and {len(names) - 20} more" if len(names) > 20 else ""
            raise InputError(
                path, "the mapping names this column, and the file does not have it",
                f"it has {shown}{more}", field=name,
            )  # fmt: skip
    others = [
        name
        for name in names
        if name not in named and any(fnmatchcase(name, pattern) for pattern in mapping.other_columns)
    ]
    return [*named, *dict.fromkeys(others)]


def _chosen_rows(rows: ForeignRows, mapping: TableMapping) -> np.ndarray:
    """The rows that ``only`` and ``skip`` leave, shape (k,)."""
    mask = np.ones(rows.rows, bool)
    for conditions, keep in ((mapping.only, True), (mapping.skip, False)):
        for column, values in conditions.items():
            texts = [str(value) for value in (values if isinstance(values, list) else [values])]
            same = pc.is_in(rows.cells[column], value_set=pa.array(texts, pa.string()))
            mask &= same.to_numpy(zero_copy_only=False) == keep
    if not mask.any():
        raise InputError(rows.path, "only and skip leave no row", "correct them in the mapping")
    return np.flatnonzero(mask)


def _expanded(
    rows: ForeignRows, mapping: TableMapping, chosen_rows: np.ndarray
) -> tuple[np.ndarray, pa.Array | None]:
    """The row of each launch, shape (n,), and the elements of the list that was expanded, shape (n,)."""
    if mapping.expand is not None:
        lists = [_elements(rows, mapping.expand, row) for row in chosen_rows.tolist()]
        counts = np.array([len(each) for each in lists], np.int64)
        elements = pa.array([text for each in lists for text in each], pa.string())
        return np.repeat(chosen_rows, counts), elements
    if isinstance(mapping.repeat, int):
        counts = np.full(len(chosen_rows), mapping.repeat, np.int64)
    else:
        texts = rows.cells[mapping.repeat].take(pa.array(chosen_rows))
        counts = _whole(rows, chosen_rows, mapping.repeat, texts, least=1)
    if float(counts.sum(dtype=np.float64)) > _MOST_LAUNCHES:
        raise InputError(
            rows.path, f"repeat makes more than {_MOST_LAUNCHES:,} launches", "repeat rows less often"
        )
    return np.repeat(chosen_rows, counts), None


def _elements(rows: ForeignRows, column: str, row: int) -> list[str]:
    text = rows.cells[column][row].as_py()
    try:
        elements = json.loads(text)
    except ValueError:
        elements = None
    if not isinstance(elements, list) or not elements:
        raise rows.error(row, column, f"{text[:80]!r} is not a list with something in it", _FIX)
    return [str(each) for each in elements]


def _whole(
    rows: ForeignRows,
    origin: np.ndarray,
    column: str,
    texts: pa.Array,
    *,
    least: int,
    factor: float = 1.0,
    rounds: bool = False,
) -> np.ndarray:
    """A column of whole numbers, none missing, shape (n,), int64; ``rounds``: fractions are rounded."""
    parsed = _parsed(rows, origin, column, texts)
    if parsed.null_count:
        at = pc.index(parsed.is_null(), True).as_py()
        shown = texts[at].as_py()
        cause = f"{shown!r} is not a number" if shown.strip() else "it has no value"
        raise rows.error(int(origin[at]), column, cause, _FIX)
    with np.errstate(over="ignore"):  # what overflows is too large, and said to be
        values = parsed.to_numpy(zero_copy_only=False) * factor
    whole = np.rint(values)
    wrong = (np.abs(whole) > _MOST) | (values < least) | ((whole != values) & (not rounds))
    if wrong.any():
        at = int(np.argmax(wrong))
        kind = "a number" if rounds else "a whole number"
        cause = f"{texts[at].as_py()!r} is not {kind} from {least} on"
        raise rows.error(int(origin[at]), column, cause, _FIX)
    numbers: np.ndarray = whole.astype(np.int64)
    return numbers


def _parsed(rows: ForeignRows, origin: np.ndarray, column: str, texts: pa.Array) -> pa.Array:
    parsed = parse_numbers(texts)
    if parsed.bad_row is not None:
        shown = texts[parsed.bad_row].as_py()[:80]
        raise rows.error(int(origin[parsed.bad_row]), column, f"{shown!r} is not a number", _FIX)
    return parsed.values


@dataclass(frozen=True)
class _Conversion:
    """Rows on the way to launches: ``origin``, shape (n,), is the row of each launch; ``elements`` are those
    of the list that was expanded."""

    rows: ForeignRows
    mapping: TableMapping
    origin: np.ndarray
    elements: pa.Array | None

    def launches(self, *, synthetic: bool) -> Launches:
        names = Names()
        columns = {
            TARGETS[target]: self._text(target, source, names)
            if target in TEXTS
            else self._number(target, source)
            for target, source in self.mapping.launches.items()
        }
        count = len(self.origin)
        zeros = np.zeros(count, np.int64)
        for name, values in (("process", zeros), ("launch", np.arange(count)), ("device", zeros)):
            columns.setdefault(name, pa.array(values))
        self._refuse_twice(columns)
        counters = self._counters()
        columns |= {column.name: values for column, values in counters}
        schema = launch_schema(self._metadata(synthetic, bool(counters)), [column for column, _ in counters])
        try:
            batch = make_batch(schema, columns, num_rows=count)
            check_batch(batch)
        except LaunchTableError as error:
            raise InputError(self.rows.path, error.cause, error.remedy) from error
        plausibility = Plausibility(self.rows.path, schema)
        plausibility.check(batch)
        table = pa.Table.from_batches([batch], schema=schema)
        source = str(self.rows.path)
        return Launches(sort_launches(table, (source,)), names, (source,), tuple(plausibility.notes()))

    def _metadata(self, synthetic: bool, with_counters: bool) -> TableMetadata:
        mapping = self.mapping
        device = Device(0, self._gpu(), compute_capability=mapping.compute_capability)
        return TableMetadata(
            "detailed" if with_counters else "light",
            origin=origin_of(synthetic=synthetic or mapping.synthetic),
            devices=(device,),
            format=FORMAT,
            tool=mapping.tool,
        )

    def _gpu(self) -> str:
        source = self.mapping.gpu
        if source is None:
            return ""
        names = pc.unique(self._texts(source)).to_pylist()
        if len(names) > 1:
            raise InputError(
                self.rows.path,
                f"it has launches of {len(names)} GPUs, {names[0][:40]!r} and {names[1][:40]!r} first",
                "import each alone: write only = {COLUMN = 'NAME'} into the mapping",
                field=", ".join(source.columns()) or None,
            )
        return str(names[0])

    def _cells(self, column: str) -> pa.Array:
        if column == self.mapping.expand and self.elements is not None:
            return self.elements
        return self.rows.cells[column].take(pa.array(self.origin))

    def _texts(self, source: Source) -> pa.Array:
        """The texts of a source, shape (n,)."""
        if source.column is not None:
            return self._cells(source.column)
        if source.value is not None:
            return pa.array([str(source.value)] * len(self.origin), pa.string())
        parts = [self._cells(part) if is_column else pa.scalar(part) for part, is_column in source.parts()]
        made = pc.binary_join_element_wise(*parts, "") if parts else pa.array([""] * len(self.origin))
        return (
            made if isinstance(made, pa.Array) else pa.array([made.as_py()] * len(self.origin), pa.string())
        )

    def _text(self, target: str, source: Source, names: Names) -> pa.Array:
        """Ids of texts; an empty one is null, and an error for a kernel."""
        encoded = self._texts(source).dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        empty = [index for index, text in enumerate(texts) if not text.strip()]
        if empty and target == "kernel":
            row = int(self.origin[pc.index(encoded.indices, empty[0]).as_py()])
            raise self.rows.error(row, _column(source), "the kernel has no name", _FIX)
        ids = [None if index in empty else names.intern(text) for index, text in enumerate(texts)]
        return pa.array(ids, pa.uint64()).take(encoded.indices)

    def _number(self, target: str, source: Source) -> pa.Array:
        least = 1 if target in SHAPE_COLUMNS else 0
        factor = factor_of(target, source)
        if source.value is not None:
            value = source.value
            scaled = math.nan if isinstance(value, str) else value * factor
            most = _MOST_INT32 if pa.types.is_int32(_TYPES[TARGETS[target]]) else _MOST
            if not (least <= scaled <= most and float(scaled).is_integer()):
                cause = f"{value!r} is not a whole number from {least} to {most:,}"
                raise InputError("mapping", cause, "correct it in the mapping", field=f"launches.{target}")
            return pa.array(np.full(len(self.origin), int(scaled)), _TYPES[TARGETS[target]])
        column = _column(source)
        values = _whole(
            self.rows,
            self.origin,
            column,
            self._cells(column),
            least=least,
            factor=factor,
            # Times may have fractions of a nanosecond.
            rounds=target in ("duration_ns", "start_ns"),
        )
        kind = _TYPES[TARGETS[target]]
        if pa.types.is_int32(kind) and int(values.max(initial=0)) > _MOST_INT32:
            row = int(self.origin[int(values.argmax())])
            raise self.rows.error(row, column, f"{int(values.max()):,} is too large", _FIX)
        return pa.array(values, kind)

    def _refuse_twice(self, columns: dict[str, pa.Array]) -> None:
        source = self.mapping.launches.get("launch")
        if source is None:
            return
        process, launch = (columns[name].to_numpy(zero_copy_only=False) for name in _NEEDED)
        order = np.lexsort((launch, process))
        same = (np.diff(process[order]) == 0) & (np.diff(launch[order]) == 0)
        if same.any():
            at = int(np.argmax(same))
            first, second = (int(self.origin[order[row]]) for row in (at, at + 1))
            earlier = self.rows.line_of(first)
            where = f"in line {earlier}" if earlier is not None else f"in row {first:,}"
            number, of_process = int(launch[order[at]]), int(process[order[at]])
            cause = f"launch {number} of process {of_process} is there already, {where}"
            raise self.rows.error(
                second, _column(source), cause, "number each launch once, or leave launch out"
            )

    def _counters(self) -> list[tuple[CounterColumn, pa.Array]]:
        sources = dict(self.mapping.counters)
        named = set(self.mapping.columns())
        for column in self.rows.cells:
            if column not in named:
                entry = counter_of_metric(column)
                sources.setdefault(entry.name if entry else column, Source(column=column))
        counters = []
        for name, source in sources.items():
            counter = _counter_column(name, source)
            unit, factor = counter_unit(name, source, counter.unit)
            counters.append((replace(counter, unit=unit), self._counted(source, factor)))
        return counters

    def _counted(self, source: Source, factor: float) -> pa.Array:
        if source.value is not None:
            return pa.array(np.full(len(self.origin), float(source.value) * factor))
        column = _column(source)
        values = _parsed(self.rows, self.origin, column, self._cells(column))
        negative = pc.index(pc.less(values, 0.0), True).as_py()
        if negative >= 0:
            shown = f"{values[negative].as_py():g} is negative"
            raise self.rows.error(int(self.origin[negative]), column, shown, _FIX)
        return values if factor == 1.0 else pc.multiply(values, factor)


def _column(source: Source) -> str:
    return source.column or ", ".join(source.columns()) or "value"


def _counter_column(name: str, source: Source) -> CounterColumn:
    """The column of a counter: of ours, of a metric of Nsight Compute, or of the name that it was given."""
    if name in registry():
        return registry()[name].column(source.column or "")
    if is_metric(name):
        return column_of_metric(name)
    return CounterColumn(name, "1", source.column or name, "hardware")
