"""The kinds of launches in published slices: a kind is kernel, grid and block together."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from assay_core.records.campaign import ChangedFile, FileChange
from assay_server.analysis.runs.intact import RecordsChangedError, unreadable_copy, what_changed
from assay_server.store.model import Slice
from assay_server.store.protocols import RecordStore

_MOST_HELD = 1024


class LaunchKinds:
    """Finds the kinds in files and caches them by file. Thread-safe."""

    def __init__(self, records: RecordStore) -> None:
        self._records = records
        self._lock = threading.Lock()
        self._held: OrderedDict[str, np.ndarray] = OrderedDict()

    def of(self, piece: Slice) -> np.ndarray:
        """Hashes of the kinds of launches in a published slice, each once, shape (k,).

        Raises RecordsChangedError if its file is missing or changed, StorageError, InputError.
        """
        if not piece.file:
            return np.empty(0, np.uint64)
        with self._lock:
            known = self._held.get(piece.content_hash)
        if known is not None:
            return known
        with self._records.reading(piece.file) as path:
            what = what_changed(path, piece.content_hash)
            if what is FileChange.UNREADABLE and self._records.place is not None:
                raise unreadable_copy(piece.file)
            if what is not None:
                raise RecordsChangedError((ChangedFile(piece.run_id, str(path), what),))
            found = _kinds(str(path))
        with self._lock:
            self._held[piece.content_hash] = found
            while len(self._held) > _MOST_HELD:
                self._held.popitem(last=False)
        return found

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
    from assay_sampling.readers import open_recording  # noqa: PLC0415

    found = np.empty(0, np.uint64)
    with open_recording(path) as recording:
        for batch in recording.batches():
            columns = [batch.records.column(name).fill_null(0).to_numpy() for name in EXACT_IDENTITY]
            found = np.union1d(found, hash_rows(columns))
    return found
