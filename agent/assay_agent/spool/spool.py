"""The spool: launches on the agent's disk, from the profiler until the server holds them durably.

One directory per attempt:

    <run>-<slice>-<attempt>/manifest.json          whose launches these are, and the secret of their lease;
                                                   written before any of them
                            segment-00000000.seg   see assay_agent.spool.segments
                            seal.json              totals; written once every segment is on the disk

A segment is offered for sending only when it is durable, and deleted only when it is acknowledged. After a
crash an attempt with a seal is complete and only has to be sent; one without is discarded and made again. A
sealed attempt keeps its remaining segments until it is finished, so that its seal stays true; sending one
of them twice is harmless. Space is bounded: :meth:`SpooledAttempt.append` waits while the limit is reached.
"""

from __future__ import annotations

import logging
import math
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from assay_agent.spool import records
from assay_agent.spool.committer import Commit, Committer
from assay_agent.spool.damaged import DamagedFiles
from assay_agent.spool.records import SEAL, Incomplete, Seal
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
from assay_core.files.free_space import DEFAULT_FLOOR_BYTES, free_space, require_free_space
from assay_core.files.private_folders import make_private_folder
from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.failure import Failure
from assay_core.records.lease import SpoolState
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import Work
from assay_sampling.errors import StorageError
from assay_sampling.launches.table import LaunchBatch
from assay_sampling.running.failures import FailureClass

_log = logging.getLogger(__name__)

_TRASH = ".trash-"

# No run begins while the spool is fuller than the first; runs begin again once it is emptier than the second.
_FULL, _EMPTY_ENOUGH = 0.75, 0.5


class AttemptEnded(Exception):
    """The attempt is over for this process: the server does not want it, or the agent gives it up.

    ``failure`` is the failure to report to the server, or None. ``keep``: the agent ends, and the sealed
    attempt stays on the disk for the next process.
    """

    def __init__(self, failure: Failure | None = None, *, keep: bool = False) -> None:
        self.failure = failure
        self.keep = keep
        super().__init__(str(failure) if failure else "kept for later" if keep else "no longer wanted")


@dataclass(frozen=True)
class DiscardedAttempt:
    """An attempt of an earlier process that must be made again, and why."""

    key: AttemptKey
    why: str
    write_secret: bytes = field(default=b"", repr=False)
    failure_class: FailureClass = FailureClass.AGENT_RESTARTED


@dataclass(frozen=True)
class SpoolDepth:
    """How full a spool is; ``segments`` are those on the disk that the server has not acknowledged."""

    attempts: int
    segments: int
    used_bytes: int
    limit_bytes: int


@dataclass(frozen=True)
class Recovery:
    """Attempts that an earlier process of this agent left: some to send, some to make again."""

    sealed: tuple[SpooledAttempt, ...]
    discarded: tuple[DiscardedAttempt, ...]


