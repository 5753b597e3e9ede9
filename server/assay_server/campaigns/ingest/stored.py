"""What the store has of an upload's attempt, read at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from assay_server.campaigns.ingest.progress import Progress
from assay_server.campaigns.ingest.upload import Upload
from assay_server.store.model import Attempt, Run, Segment
from assay_server.store.sql import SqlTransaction


@dataclass(frozen=True)
class Stored:
    """An attempt and its run, and its durable segment with the upload's number.

    ``segments``: all of them; None if they were not asked for, because the progress in memory has them.
    """

    attempt: Attempt | None
    run: Run | None = None
    segment: Segment | None = None
    segments: Sequence[Segment] | None = None

    @classmethod
    def read(cls, store: SqlTransaction, upload: Upload, progress: Progress | None) -> Self:
        """Read what an upload needs whose attempt has got so far; a stranger's needs nothing."""
        key = upload.key
        attempt = store.attempt(key.run_id, key.slice_index, key.attempt)
        if attempt is None or not attempt.is_held_by(upload.claim):
            return cls(attempt)
        run = store.run(key.run_id)
        if not attempt.segments:
            return cls(attempt, run, segments=())
        known = store.segment(key, upload.index)
        if not is_behind(progress, attempt):
            return cls(attempt, run, known)
        return cls(attempt, run, known, store.segments(key))


def is_behind(progress: Progress | None, attempt: Attempt) -> bool:
    """Whether the store has more of an attempt than memory: after a restart or an unanswered commit."""
    return progress is None or progress.expected is None or attempt.segments > progress.next_index
