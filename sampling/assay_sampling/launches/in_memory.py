"""Launches in memory: a launch table with its names, in the order of (process, launch).

Analyses work on this; readers and the store produce it from streams. A launch takes the bytes of its columns
(about 150 in a light table, 8 more for each counter); :mod:`assay_sampling.gathering.from_batches` keeps to a
memory limit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.errors import LaunchTableError
from assay_sampling.launches.ranges import LaunchRange
from assay_sampling.launches.table import (
    Device,
    Names,
    TableMetadata,
    counter_columns,
    table_metadata,
)
from assay_sampling.notes.registry import Note

DEFAULT_MEMORY_LIMIT_BYTES = 8 << 30
# The NVTX range by which a program names its own window.
WINDOW_RANGE = "assay"


@dataclass(frozen=True)
class Launches:
    """A launch table in memory, sorted by (process, launch), each pair once.

    ``sources`` are the files or runs it was read from; ``notes`` what the reader wants the user to know.
    ``ranks`` is how many ranks of one job, each a file, were joined in it; 1 unless the user gave several.
    ``ranges`` are the launches that its files cover, if they leave gaps between them, as slices do; empty:
    each process from its first to its last launch. A range may reach beyond the launches that are held.
    ``in_named_range``: only those of the program's own window are here
    (:mod:`assay_sampling.gathering.named_range`).
    """

    table: pa.Table
    names: Names
    sources: tuple[str, ...] = ()
    notes: tuple[Note, ...] = field(default=())
    ranks: int = 1
    ranges: tuple[LaunchRange, ...] = ()
    in_named_range: bool = False

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def metadata(self) -> TableMetadata:
        return table_metadata(self.table.schema)

    @property
    def unreadable(self) -> dict[str, str]:
        """By canonical name, why the reader left a counter of the file out."""
        facts = [dict(note.parameters) for note in self.notes if note.code == "metric_unreadable"]
        return {str(fact["counter"]): f"{fact['metric']}: {fact['cause']}" for fact in facts}

    @property
    def counters(self) -> tuple[str, ...]:
        """Canonical counters measured for at least one launch."""
        return tuple(
            c.name
            for c in counter_columns(self.table.schema)
            if self.table[c.name].null_count < self.table.num_rows
        )

    def column(self, name: str) -> np.ndarray:
        """A column as NumPy, shape (n,); nulls become NaN in floating columns and -1 in integer ones.

        Name ids (``*_id``) keep their bits: a null id becomes 0.
        """
        values = self.table[name].combine_chunks()
        if values.null_count:
            values = pc.fill_null(values, pa.scalar(null_value(values.type), values.type))
        array: np.ndarray = values.to_numpy(zero_copy_only=False)
        return array

    @property
    def is_on_disk(self) -> bool:
        """Whether they did not fit into memory (:mod:`assay_sampling.gathering.on_disk`)."""
        return False

    def array(self, name: str) -> np.ndarray:
        """A column as :meth:`column` gives it, for code that reads it in blocks: it may lie on disk."""
        return self.column(name)

    def floats(self, name: str) -> np.ndarray:
        """A column without nulls as float64, shape (n,), for code that reads it in blocks."""
        values: np.ndarray = self.table[name].to_numpy().astype(np.float64)
        return values

    def batches(self, names: Sequence[str]) -> Iterator[list[np.ndarray]]:
        """Some columns of all launches, in order, part by part, with nulls as in :meth:`column`."""
        yield [self.column(name) for name in names]

    def computed(
        self, names: Sequence[str], kind: Any, values: Callable[[list[np.ndarray]], np.ndarray]
    ) -> np.ndarray:
        """What ``values`` makes, launch by launch, of some columns: an array of ``kind``, shape (n,), which
        lies where the launches lie."""
        return np.asarray(values([self.column(name) for name in names]), kind)

    def kernels(self) -> int:
        """Number of distinct kernels (demangled names)."""
        return len(pc.unique(self.table["kernel_id"]))

    def processes(self) -> int:
        """Number of processes that launched."""
        return len(np.unique(self.column("process")))

    def devices(self) -> tuple[Device, ...]:
        """The devices that launches ran on; for one that the file does not list, only its ordinal."""
        by_index = {device.index: device for device in self.metadata.devices}
        used = pc.unique(self.table["device"]).drop_null().sort().to_pylist()
        return tuple(by_index.get(index, Device(index)) for index in used)

    def device_labels(self) -> list[str]:
        """Labels of the devices that launches ran on, in order of their ordinals."""
        return [device.label() for device in self.devices()]

    def slice(self, offset: int, length: int | None = None) -> Launches:
        """Rows [offset, offset + length) in the order of (process, launch)."""
        return replace(self, table=self.table.slice(offset, length))

    def take(self, rows: np.ndarray) -> Launches:
        """The given rows, shape (m,), ascending."""
        return replace(self, table=self.table.take(pa.array(rows)))


def null_value(kind: pa.DataType) -> float | int:
    """What stands for null in a column of NumPy."""
    if pa.types.is_floating(kind):
        return float("nan")
    return 0 if pa.types.is_unsigned_integer(kind) else -1


def sort_launches(table: pa.Table, sources: Sequence[str] = ()) -> pa.Table:
    """``table`` in the order of (process, launch); raises LaunchTableError for a pair that appears twice."""
    process = table["process"].to_numpy()
    launch = table["launch"].to_numpy()
    step_process, step_launch = np.diff(process), np.diff(launch)
    if not np.all((step_process > 0) | ((step_process == 0) & (step_launch > 0))):
        order = np.lexsort((launch, process))
        table = table.take(pa.array(order))
        process, launch = process[order], launch[order]
        same = (np.diff(process) == 0) & (np.diff(launch) == 0)
        if same.any():
            row = int(np.argmax(same))
            raise twice(int(process[row]), int(launch[row]), sources)
    return table


def twice(process: int, launch: int, sources: Sequence[str]) -> LaunchTableError:
    """The error of a launch that appears twice."""
    return LaunchTableError(
        ", ".join(sources) or "launches",
        f"launch {launch} of process {process} appears twice",
        "give each recording once; a file with several recordings must be split",
    )


def sequence_hash(launches: Launches, columns: Sequence[str]) -> str:
    """A hash of what was launched in which order: hexadecimal BLAKE2b-128 over the named columns.

    Two recordings with equal hashes hold the same launches in the same order, as far as these columns
    tell.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name in ("process", *columns):
        digest.update(name.encode())
        update_with(digest, launches, name)
    return digest.hexdigest()


def update_with(digest: Any, launches: Launches, name: str) -> None:
    """Add the bytes of a column to a hash, part by part."""
    for (values,) in launches.batches([name]):
        digest.update(np.ascontiguousarray(values).data)


EXACT_IDENTITY = ("kernel_id", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
NAME_BLOCK_IDENTITY = ("kernel_id", "block_x", "block_y", "block_z")
