"""Launches in memory: a launch table with its names, in the order of (process, launch).

Analyses work on this; readers and the store produce it from streams. A launch takes the bytes of its columns
(about 150 in a light table, 8 more for each counter); :func:`gather` refuses before it exceeds a limit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.errors import LaunchTableError, RefusedError
from assay_sampling.launches.ranges import LaunchRange
from assay_sampling.launches.table import (
    Device,
    LaunchBatch,
    Names,
    TableMetadata,
    counter_columns,
    table_metadata,
)
from assay_sampling.notes.registry import Note

DEFAULT_MEMORY_LIMIT_BYTES = 8 << 30


@dataclass(frozen=True)
class Launches:
    """A launch table in memory, sorted by (process, launch), each pair once.

    ``sources`` are the files or runs it was read from; ``notes`` what the reader wants the user to know.
    ``ranks`` is how many ranks of one job, each a file, were joined in it; 1 unless the user gave several.
    ``ranges`` are the launches that its files cover, if they leave gaps between them, as slices do; empty:
    each process from its first to its last launch. A range may reach beyond the launches that are held.
    """

    table: pa.Table
    names: Names
    sources: tuple[str, ...] = ()
    notes: tuple[Note, ...] = field(default=())
    ranks: int = 1
    ranges: tuple[LaunchRange, ...] = ()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def metadata(self) -> TableMetadata:
        return table_metadata(self.table.schema)

    @property
    def unreadable(self) -> dict[str, str]:
        """By canonical name, why the reader left a counter of the file out."""
        found = [dict(note.parameters) for note in self.notes if note.code == "metric_unreadable"]
        return {str(fact["counter"]): f"{fact['metric']}: {fact['cause']}" for fact in found}

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
            values = pc.fill_null(values, pa.scalar(_null_value(values.type), values.type))
        array: np.ndarray = values.to_numpy(zero_copy_only=False)
        return array

    def kernels(self) -> int:
        """Number of distinct kernels (demangled names)."""
        return len(pc.unique(self.table["kernel_id"]))

    def devices(self) -> tuple[Device, ...]:
        """The devices that launches ran on; for one that the file does not list, only its ordinal."""
        known = {device.index: device for device in self.metadata.devices}
        used = pc.unique(self.table["device"]).drop_null().sort().to_pylist()
        return tuple(known.get(index, Device(index)) for index in used)

    def device_labels(self) -> list[str]:
        """Labels of the devices that launches ran on, in order of their ordinals."""
        return [device.label() for device in self.devices()]

    def slice(self, offset: int, length: int | None = None) -> Launches:
        """Rows [offset, offset + length) in the order of (process, launch)."""
        return replace(self, table=self.table.slice(offset, length))

    def take(self, rows: np.ndarray) -> Launches:
        """The given rows, shape (m,), ascending."""
        return replace(self, table=self.table.take(pa.array(rows)))


def _null_value(kind: pa.DataType) -> float | int:
    if pa.types.is_floating(kind):
        return float("nan")
    return 0 if pa.types.is_unsigned_integer(kind) else -1


def gather(
    batches: Iterable[LaunchBatch],
    schema: pa.Schema,
    *,
    sources: Sequence[str] = (),
    notes: Sequence[Note] = (),
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> Launches:
    """Collect a stream of batches into memory, sort it, and check that each launch appears once.

    Raises RefusedError before the table would exceed ``memory_limit_bytes``, LaunchTableError for a
    launch that appears twice.
    """
    names = Names()
    collected: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        names.update(batch.new_names)
        # Sorting holds a second copy for a moment.
        held_bytes += 2 * batch.records.nbytes
        if held_bytes > memory_limit_bytes:
            raise RefusedError(
                ", ".join(sources) or "launches",
                f"holding them takes more than the memory limit of {memory_limit_bytes:,} bytes",
                "raise --memory-limit, or analyse fewer launches",
            )
        collected.append(batch.records)
    table = pa.Table.from_batches(collected, schema=schema)
    return Launches(sort_launches(table, sources), names, tuple(sources), tuple(notes))


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
            raise LaunchTableError(
                ", ".join(sources) or "launches",
                f"launch {launch[row]} of process {process[row]} appears twice",
                "give each recording once; a file with several recordings must be split",
            )
    return table


def sequence_hash(launches: Launches, columns: Sequence[str]) -> str:
    """A hash of what was launched in which order: hexadecimal BLAKE2b-128 over the named columns.

    Two recordings with equal hashes hold the same launches in the same order, as far as these columns
    tell.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name in ("process", *columns):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(launches.column(name)).tobytes())
    return digest.hexdigest()


EXACT_IDENTITY = ("kernel_id", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
NAME_BLOCK_IDENTITY = ("kernel_id", "block_x", "block_y", "block_z")
