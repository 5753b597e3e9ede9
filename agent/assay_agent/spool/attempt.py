"""One attempt in the spool, from its first segment until the server holds all of them or gives it up."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from assay_agent.spool import records
from assay_agent.spool.damaged import DamagedFiles
from assay_agent.spool.records import SEAL, Seal
from assay_agent.spool.segments import (
    DamagedSegmentError,
    EncodedSegment,
    SegmentContent,
    SegmentEncoder,
    Segmenter,
    file_bytes,
    read_segment,
)
from assay_core.files import durable
from assay_core.files.durable import storage_errors
from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.failure import Failure
from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.errors import StorageError
from assay_sampling.launches.table import LaunchBatch

_log = logging.getLogger(__name__)


class AttemptEnded(Exception):
    """The attempt is over for this process: the server does not want it, or the agent gives it up.

    ``failure`` is the failure to report to the server, or None. ``keep``: the agent ends, and the sealed
    attempt stays on the disk for the next process.
    """

    def __init__(self, failure: Failure | None = None, *, keep: bool = False) -> None:
        self.failure = failure
        self.keep = keep
        super().__init__(str(failure) if failure else "kept for later" if keep else "no longer wanted")


class Holder(Protocol):
    """What an attempt needs of the spool that holds it; ``changed`` guards the state of both."""

    changed: threading.Condition
    used_bytes: int
    flush_seconds: float
    damaged: DamagedFiles

    @property
    def subject(self) -> str:
        """The spool in errors."""

    def reserve(self, size: int, attempt: SpooledAttempt) -> None:
        """Wait until ``size`` more bytes fit. Raises StorageError if they never will, AttemptEnded."""

    def commit(self, temporary: Path, final: Path, on_completion: Callable[[OSError | None], None]) -> None:
        """Make a written file durable under its final name, soon and in another thread."""


class SpooledAttempt:
    """One attempt in the spool: the profiler's side appends and seals, the uplink's reads and confirms."""

    def __init__(
        self,
        spool: Holder,
        key: AttemptKey,
        directory: Path,
        lease_seconds: float = math.inf,
        *,
        write_secret: bytes = b"",
    ) -> None:
        self.key = key
        self.write_secret = write_secret
        self.lease_seconds = lease_seconds
        self.directory = directory
        self.seal_record: Seal | None = None
        self.launches = 0
        self.segments = 0
        self.cancelled = threading.Event()
        self._spool = spool
        self._changed = spool.changed
        self._pending: dict[int, int] = {}  # durable, not acknowledged: bytes by segment, ascending
        self._held_bytes = 0
        self._committed = 0
        self._sealing = False
        self._ended: AttemptEnded | None = None
        self._error: StorageError | None = None
        self._segmenter: Segmenter | None = None
        self._encoder: SegmentEncoder | None = None
        self._opened_at = 0.0

    # The profiler's side.

    def append(self, batch: LaunchBatch) -> None:
        """Spool a batch; waits for room.

        Raises StorageError, LaunchTableError for a batch of another schema, AttemptEnded.
        """
        self.check()
        if self._segmenter is None:
            self._segmenter = Segmenter(batch.records.schema)
            self._encoder = SegmentEncoder(batch.records.schema)
            self._opened_at = time.monotonic()
        for content in self._segmenter.add(batch):
            self._write(content)
        if time.monotonic() - self._opened_at >= self._spool.flush_seconds:
            self._flush()

    def _flush(self) -> None:
        content = self._segmenter.flush() if self._segmenter else None
        if content is not None:
            self._write(content)

    def _write(self, content: SegmentContent) -> None:
        assert self._encoder is not None
        number = self.segments
        segment = self._encoder.encode(number, content)
        size = file_bytes(segment.header)
        self._spool.reserve(size, self)
        final = self.directory / records.segment_name(number)
        temporary = durable.temporary_of(final)
        with self._changed:
            self._held_bytes += size
        with storage_errors(self._spool.subject):
            durable.write_file(temporary, segment.file_parts())
        self._spool.commit(temporary, final, lambda error: self._on_committed(number, size, error))
        self.segments += 1
        self.launches += content.launches
        self._opened_at = time.monotonic()

    def _on_committed(self, segment: int, size: int, error: OSError | None) -> None:
        with self._changed:
            if error is not None:
                self._error = self._error or durable.storage_error(self._spool.subject, error)
            else:
                self._pending[segment] = size
                self._committed += 1
            self._changed.notify_all()

    def seal(self, flags: tuple[ValidityFlag, ...], log: AttemptLog) -> Seal:
        """Mark the attempt complete, durably: from here on it survives a crash. Raises as append does."""
        self._flush()
        with self._changed:
            self._changed.wait_for(lambda: self.over or self._committed == self.segments)
            self.check()
            self._sealing = True  # from here on no segment is deleted, so the list below stays true
            remaining = tuple(sorted(self._pending))
        seal = Seal(self.segments, self.launches, remaining, flags, log)
        with storage_errors(self._spool.subject):
            durable.write_atomically(self.directory / SEAL, seal.to_json())
        with self._changed:
            self.seal_record = seal
            self._changed.notify_all()
        return seal

    def wait_acknowledged(self) -> Seal:
        """Wait until the server holds every segment of this sealed attempt. Raises AttemptEnded."""
        with self._changed:
            self._changed.wait_for(lambda: self.over or (self.seal_record is not None and not self._pending))
            self.check()
            assert self.seal_record is not None
            return self.seal_record

    @property
    def over(self) -> bool:
        """Whether waiting is useless: the attempt has ended."""
        return self._ended is not None or self._error is not None

    def check(self) -> None:
        """Raise AttemptEnded if the attempt has ended."""
        if self._ended is not None:
            raise AttemptEnded(self._ended.failure, keep=self._ended.keep)
        if self._error is not None:
            raise self._error

    def end(self, failure: Failure | None, *, keep_sealed: bool = False) -> None:
        """Give the attempt up (None: the server did) and wake whoever waits for it; the first call counts.

        ``keep_sealed``: a sealed attempt is not given up but kept for the next process.
        """
        with self._changed:
            if self._ended is None:
                keep = keep_sealed and self.seal_record is not None
                self._ended = AttemptEnded(None if keep else failure, keep=keep)
            self.cancelled.set()
            self._changed.notify_all()

    # The uplink's side.

    def next_pending(self, start: int) -> int | None:
        """The first segment from ``start`` on that is durable and not acknowledged; hold ``changed``."""
        if self.over:
            return None
        return next((segment for segment in self._pending if segment >= start), None)

    @property
    def pending(self) -> int:
        """How many segments are durable and not acknowledged; hold ``changed``."""
        return len(self._pending)

    def size_of(self, segment: int) -> int:
        """Bytes of a segment that is pending; hold ``changed``."""
        return self._pending[segment]

    def read(self, segment: int) -> EncodedSegment:
        """A segment from the disk, its hashes checked.

        Raises DamagedSegmentError if it is damaged or gone; unless the attempt is over, what is left of the
        file is kept with the reason.
        """
        try:
            return read_segment(self.directory / records.segment_name(segment))
        except DamagedSegmentError as error:
            if not self.over:
                self._spool.damaged.put(self.key, error.path, error.cause)
            raise

    def acknowledge(self, segment: int) -> None:
        """The server holds the segment durably; acknowledging it again does nothing."""
        with self._changed:
            size = self._pending.pop(segment, None)
            if size is not None and not self._sealing:
                self._delete(segment, size)
            self._changed.notify_all()

    def _delete(self, segment: int, size: int) -> None:
        try:
            (self.directory / records.segment_name(segment)).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("an acknowledged segment of %s cannot be deleted: %s", self.key, error)
        self._held_bytes -= size
        self._spool.used_bytes -= size

    def release(self) -> int:
        """Release the bytes that the attempt still holds, and return their number; hold ``changed``."""
        released_bytes, self._held_bytes = self._held_bytes, 0
        self._sealing = True
        return released_bytes

    def restore(self, seal: Seal, sizes: dict[int, int]) -> None:
        """Take over a sealed attempt of an earlier process: its seal, and the sizes of its segments."""
        with self._changed:
            self.seal_record = seal
            self._sealing = True
            self.segments = self._committed = seal.segments
            self.launches = seal.launches
            self._pending = dict(sizes)
            self._held_bytes = sum(sizes.values())
            self._spool.used_bytes += self._held_bytes
            self._changed.notify_all()
