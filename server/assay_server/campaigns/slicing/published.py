"""What published slices tell: their cost, and the kinds of their launches.

A kind is kernel, grid and block together. Costs are learned from slices of the same command on the same kind
of GPU.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from assay_core.files.durable import storage_errors
from assay_core.records.campaign import ChangedFile, FileChange
from assay_sampling.counters.replay_passes import replay_passes
from assay_sampling.errors import StorageError
from assay_server.analysis.runs.intact import RecordsChangedError, unreadable_copy, what_changed
from assay_server.campaign_file.slices import Assumptions, SliceCost, SliceSample, assumed_cost, fitted_cost
from assay_server.store.model import Run, Slice, SliceTime
from assay_server.store.record_store import RecordStore

# How many of the store's newest slices to learn from.
RECENT_SLICES = 500
_MOST_FILES = 1024  # whose kinds are cached


@dataclass(frozen=True)
class SliceCosts:
    """The cost of runs' slices, fitted to ``times`` of similar slices; ``assumed`` if there are none."""

    times: Sequence[SliceTime] = ()
    assumed: Assumptions = field(default_factory=Assumptions)

    @cached_property
    def _by_workload(self) -> dict[tuple[str, str], list[SliceTime]]:
        by_workload: dict[tuple[str, str], list[SliceTime]] = {}
        for measured in self.times:
            by_workload.setdefault((measured.device_key, measured.workload), []).append(measured)
        return by_workload

    def of(self, run: Run) -> SliceCost:
        """The cost of a run's slices from those of the same workload and kind of GPU; assumed without any."""
        samples = [
            SliceSample(one.launch_skip, one.launches, replay_passes(one.counters).passes, one.seconds)
            for one in self._by_workload.get((run.device_key, run.workload), ())
            if one.command == run.command
        ]
        passes = replay_passes(run.counters).passes
        return fitted_cost(samples, passes, assumed_cost(passes, self.assumed))


# A disk, or the server of a shared folder, has this long to give a file before its slice is measured again.
# Its run's finished attempts wait meanwhile, so it is less than the hour that an analysis waits.
_PATIENCE_SECONDS = 600.0


class LaunchKinds:
    """Finds the kinds in files and caches them by file. Thread-safe."""

    def __init__(self, records: RecordStore, seconds: Callable[[], float] = time.monotonic) -> None:
        self._records, self._seconds = records, seconds
        self._lock = threading.Lock()
        self._kinds_of_files: OrderedDict[str, np.ndarray] = OrderedDict()
        # The first and the last time that the disk did not give a file.
        self._refused: dict[str, tuple[float, float]] = {}

    def of(self, piece: Slice) -> np.ndarray:
        """Hashes of the kinds of launches in a published slice, each once, shape (k,).

        Raises RecordsChangedError if its file is missing or changed, or has been unreadable for ten minutes;
        StorageError if the disk does not give it now: ask again; InputError.
        """
        if not piece.file:
            return np.empty(0, np.uint64)
        with self._lock:
            kinds = self._kinds_of_files.get(piece.content_hash)
        if kinds is not None:
            return kinds
        with self._records.reading(piece.file) as path:
            what = what_changed(path, piece.content_hash)
            if what is FileChange.UNREADABLE:
                self._wait_for(piece)
            with self._lock:
                self._refused.pop(piece.file, None)
            if what is not None:
                raise RecordsChangedError((ChangedFile(piece.run_id, str(path), what),))
            with storage_errors(path):
                kinds = _kinds(str(path))
        with self._lock:
            self._kinds_of_files[piece.content_hash] = kinds
            while len(self._kinds_of_files) > _MOST_FILES:
                self._kinds_of_files.popitem(last=False)
        return kinds

    def _wait_for(self, piece: Slice) -> None:
        """Raise StorageError while the disk may still give the file, which may be as published."""
        if self._records.place is not None:
            self._records.let_go(piece.file)
            raise unreadable_copy(piece.file)
        now = self._seconds()
        with self._lock:
            first, last = self._refused.get(piece.file, (now, now))
            if now - last > _PATIENCE_SECONDS:  # that was another time
                first = now
            self._refused[piece.file] = (first, now)
        if now - first < _PATIENCE_SECONDS:
            raise StorageError(
                f"records/{piece.file}",
                "the server's disk does not give it, and it decides how its run continues",
                "check the disk; after ten minutes its slice is measured again",
            )

    def new_in(self, pieces: Sequence[Slice]) -> list[int]:
        """How many kinds each slice has that no earlier slice has."""
        seen, counts = np.empty(0, np.uint64), []
        for piece in pieces:
            together = np.union1d(seen, self.of(piece))
            counts.append(len(together) - len(seen))
            seen = together
        return counts


def _kinds(path: str) -> np.ndarray:
    # Readers load Arrow's datasets, which a server that only schedules recordings does not need.
    from assay_sampling.launches.in_memory import EXACT_IDENTITY  # noqa: PLC0415
    from assay_sampling.launches.row_hash import hash_rows  # noqa: PLC0415
    from assay_sampling.readers.opening import open_recording  # noqa: PLC0415

    hashes = np.empty(0, np.uint64)
    with open_recording(path) as recording:
        for batch in recording.batches():
            columns = [batch.records.column(name).fill_null(0).to_numpy() for name in EXACT_IDENTITY]
            hashes = np.union1d(hashes, hash_rows(columns))
    return hashes
