"""The kernels, operators and ranges of a recording with the most time, in one pass over its launches.

A recording without times, such as a simulator's log, is ranked by cycles, and one without either by launches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.counters.definitions import ALL_CYCLES, COST_UNITS
from assay_sampling.gathering.named_range import batch_in_window, window_ids
from assay_sampling.launches.table import LaunchBatch, Names, table_metadata
from assay_sampling.operations.identity import Operation
from assay_sampling.readers.opening import open_recording
from assay_sampling.readers.range_names import without_serial_numbers

# What launches may cost, first the one to rank by where several were measured as often.
_QUANTITIES = ("duration_ns", "profiled_duration_ns", *ALL_CYCLES)


@dataclass(frozen=True)
class TopEntry:
    """A kernel, operator or range.

    Args:
        name: the kernel's demangled name, the operator's without shapes, or the path of nested ranges.
        launches: those of the kernel or operator; of a range those that it is the innermost range of.
        cost: what these cost together, in the unit of the quantity.
        percent: their share of the cost of all launches; None where no launch has a cost.
        calls: how often the operator was called; None for kernels and ranges.
    """

    name: str
    launches: int
    cost: float
    percent: float | None
    calls: int | None = None


@dataclass(frozen=True)
class Top:
    """What has the most time, longest first.

    Args:
        quantity: what is ranked by, such as "duration_ns" or "cycles_simulated"; "" where nothing was
            measured, and entries are ranked by launches.
        unit: "ns" or "cycle"; "" without a quantity.
        launches: all launches.
        launches_without_cost: those that the quantity was not measured for; they count as nothing.
        cost: that of all launches.
        kernels, operators, ranges: empty where none were recorded.
        in_named_range_of: of how many launches these are the program's own window; None if it names none.
    """

    quantity: str
    unit: str
    launches: int
    launches_without_cost: int
    cost: float
    kernels: tuple[TopEntry, ...]
    operators: tuple[TopEntry, ...]
    ranges: tuple[TopEntry, ...]
    in_named_range_of: int | None = None


# Launches, calls, and the costs in the order of _QUANTITIES.
_WIDTH = 2 + len(_QUANTITIES)


@dataclass
class _Sums:
    """Launches, calls and costs by the id of a text; memory grows with distinct texts, not with launches."""

    by_id: dict[int, np.ndarray] = field(default_factory=dict)

    def add(self, ids: pa.Array, numbers: pa.Table) -> None:
        table = numbers.append_column("id", ids).filter(pc.field("id").is_valid())
        grouped = table.group_by("id").aggregate([(name, "sum") for name in numbers.column_names])
        columns = [grouped[f"{name}_sum"].fill_null(0).to_numpy() for name in numbers.column_names]
        rows = np.stack(columns, axis=1).astype(np.float64)
        for identifier, row in zip(grouped["id"].to_pylist(), rows, strict=True):
            before = self.by_id.get(identifier)
            self.by_id[identifier] = row if before is None else before + row

    def by_name(self, name_of: Callable[[int], str]) -> dict[str, np.ndarray]:
        """The sums of ids of one name added up; those of the name "" are left out."""
        sums: dict[str, np.ndarray] = {}
        for identifier, row in self.by_id.items():
            name = name_of(identifier)
            sums[name] = sums[name] + row if name in sums else row
        sums.pop("", None)
        return sums

    def total(self) -> np.ndarray:
        return np.sum(list(self.by_id.values()), axis=0) if self.by_id else np.zeros(_WIDTH)


class TopTally:
    """Adds up batches of launches of one or more recordings of a run."""

    def __init__(self) -> None:
        self._kernels, self._operations, self._ranges = _Sums(), _Sums(), _Sums()
        self._names: dict[int, str] = {}
        self._measured = np.zeros(len(_QUANTITIES), np.int64)

    def add(self, batch: LaunchBatch) -> None:
        """Count the launches of a batch, and remember its names."""
        records = batch.records
        self._names.update(batch.new_names)
        present = [name in records.schema.names for name in _QUANTITIES]
        for index, name in enumerate(_QUANTITIES):
            self._measured[index] += records.num_rows - records[name].null_count if present[index] else 0
        has_operations = "operation_id" in records.schema.names
        zeros = pa.array(np.zeros(records.num_rows, np.int64))
        numbers = pa.table(
            {
                "launches": pa.array(np.ones(records.num_rows, np.int64)),
                # The ordinal of a call is that of its first launch.
                "calls": pc.equal(records["launch"], records["call"]).cast(pa.int64())
                if has_operations
                else zeros,
                **{
                    name: records[name].cast(pa.float64()) if there else zeros
                    for name, there in zip(_QUANTITIES, present, strict=True)
                },
            }
        )
        self._kernels.add(records["kernel_id"], numbers)
        self._ranges.add(records["nvtx_id"], numbers)
        if has_operations:
            self._operations.add(records["operation_id"], numbers)

    @property
    def launches(self) -> int:
        """How many were counted."""
        return int(self._kernels.total()[0])

    def top(self, most: int) -> Top:
        """The ``most`` kernels, operators and ranges with the most time."""
        index = int(np.argmax(self._measured))
        measured = int(self._measured[index])
        quantity = _QUANTITIES[index] if measured else ""
        total = self._kernels.total()
        launches, cost = int(total[0]), float(total[2 + index])

        def ranked(
            sums: _Sums, name_of: Callable[[str], str], *, calls: bool = False
        ) -> tuple[TopEntry, ...]:
            rows = sums.by_name(lambda identifier: name_of(self._names[identifier]))
            by = 2 + index if quantity else 0
            names = sorted(rows, key=lambda name: (-rows[name][by], name))[:most]
            return tuple(
                TopEntry(
                    name,
                    int(rows[name][0]),
                    float(rows[name][2 + index]),
                    100 * float(rows[name][2 + index]) / cost if cost else None,
                    int(rows[name][1]) if calls else None,
                )
                for name in names
            )

        return Top(
            quantity,
            COST_UNITS[quantity] if quantity else "",
            launches,
            launches - measured,
            cost,
            ranked(self._kernels, str),
            ranked(self._operations, _operator, calls=True),
            ranked(self._ranges, without_serial_numbers),
        )


def top_by_time(paths: Sequence[Path], most: int = 10) -> Top:
    """The ``most`` kernels, operators and ranges with the most time in recordings of one run.

    Of a light recording in the program's own window, if it names one
    (:mod:`assay_sampling.gathering.named_range`). Raises InputError for a file that cannot be read.
    """
    tally, window = TopTally(), TopTally()
    for path in paths:
        ids: frozenset[int] = frozenset()
        with open_recording(path) as recording:
            light = table_metadata(recording.schema).level == "light"
            for batch in recording.batches():
                tally.add(batch)
                if light:
                    ids |= window_ids(Names(batch.new_names))
                    window.add(batch_in_window(batch, ids))
    return replace(window.top(most), in_named_range_of=tally.launches) if window.launches else tally.top(most)


def _operator(text: str) -> str:
    """The name of an operation, whatever its shapes; "" for a kernel outside of all operations."""
    operation = Operation.from_text(text)
    return "" if operation.kind in ("kernel", "graph") else operation.name
