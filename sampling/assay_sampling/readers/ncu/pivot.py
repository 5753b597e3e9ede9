"""Pivots a details page from one row per metric to one row per launch.

The wide table looks like a raw page in base units with real metric names, so the readers of raw pages can
read it. Vectorised over launches; loops go over distinct metrics and units.

Source: docs/reading-recordings.md, "Details pages".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.errors import InputError
from assay_sampling.readers.ncu.columns import (
    PUSH_POP,
    USED_FIELDS,
    ColumnError,
    base_unit_of,
    factor_to_base,
    metric_of_label,
)
from assay_sampling.readers.numbers import parse_numbers

_EXPORT = "export the page again, or the raw page: ncu --import REPORT --csv --page raw --print-units base"
# Pages print at most this many decimals; further ones after a change of unit are rounding errors.
_DECIMALS = 6


@dataclass(frozen=True)
class MetricRows:
    """Rows of text cells, one metric each; ``lines`` are their line numbers, shape (n,)."""

    rows: list[list[str]]
    lines: np.ndarray


@dataclass(frozen=True)
class WideTable:
    """Launches: ``identity`` holds text cells by field, ``values`` numbers in base units by metric.

    Not measured is NaN. ``lines`` is the line of each launch's first row, shape (n,).
    """

    identity: dict[str, pa.Array]
    values: dict[str, np.ndarray]
    lines: np.ndarray

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that at least one launch has, sorted."""
        return tuple(sorted(self.values))

    def header(self) -> tuple[tuple[str, ...], list[str]]:
        """Fields and units as a raw page would have them."""
        units = [base_unit_of(name) or "" for name in self.metrics]
        return (*self.identity, *self.metrics), [""] * len(self.identity) + units

    def table(self, metrics: Sequence[str]) -> pa.Table:
        """Text cells of the identity and of ``metrics``, columns named by position; "" is not measured."""
        columns = list(self.identity.values())
        for name in metrics:
            values = self.values.get(name)
            if values is None:
                columns.append(pa.array([""] * len(self.lines), pa.string()))
            else:
                numbers = pa.array(values, mask=np.isnan(values))
                columns.append(pc.fill_null(pc.cast(numbers, pa.string()), ""))
        return pa.table(columns, names=[str(index) for index in range(len(columns))])


