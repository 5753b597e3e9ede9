"""Files of slices that are written while their segments arrive, so that publishing only ends them.

A segment that was checked is in memory anyway: its launches go to the Parquet file at once, in a thread,
instead of being read, unpacked and checked again when the attempt ends. The file is not durable and nothing
refers to it before it is published; the staged segments are. So everything here may be dropped at any time,
by a restart, a full disk or for want of memory, and publishing then reads the staged segments. The
bytes are equal either way, because they depend only on the sequence of launches
(:mod:`assay_sampling.launches.parquet`).

Memory: at most ``held_bytes`` of launches that wait for a row group to fill, over all attempts, one row group
for each thread that writes, and the few that are free.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from assay_core.files.durable import make_folder, temporary_of
from assay_core.files.launch_file import LaunchFileUnderWay
from assay_core.records.attempt import AttemptKey
from assay_sampling.errors import AssayError
from assay_sampling.launches.parquet import ROW_GROUP_ROWS
from assay_sampling.launches.table import LaunchBatch
from assay_server.store.model import Segment
from assay_server.store.row_groups import RowGroup, RowGroups, WaitingLaunches
from assay_server.store.segments import CheckedSchema, SegmentContent

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AheadLimits:
    """How much may be written ahead.

    ``held_bytes``: launches in memory, over all attempts; ``attempts``: with a file or launches in memory;
    ``files``: attempts that are large enough to have a file; ``threads``: that write.
    """

    held_bytes: int = 256 << 20
    attempts: int = 1_024  # each keeps about 100 KiB, however few its launches are
    files: int = 256
    threads: int = 2


DEFAULT_AHEAD_LIMITS = AheadLimits()


class FileAhead:
    """The file of one attempt. Its segments come in order, from one thread at a time.

    ``writers``: as many as there are threads that write, for all files.

    Their launches wait until they fill a row group; while a full one is written, the next one fills.
    """

    def __init__(self, path: Path, temporary: Path, groups: RowGroups, writers: threading.Semaphore) -> None:
        self._writers = writers
        self.segments: list[Segment] = []
        self._path, self._temporary, self._groups = path, temporary, groups
        self._changed = threading.Condition()
        self._names: dict[int, str] = {}  # not in the file yet
        self._schema: CheckedSchema | None = None
        self._filling: WaitingLaunches | None = None
        self._full: WaitingLaunches | None = None
        self._adds = False
        self._dropped = False
        self._file: LaunchFileUnderWay | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is added or written now."""
        return not self._adds and self._full is None

    @property
    def held_bytes(self) -> int:
        """The size of the launches that it holds in memory."""
        rows = sum(group.rows for group in (self._filling, self._full) if group is not None)
        return 0 if self._schema is None else rows * self._schema.row_bits // 8

    def add(self, segment: Segment, content: SegmentContent, threads: ThreadPoolExecutor) -> None:
        """Take the next segment; waits while both row groups are full."""
        with self._changed:
            if self._dropped:
                return
            self.segments.append(segment)
            self._schema = content.checked_schema
            self._adds = True
        try:
            self._copy(content, threads)
        finally:
            with self._changed:
                self._adds = False
                self._changed.notify_all()

    def _copy(self, content: SegmentContent, threads: ThreadPoolExecutor) -> None:
        with self._changed:
            self._names.update(content.names)
        for batch in content.batches:
            copied = 0
            while copied < batch.num_rows and not self._dropped:
                if self._filling is None:
                    self._filling = WaitingLaunches(content.schema, self._groups)
                copied += self._filling.take(batch, copied)
                if self._filling.is_full:
                    self._pass_on(threads)

    def _pass_on(self, threads: ThreadPoolExecutor) -> None:
        """Let a thread write the full row group; waits until one has time, and needs no memory meanwhile."""
        with self._changed:
            self._changed.wait_for(lambda: self._full is None or self._dropped)
        self._writers.acquire()
        with self._changed:
            if self._dropped:
                self._writers.release()
                return
            self._full, self._filling = self._filling, None
        threads.submit(self._write_full)

    def _write_full(self) -> None:
        assert self._full is not None
        written = False
        try:
            if not self._dropped:
                group = self._full.copied()
                self._write(group)
                self._give_back(group)
                written = True
        except (AssayError, OSError) as error:
            _log.info("%s is not written ahead: %s", self._path, error)
        finally:
            self._writers.release()
            with self._changed:
                self._dropped = self._dropped or not written
                self._full = None
                self._changed.notify_all()

    def _write(self, group: RowGroup) -> None:
        assert self._schema is not None
        if self._file is None:
            make_folder(self._path.parent)
            self._file = LaunchFileUnderWay(self._path, self._schema.schema, self._temporary)
        with self._changed:
            names, self._names = self._names, {}
        # Ingest has checked each id against all names so far.
        self._file.write(LaunchBatch(group.batch(), names), named=True)

    def is_of(self, segments: Sequence[Segment]) -> bool:
        """Whether it holds exactly these segments; waits until nothing is added or written."""
        with self._changed:
            self._changed.wait_for(lambda: self.idle)
            return not self._dropped and self.segments == list(segments)

    def end(self, named: Callable[[str], Path] | None = None) -> str:
        """Complete the file, durably, under its name; returns its content hash. Raises StorageError.

        ``named``: its path by that hash, if it is not the one that it was begun with.
        """
        rest, self._filling = self._filling, None
        if rest is not None:
            with self._writers:  # at most as many row groups are in memory as threads write
                self._write_rest(rest)
        assert self._file is not None
        return self._file.end(named)

    def few(self) -> tuple[pa.Schema, list[LaunchBatch]] | None:
        """Its schema and launches; None if a file was begun for them, or they are in many pieces.

        Nothing may be added after that.
        """
        pieces = None if self._filling is None else self._filling.pieces()
        if self._schema is None or self._file is not None or not pieces:
            return None
        first, *others = pieces
        return self._schema.schema, [LaunchBatch(first, self._names), *(LaunchBatch(p, {}) for p in others)]

    def _write_rest(self, rest: WaitingLaunches) -> None:
        group = rest.copied()
        self._write(group)
        assert self._file is not None
        try:
            # The writer would keep these rows, which fill no row group, in the group's own memory.
            self._file.write_rest()
        except BaseException:
            self._file.drop()
            raise
        self._give_back(group)

    def _give_back(self, group: RowGroup) -> None:
        """Let others use the memory of a row group that is in the file."""
        assert self._schema is not None
        self._groups.give_back(group, self._schema.schema)

    def drop(self) -> None:
        """Remove what was written; waits until nothing is added or written."""
        with self._changed:
            self._dropped = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.idle)
        if self._file is not None:
            self._file.drop()


