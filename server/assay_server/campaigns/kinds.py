"""The kinds of launches in published slices: kernel, grid and block together are a kind."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from assay_server.analysis.intact import ChangedFile, RecordsChangedError, what_changed
from assay_server.store.model import Slice

_MOST_HELD = 1024


class LaunchKinds:
    """Finds them in files, and keeps what it found of each; safe to use from several threads."""

    def __init__(self, path: Callable[[Slice], str]) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._held: OrderedDict[str, np.ndarray] = OrderedDict()

    def of(self, piece: Slice) -> np.ndarray:
        """Hashes of the kinds of launches in a published slice, each once, shape (k,).

        Raises RecordsChangedError where its file is not what was published, InputError.
        """
        if not piece.file:
            return np.empty(0, np.uint64)
        with self._lock:
            known = self._held.get(piece.content_hash)
        if known is not None:
            return known
        path = self._path(piece)
        what = what_changed(Path(path), piece.content_hash)
        if what is not None:
            raise RecordsChangedError((ChangedFile(piece.run_id, path, what),))
        found = _kinds(path)
        with self._lock:
            self._held[piece.content_hash] = found
            while len(self._held) > _MOST_HELD:
                self._held.popitem(last=False)
        return found

    def new_in(self, pieces: Sequence[Slice]) -> list[int]:
        """How many kinds each slice has that none before it has."""
        seen, counts = np.empty(0, np.uint64), []
        for piece in pieces:
            together = np.union1d(seen, self.of(piece))
            counts.append(len(together) - len(seen))
            seen = together
        return counts


def _kinds(path: str) -> np.ndarray:
    # Readers load Arrow's datasets, which a server that only schedules recordings never needs.
    from assay_sampling.launches import EXACT_IDENTITY  # noqa: PLC0415
    from assay_sampling.readers import open_recording  # noqa: PLC0415
    from assay_sampling.row_hash import hash_rows  # noqa: PLC0415

    found = np.empty(0, np.uint64)
    with open_recording(path) as recording:
        for batch in recording.batches():
            columns = [batch.records.column(name).fill_null(0).to_numpy() for name in EXACT_IDENTITY]
            found = np.union1d(found, hash_rows(columns))
    return found