class Pivot:
    """Collects metric rows and yields launches whose rows are complete.

    Args:
        path: the file, for messages.
        fields: its header.
    """

    def __init__(self, path: Path, fields: tuple[str, ...]) -> None:
        self._path = path
        self._fields = fields
        self._identity = {
            name: index
            for index, name in enumerate(fields[: fields.index("Metric Name")])
            if name in USED_FIELDS or PUSH_POP in name
        }
        self._page = MetricRows([], np.zeros(0, np.int64))
        self._launches = 0
        self._of_all: set[str] | None = None
        self._of_last: tuple[int, set[str]] = (0, set())

    def add(self, more: MetricRows) -> None:
        self._page = MetricRows(self._page.rows + more.rows, np.append(self._page.lines, more.lines))

    def take(self, *, last: bool) -> Iterator[WideTable]:
        """The collected launches; the last one's rows may continue, so only the ``last`` call yields it."""
        page = self._page
        if not page.rows:
            return
        columns = {
            name: pa.array([row[index] for row in page.rows], pa.string()).dictionary_encode()
            for name, index in self._identity.items()
        }
        starts = self._starts(columns)
        end = len(page.rows) if last else int(starts[-1])
        self._page = MetricRows(page.rows[end:], page.lines[end:])
        starts = starts[starts < end]
        if len(starts):
            yield self._wide(columns, starts, end, page)

    def check_last(self) -> None:
        """Raises InputError where the last launch lacks what every other has: the file is cut there."""
        line, metrics = self._of_last
        missing = sorted((self._of_all or set()) - metrics)
        if missing:
            raise InputError(
                self._path,
                f"the last launch lacks {missing[0]}, which every other launch has: the file is cut",
                "export the page again",
                line=line,
            )

    def _starts(self, columns: dict[str, pa.DictionaryArray]) -> np.ndarray:
        """The first row of each launch, shape (l,)."""
        keys = [columns[name].indices.to_numpy() for name in ("ID", "Process ID") if name in columns]
        new = np.zeros(len(keys[0]), bool)
        new[0] = True
        for key in keys:
            new[1:] |= key[1:] != key[:-1]
        return np.flatnonzero(new)

    def _wide(
        self, columns: dict[str, pa.DictionaryArray], starts: np.ndarray, end: int, page: MetricRows
    ) -> WideTable:
        launch = np.zeros(end, np.int64)
        launch[starts[1:]] = 1
        launch = np.cumsum(launch)
        for name, column in columns.items():
            codes = column.indices.to_numpy()[:end]
            differs = codes != codes[starts][launch]
            if differs.any():
                row = int(np.argmax(differs))
                raise InputError(
                    self._path,
                    f"it differs from the launch's first row, line {page.lines[starts[launch[row]]]}",
                    _EXPORT,
                    line=int(page.lines[row]),
                    field=name,
                )
        identity = {
            name: column.dictionary.take(column.indices.take(pa.array(starts)))
            for name, column in columns.items()
        }
        wide = WideTable(identity, self._values(launch, len(starts), page, end), page.lines[starts])
        self._remember(wide)
        return wide

    def _values(self, launch: np.ndarray, launches: int, page: MetricRows, end: int) -> dict[str, np.ndarray]:
        at = [self._fields.index(f"Metric {what}") for what in ("Name", "Unit", "Value")]
        names, units, texts = (pa.array([row[i] for row in page.rows[:end]], pa.string()) for i in at)
        encoded = names.dictionary_encode()
        metric_of = [metric_of_label(text) for text in encoded.dictionary.to_pylist()]
        codes = encoded.indices.to_numpy()
        values: dict[str, np.ndarray] = {}
        for metric in dict.fromkeys(name for name in metric_of if name is not None):
            of_metric = np.array([name == metric for name in metric_of])
            rows = np.flatnonzero(of_metric[codes])
            lines = page.lines[rows]
            numbers = self._numbers(metric, units.take(pa.array(rows)), texts.take(pa.array(rows)), lines)
            values[metric] = self._scatter(metric, launch[rows], numbers, launches, lines)
        return values

    def _numbers(self, metric: str, units: pa.Array, texts: pa.Array, lines: np.ndarray) -> np.ndarray:
        """Values in the base unit, shape (m,), NaN where not measured."""
        parsed = parse_numbers(texts)
        if parsed.bad_row is not None:
            raise InputError(
                self._path,
                f"{texts[parsed.bad_row].as_py()!r} is not a number, as {metric} must be (commas must "
                "separate groups of three digits)",
                "fix the line, or export the page again with LC_ALL=C",
                line=int(lines[parsed.bad_row]),
                field="Metric Value",
            )
        values: np.ndarray = parsed.values.to_numpy(zero_copy_only=False).astype(np.float64)
        encoded = units.dictionary_encode()
        factors = np.ones(len(encoded.dictionary))
        for index, unit in enumerate(encoded.dictionary.to_pylist()):
            try:
                factors[index] = factor_to_base(metric, unit, base_unit_of(metric) or "")
            except ColumnError as error:
                row = pc.index(encoded.indices, index).as_py()
                raise InputError(
                    self._path, error.cause, error.remedy, line=int(lines[row]), field="Metric Unit"
                ) from error
        factor = factors[encoded.indices.to_numpy()]
        return np.where(factor == 1.0, values, np.round(values * factor, _DECIMALS))

    def _scatter(
        self, metric: str, launch: np.ndarray, numbers: np.ndarray, launches: int, lines: np.ndarray
    ) -> np.ndarray:
        """One value a launch, shape (l,): sections may repeat a metric, but only with the same value."""
        values = np.full(launches, np.nan)
        values[launch] = numbers
        differs = (values[launch] != numbers) & ~np.isnan(numbers)
        if differs.any():
            row = int(np.argmax(differs))
            raise InputError(
                self._path,
                f"{metric} appears twice for one launch, with different values",
                _EXPORT,
                line=int(lines[row]),
                field="Metric Value",
            )
        return values

    def _remember(self, wide: WideTable) -> None:
        """Record which metrics all launches but the last have, and which the last has."""
        present = {name: ~np.isnan(values) for name, values in wide.values.items()}
        if self._launches:
            last = self._of_last[1]
            self._of_all = last if self._of_all is None else self._of_all & last
        if len(wide.lines) > 1:
            earlier = {name for name, there in present.items() if there[:-1].all()}
            self._of_all = earlier if self._of_all is None else self._of_all & earlier
        self._launches += len(wide.lines)
        self._of_last = (int(wide.lines[-1]), {name for name, there in present.items() if there[-1]})
