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
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from assay_agent.spool import records
from assay_agent.spool.attempt import SpooledAttempt
from assay_agent.spool.committer import Commit, Committer
from assay_agent.spool.damaged import DamagedFiles
from assay_agent.spool.records import Incomplete
from assay_core.files import durable
from assay_core.files.durable import storage_errors
from assay_core.files.free_space import DEFAULT_FLOOR_BYTES, free_space, require_free_space
from assay_core.files.private_folders import make_private_folder
from assay_core.records.attempt import AttemptKey
from assay_core.records.lease import SpoolState
from assay_core.records.work import Work
from assay_sampling.errors import StorageError
from assay_sampling.running.failures import FailureClass

_log = logging.getLogger(__name__)

_TRASH = ".trash-"

# No run begins while the spool is fuller than the first; runs begin again once it is emptier than the second.
_FULL, _EMPTY_ENOUGH = 0.75, 0.5


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
                content = records.read_whole_attempt(path)
                if isinstance(content, Incomplete):
                    _log.warning("%s is discarded: %s", key, content.why)
                    for file, cause in content.damaged:
                        self.damaged.put(key, file, cause)
                    because = FailureClass.SPOOL_DAMAGED if content.damaged else FailureClass.AGENT_RESTARTED
                    discarded.append(DiscardedAttempt(key, content.why, secret, because))
                    self._discard(path)
                    continue
                attempt = SpooledAttempt(self, key, path, write_secret=secret)
                attempt.restore(*content)
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
                consequence = (
                    "no run begins until the server has taken half of it" if full else "runs begin again"
                )
                _log.warning("the spool holds %s: %s", self, consequence)
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

    def commit(self, temporary: Path, final: Path, on_completion: Callable[[OSError | None], None]) -> None:
        """Make a written file durable under its final name, soon and in another thread."""
        self._committer.submit(Commit(temporary, final, on_completion))


def default_limit_bytes(directory: Path) -> int:
    """A quarter of what is free on the disk of ``directory``, at most 4 GiB."""
    return min(4 << 30, free_space(directory).free_bytes // 4)
