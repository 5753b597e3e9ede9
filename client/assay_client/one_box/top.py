"""The kernels and operators of a recording with the most time, in one pass over its launches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.operations.identity import Operation
from assay_sampling.readers.opening import open_recording


@dataclass(frozen=True)
class TopEntry:
    """A kernel or operator: its launches, their time in ns, and its share of the time of all in percent."""

    name: str
    launches: int
    duration_ns: float
    time_percent: float


@dataclass(frozen=True)
class Top:
    """The kernels, and the operators and routines if any were recorded, with the most time, longest first."""

    launches: int
    duration_ns: float
    kernels: tuple[TopEntry, ...]
    operators: tuple[TopEntry, ...]


@dataclass
class _Sums:
    """Launches and time by the id of a text; memory grows with distinct texts, not with launches."""

    launches: dict[int, int] = field(default_factory=dict)
    duration_ns: dict[int, float] = field(default_factory=dict)

    def add(self, ids: pa.Array, duration_ns: pa.Array) -> None:
        table = pa.table({"id": ids, "duration": duration_ns}).filter(pc.field("id").is_valid())
        grouped = table.group_by("id").aggregate([("duration", "sum"), ([], "count_all")])
        columns = (grouped[name].to_pylist() for name in ("id", "duration_sum", "count_all"))
        for identifier, duration, count in zip(*columns, strict=True):
            self.launches[identifier] = self.launches.get(identifier, 0) + count
            self.duration_ns[identifier] = self.duration_ns.get(identifier, 0.0) + (duration or 0.0)

    def entries(self, name_of: Callable[[int], str], total_ns: float, most: int) -> tuple[TopEntry, ...]:
        """The ``most`` names with the most time; ids of one name are added up, "" is left out."""
        launches: Counter[str] = Counter()
        time_ns: defaultdict[str, float] = defaultdict(float)
        for identifier, count in self.launches.items():
            name = name_of(identifier)
            launches[name] += count
            time_ns[name] += self.duration_ns[identifier]
        time_ns.pop("", None)
        ranked = sorted(time_ns, key=lambda name: (-time_ns[name], name))[:most]
        return tuple(
            TopEntry(name, launches[name], time_ns[name], 100 * time_ns[name] / total_ns if total_ns else 0.0)
            for name in ranked
        )


def top_by_time(paths: Sequence[Path], most: int = 10) -> Top:
    """The ``most`` kernels and operators with the most time in recordings of one run, whatever their size.

    Raises InputError for a file that cannot be read.
    """
    kernels, operations, names = _Sums(), _Sums(), dict[int, str]()
    for path in paths:
        with open_recording(path) as recording:
            for batch in recording.batches():
                records = batch.records
                names.update(batch.new_names)
                duration = records.column("duration_ns")
                kernels.add(records.column("kernel_id"), duration)
                if "operation_id" in records.schema.names:
                    operations.add(records.column("operation_id"), duration)
    total_ns = sum(kernels.duration_ns.values())
    return Top(
        sum(kernels.launches.values()),
        total_ns,
        kernels.entries(lambda identifier: names[identifier], total_ns, most),
        operations.entries(lambda identifier: _operator(names[identifier]), total_ns, most),
    )


def _operator(text: str) -> str:
    """The name of an operation, whatever its shapes; "" for a kernel outside of all operations."""
    operation = Operation.from_text(text)
    return "" if operation.kind in ("kernel", "graph") else operation.name
