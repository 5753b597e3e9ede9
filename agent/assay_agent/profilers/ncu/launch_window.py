"""A part of a recording: its first launches left out."""

from __future__ import annotations

from collections.abc import Iterator

from assay_sampling.launches.checks import referenced_ids
from assay_sampling.launches.table import LaunchBatch


class LaunchWindow:
    """Leaves the first ``before`` launches of a recording out, but not the names that later ones use."""

    def __init__(self, before: int) -> None:
        self._before = before
        self._names: dict[int, str] = {}

    def part(self, batch: LaunchBatch) -> Iterator[LaunchBatch]:
        """The part of the next batch that is in the window; nothing if no launch is."""
        self._names.update(batch.new_names)
        records = batch.records.slice(min(self._before, batch.records.num_rows))
        self._before -= batch.records.num_rows - records.num_rows
        used = referenced_ids(records).tolist()
        names = {i: self._names.pop(i) for i in used if i in self._names}
        if records.num_rows:
            yield LaunchBatch(records, names)