class FilesAhead:
    """The files of all attempts that are written ahead. Thread-safe."""

    def __init__(self, limits: AheadLimits = DEFAULT_AHEAD_LIMITS) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._files: OrderedDict[AttemptKey, FileAhead] = OrderedDict()
        self._rows: dict[AttemptKey, int] = {}
        self._large: set[AttemptKey] = set()
        self._at_most: dict[AttemptKey, int] = {}  # bytes that an attempt cannot hold more than
        self._at_most_bytes = 0
        self._groups = RowGroups()
        self._writers = threading.Semaphore(limits.threads)
        self._threads = ThreadPoolExecutor(limits.threads, "assay-write-ahead")

    def add(self, key: AttemptKey, path: Path, segment: Segment, content: SegmentContent) -> None:
        """Take the next segment of an attempt, if the file of those before it is here."""
        with self._lock:
            file = self._files.get(key)
            if file is None and segment.index == 0:
                file = self._files[key] = FileAhead(path, _temporary(path, key), self._groups, self._writers)
            if file is None or len(file.segments) != segment.index:
                return
            self._files.move_to_end(key)
            surplus = self._surplus(key, content.memory_bytes)
            if key in self._files:
                self._count(key, content)
        for each in surplus:
            each.drop()
        if file not in surplus:
            file.add(segment, content, self._threads)

    def _surplus(self, newest: AttemptKey, more_bytes: int) -> list[FileAhead]:
        """Take out what no longer fits, the attempts first that were silent longest; with the lock."""
        limits = self._limits
        if self._at_most_bytes + more_bytes <= limits.held_bytes and self._few():
            return []  # most often, and known without asking each file
        held = {key: file.held_bytes for key, file in self._files.items()}
        self._at_most, self._at_most_bytes = held, sum(held.values())
        total, surplus = self._at_most_bytes + more_bytes, []
        for key in [*(k for k in held if k != newest and self._files[k].idle), newest]:
            crowded = total > limits.held_bytes or len(self._files) > limits.attempts
            if not crowded and self._few():
                break
            if crowded or key in self._large:
                total -= held[key]
                surplus.append(self._files[key])
                self._pop(key)
        return surplus

    def _few(self) -> bool:
        return len(self._files) <= self._limits.attempts and len(self._large) <= self._limits.files

    def _count(self, key: AttemptKey, content: SegmentContent) -> None:
        self._rows[key] = self._rows.get(key, 0) + content.launches
        if self._rows[key] >= ROW_GROUP_ROWS:
            self._large.add(key)
        self._at_most[key] = self._at_most.get(key, 0) + content.memory_bytes
        self._at_most_bytes += content.memory_bytes

    def _pop(self, key: AttemptKey) -> FileAhead | None:
        self._rows.pop(key, None)
        self._large.discard(key)
        self._at_most_bytes -= self._at_most.pop(key, 0)
        return self._files.pop(key, None)

    def take(self, key: AttemptKey, segments: Sequence[Segment]) -> FileAhead | None:
        """The file of exactly these segments, to be ended; None if it was not begun."""
        with self._lock:
            file = self._pop(key)
        if file is None or file.is_of(segments):
            return file
        file.drop()
        return None

    def forget(self, key: AttemptKey) -> None:
        """Drop the file of an attempt, if there is one."""
        with self._lock:
            file = self._pop(key)
        if file is not None:
            file.drop()


def _temporary(path: Path, key: AttemptKey) -> Path:
    """Where an attempt's file is until it ends: two attempts of one slice may be under way."""
    return path.with_name(f"{temporary_of(path).name}-{key.attempt}")
