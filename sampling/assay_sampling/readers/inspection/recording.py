"""Gathers the facts that ``assay inspect`` shows of a profile file, without holding the file."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from assay_sampling.launches.table import LaunchBatch, counter_columns, table_metadata
from assay_sampling.readers.base import DEFAULT_OPTIONS, ReadOptions
from assay_sampling.readers.inspection.top import TopTally
from assay_sampling.readers.opening import open_recording


def inspect_recording(
    path: str | Path, options: ReadOptions = DEFAULT_OPTIONS, *, top: int = 0
) -> dict[str, Any]:
    """Read a file to its end and count.

    Returns a dictionary that JSON can hold: ``path``, ``format``, ``launches``, ``kernels`` (distinct
    demangled names), ``devices`` (labels), ``levels``, ``counters`` (canonical names measured for at
    least one launch), ``null_counters`` (launches without a value, by counter), ``origin``, ``synthetic``,
    ``simulated``, ``notes``
    (:meth:`assay_sampling.notes.registry.Note.to_dict`), and with ``top`` the so many kernels, operators and
    ranges with the most time (``top``, :class:`assay_sampling.readers.inspection.top.Top`).
    Memory: one batch, and 8 bytes for each distinct kernel besides the names; with ``top`` also 100 bytes for
    each distinct kernel, operation and path of ranges. Raises InputError.
    """
    with open_recording(path, options) as recording:
        metadata = table_metadata(recording.schema)
        tally = _Tally([column.name for column in counter_columns(recording.schema)])
        tops = TopTally()
        for batch in recording.batches():
            tally.add(batch)
            if top:
                tops.add(batch)
        labels = {device.index: device.label() for device in metadata.devices}
        return {
            "path": str(path),
            "format": recording.format,
            "launches": tally.launches,
            "kernels": len(tally.kernels),
            "devices": [labels.get(index, f"device {index}") for index in sorted(tally.devices)],
            "levels": [metadata.level],
            "counters": [name for name in tally.counters if tally.nulls[name] < tally.launches],
            "null_counters": {name: tally.nulls[name] for name in tally.counters if tally.nulls[name]},
            "origin": metadata.origin,
            "synthetic": metadata.synthetic,
            "simulated": metadata.simulated,
            "notes": [note.to_dict() for note in recording.notes],
            **({"top": asdict(tops.top(top))} if top else {}),
        }


class _Tally:
    def __init__(self, counters: list[str]) -> None:
        self.counters = counters
        self.launches = 0
        self.kernels = np.zeros(0, np.uint64)
        self.devices: set[int] = set()
        self.nulls: Counter[str] = Counter()

    def add(self, batch: LaunchBatch) -> None:
        records = batch.records
        self.launches += records.num_rows
        kernels = pc.unique(records.column("kernel_id")).to_numpy(zero_copy_only=False)
        self.kernels = np.union1d(self.kernels, kernels)
        self.devices |= set(pc.unique(records.column("device")).drop_null().to_pylist())
        for name in self.counters:
            self.nulls[name] += records.column(name).null_count
