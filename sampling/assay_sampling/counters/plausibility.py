"""Finds numbers that no GPU can have counted, and doubtful ones, in the launches of one file.

Errors: a negative counter; more than 32 threads an instruction; a count that does not fit the 64 bits of a
hardware counter; a launch of more threads, or one that ends later, than 64 bits hold; durations whose sum
does not fit. Notes: a share over 100 % by more than rounding, which counters of several passes over a short
launch do give; launches that cost nothing, for clocks that are too coarse round them away.

Source: counters.toml (units); docs/nvidia-tools.md, "Metric names" (hit rates over 100 %). Memory: one batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.arrays import values_of
from assay_sampling.counters.definitions import COST_UNITS
from assay_sampling.errors import InputError
from assay_sampling.launches.table import SHAPE_COLUMNS, counter_columns
from assay_sampling.notes.registry import Note, make_note

MOST_64_BITS = 2**63 - 1
_MOST_COUNT = 2.0**64
# Units of what hardware counters count, one by one.
_COUNTED = frozenset({"cycle", "inst", "sector", "request", "byte"})
_THREADS, _MOST_THREADS = "threads_per_instruction", 32.0
# Pages print two decimals.
_ROUNDING = 0.01
_AGAIN = "profile that launch again, or leave the counter out"
_DAMAGED = "the file is damaged; record it again"


@dataclass
class _Tally:
    """Launches with a doubtful value: how many, the first, and the greatest value."""

    launches: int
    process: int
    launch: int
    greatest: float


class Plausibility:
    """Looks at the batches of one file, one after the other; :meth:`notes` are complete after the last."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._counters = counter_columns(schema)
        self._over: dict[str, _Tally] = {}
        self._free: dict[str, _Tally] = {}
        self._duration_ns = 0.0
        self._lines: np.ndarray | None = None

    def check(self, records: pa.RecordBatch, lines: np.ndarray | None = None) -> None:
        """Raises InputError for the first impossible number.

        ``lines`` are the launches' lines in the file, shape (n,), where they are known.
        """
        self._lines = lines
        if not records.num_rows:
            return
        for counter in self._counters:
            self._counter(records, counter.name, counter.unit)
        self._threads(records)
        self._times(records)
        for quantity in COST_UNITS:
            if quantity in records.schema.names:
                values = records.column(quantity)
                self._tally(self._free, quantity, records, pc.equal(values, 0), values)

    def notes(self) -> Iterator[Note]:
        for quantity, tally in self._free.items():
            where = {"process": tally.process, "launch": tally.launch}
            yield make_note("zero_cost", quantity=quantity, launches=tally.launches, **where)
        for counter, tally in self._over.items():
            yield make_note(
                "percent_over_100", counter=counter, launches=tally.launches, greatest=tally.greatest,
                process=tally.process, launch=tally.launch,
            )  # fmt: skip

    def _counter(self, records: pa.RecordBatch, name: str, unit: str) -> None:
        values = records.column(name)
        least, most = _extremes(values)
        if least < 0.0:
            self._refuse(records, name, pc.less(values, 0.0), "{:g} is negative")
        if unit in _COUNTED and most >= _MOST_COUNT:
            too_large = pc.greater_equal(values, _MOST_COUNT)
            self._refuse(records, name, too_large, "{:g} does not fit a 64-bit counter")
        if unit == "%" and most > 100.0 + _ROUNDING:
            over = pc.greater(values, 100.0 + _ROUNDING)
            self._tally(self._over, name, records, over, values)
        if name == _THREADS and most > _MOST_THREADS + _ROUNDING:
            too_many = pc.greater(values, _MOST_THREADS + _ROUNDING)
            self._refuse(records, name, too_many, "{:g} threads an instruction, but a warp has 32")

    def _refuse(self, records: pa.RecordBatch, name: str, wrong: pa.Array, cause_template: str) -> None:
        row = pc.index(wrong, True).as_py()
        if row >= 0:
            cause = cause_template.format(records.column(name)[row].as_py())
            where = _where(records, row)
            raise InputError(self._path, f"{cause} for {where}", _AGAIN, line=self._line(row), field=name)

    def _threads(self, records: pa.RecordBatch) -> None:
        threads = np.ones(records.num_rows)
        for name in SHAPE_COLUMNS:
            sizes = pc.fill_null(records.column(name), 1)
            threads *= np.maximum(sizes.to_numpy(zero_copy_only=False), 1)
        self._refuse_beyond(records, threads, "has more threads than 64 bits hold")

    def _times(self, records: pa.RecordBatch) -> None:
        duration_ns = pc.fill_null(records.column("duration_ns"), 0).to_numpy(zero_copy_only=False)
        start_ns = pc.fill_null(records.column("start_ns"), 0).to_numpy(zero_copy_only=False)
        end_ns = start_ns.astype(np.float64) + duration_ns
        self._refuse_beyond(records, end_ns, "ends after the last moment that 64 bits hold")
        self._duration_ns += float(duration_ns.sum(dtype=np.float64))
        if self._duration_ns >= MOST_64_BITS:
            raise InputError(
                self._path, "its durations add up to more than 64 bits hold", _DAMAGED, field="duration_ns"
            )

    def _refuse_beyond(self, records: pa.RecordBatch, values: np.ndarray, cause: str) -> None:
        if values.max() >= MOST_64_BITS:
            row = int(values.argmax())
            raise InputError(self._path, f"{_where(records, row)} {cause}", _DAMAGED, line=self._line(row))

    def _line(self, row: int) -> int | None:
        return None if self._lines is None else int(self._lines[row])

    def _tally(
        self,
        into: dict[str, _Tally],
        name: str,
        records: pa.RecordBatch,
        wrong: pa.Array,
        values: pa.Array,
    ) -> None:
        rows = np.flatnonzero(pc.fill_null(wrong, False).to_numpy(zero_copy_only=False))
        if not len(rows):
            return
        first = int(rows[0])
        process, launch = (records.column(column)[first].as_py() for column in ("process", "launch"))
        tally = into.setdefault(name, _Tally(0, process, launch, 0.0))
        tally.launches += len(rows)
        tally.greatest = max(tally.greatest, float(pc.max(values).as_py()))


def _extremes(values: pa.Array) -> tuple[float, float]:
    """The least and the greatest value; zeros if there is none."""
    if values.null_count == 0 and len(values):
        numbers = values_of(values)
        least, most = float(numbers.min()), float(numbers.max())
        if not np.isnan(least):
            return least, most
    # Arrow leaves out what is missing or not a number.
    extremes = pc.min_max(values).as_py()
    return extremes["min"] or 0.0, extremes["max"] or 0.0


def _where(records: pa.RecordBatch, row: int) -> str:
    process, launch = records.column("process")[row].as_py(), records.column("launch")[row].as_py()
    return f"launch {launch} of process {process}"