class Spool:
    """All attempts that this agent holds.

    ``changed`` guards the state of the spool and of all its attempts, and is notified of every change.

    Args:
        directory: created if missing; only one process may use it at a time.
        limit_bytes: segments held at most, in bytes on the disk.
        minimum_free_bytes: always left free on the disk, regardless of the limit.
        flush_seconds: a segment is closed, full or not, when it has been open this long.
    """

    def __init__(
        self,
        directory: Path,
        *,
        limit_bytes: int = 4 << 30,
        minimum_free_bytes: int = DEFAULT_FLOOR_BYTES,
        flush_seconds: float = 2.0,
    ) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes
        self.minimum_free_bytes = minimum_free_bytes
        self.flush_seconds = flush_seconds
        self.changed = threading.Condition()
        self.attempts: dict[AttemptKey, SpooledAttempt] = {}
        self.used_bytes = 0
        self.damaged = DamagedFiles(directory.with_name(f"{directory.name}-damaged"))
        self._full = False
        self._waiting = 0  # attempts that wait for room
        self._trash = count()
        with storage_errors(self.subject):
            make_private_folder(directory)
        self._committer = Committer()

    @property
    def subject(self) -> str:
        return f"spool {self.directory}"

    def close(self) -> None:
        """End the spool's thread; what is on the disk stays."""
        self._committer.close()

    def set_limit(self, limit_bytes: int) -> None:
        """Change how many bytes it may take; what it holds already stays."""
        with self.changed:
            self.limit_bytes = limit_bytes
            self.changed.notify_all()

    def depth(self) -> SpoolDepth:
        """How full it is now."""
        with self.changed:
            attempts = self.attempts.values()
            segments = sum(attempt.pending for attempt in attempts)
            return SpoolDepth(len(attempts), segments, self.used_bytes, self.limit_bytes)

    def recover(self) -> Recovery:
        """Take over what an earlier process left; call once, before anything else."""
        sealed, discarded = [], []
        with storage_errors(self.subject):
            for path in sorted(p for p in self.directory.iterdir() if p.is_dir()):
                lease = None if path.name.startswith(_TRASH) else records.read_lease(path)
                if lease is None:
                    shutil.rmtree(path, ignore_errors=True)
                    continue
                key, secret = lease
                found = records.read_whole_attempt(path)
                if isinstance(found, Incomplete):
                    _log.warning("%s is discarded: %s", key, found.why)
                    for file, cause in found.damaged:
                        self.damaged.put(key, file, cause)
                    because = FailureClass.SPOOL_DAMAGED if found.damaged else FailureClass.AGENT_RESTARTED
                    discarded.append(DiscardedAttempt(key, found.why, secret, because))
                    self._discard(path)
                    continue
                attempt = SpooledAttempt(self, key, path, write_secret=secret)
                attempt.restore(*found)
                self.attempts[key] = attempt
                sealed.append(attempt)
        return Recovery(tuple(sealed), tuple(discarded))

    def create(self, work: Work) -> SpooledAttempt:
        """Begin to spool an attempt, durably. Raises StorageError."""
        key = work.key
        path = self.directory / key.directory_name
        with storage_errors(self.subject):
            if path.exists():
                self._discard(path)
            path.mkdir(mode=0o700)
            try:
                records.write_manifest(path, work)
                durable.sync_directory(self.directory)
            except OSError:
                # Nobody will ask for it again: it would take space until the next start.
                shutil.rmtree(path, ignore_errors=True)
                raise
        attempt = SpooledAttempt(
            self,
            key,
            path,
            work.lease_remaining_ms / 1000,
            write_secret=work.write_secret,
        )
        with self.changed:
            self.attempts[key] = attempt
            self.changed.notify_all()
        return attempt

    def remove(self, attempt: SpooledAttempt) -> None:
        """Forget an attempt and delete its remaining files."""
        attempt.end(None)
        with self.changed:
            self.attempts.pop(attempt.key, None)
            self.used_bytes -= attempt.release()
            self.changed.notify_all()
        with storage_errors(self.subject):
            if attempt.directory.exists():
                self._discard(attempt.directory)

    def _discard(self, path: Path) -> None:
        # In one step: a half-deleted directory could look like another state of the attempt.
        trash = self.directory / f"{_TRASH}{next(self._trash)}-{path.name}"
        shutil.rmtree(trash, ignore_errors=True)
        durable.replace(path, trash)
        shutil.rmtree(trash, ignore_errors=True)

    def reserve(self, size: int, attempt: SpooledAttempt) -> None:
        """Wait until ``size`` more bytes fit. Raises StorageError if they never will, AttemptEnded."""
        if size > self.limit_bytes:
            raise StorageError(
                self.subject,
                f"no space: a segment of {size:,} bytes is over the limit of {self.limit_bytes:,} bytes",
                "give the agent a larger --spool-limit; nothing already stored is lost",
            )
        with self.changed:
            self._wait_for_room(size, attempt)
            attempt.check()
            self._check_disk(size)
            self.used_bytes += size

    def _wait_for_room(self, size: int, attempt: SpooledAttempt) -> None:
        if self.used_bytes + size <= self.limit_bytes:
            return
        _log.warning("the spool is full (%s): %s waits until the server has taken some", self, attempt.key)
        self._waiting += 1
        try:
            self.changed.wait_for(lambda: attempt.over or self.used_bytes + size <= self.limit_bytes)
        finally:
            self._waiting -= 1

    def __str__(self) -> str:
        return f"{self.used_bytes:,} of {self.limit_bytes:,} bytes"

    def takes_runs(self) -> bool:
        """Whether a further run may begin: False from a spool that is 75 % full until it is half empty.

        A run is never stopped in its middle, because that would change what it measures
        (docs/agent.md, "The spool").
        """
        with self.changed:
            full = self.used_bytes > self.limit_bytes * (_EMPTY_ENOUGH if self._full else _FULL)
            if full != self._full:
                self._full = full
                said = "no run begins until the server has taken half of it" if full else "runs begin again"
                _log.warning("the spool holds %s: %s", self, said)
            return not full

    def state(self) -> SpoolState:
        """How full it is, for the server and for people."""
        full = not self.takes_runs()
        with self.changed:
            return SpoolState(
                self.used_bytes,
                self.limit_bytes,
                waits=full or self._waiting > 0,
                damaged=self.damaged.count,
            )

    def _check_disk(self, size: int) -> None:
        with storage_errors(self.subject):
            require_free_space(
                self.subject,
                self.directory,
                self.minimum_free_bytes,
                "free disk space, or start the agent with --state on a larger disk; nothing stored is lost",
                wanted_bytes=size,
            )

    def commit(self, temporary: Path, final: Path, done: Callable[[OSError | None], None]) -> None:
        """Make a written file durable under its final name, soon and in another thread."""
        self._committer.submit(Commit(temporary, final, done))


class SpooledAttempt:
    """One attempt in the spool: the profiler's side appends and seals, the uplink's reads and confirms."""

    def __init__(
        self,
        spool: Spool,
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
        held, self._held_bytes = self._held_bytes, 0
        self._sealing = True
        return held

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


def default_limit_bytes(directory: Path) -> int:
    """A quarter of what is free on the disk of ``directory``, at most 4 GiB."""
    return min(4 << 30, free_space(directory).free_bytes // 4)
