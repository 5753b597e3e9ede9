"""Files of slices that are written while their segments arrive, so that publishing only ends them.

A segment that was checked is in memory anyway: its launches go to the Parquet file at once, in a thread,
instead of being read, unpacked and checked again when the attempt ends. The file is not durable and nothing
refers to it before it is published; the staged segments are. So everything here may be dropped at any time,
by a restart, a full disk or for want of memory, and publishing then reads the staged segments. The
bytes are equal either way, because they depend only on the sequence of launches
(:mod:`assay_sampling.launches.parquet`).

Memory: at most ``held_bytes`` of launches that wait for a row group to fill, over all attempts, and
``_MOST_WAITING`` segments of each attempt that is being written.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from assay_core.files.durable import make_folder, temporary_of
from assay_core.files.launch_file import LaunchFileUnderWay
from assay_core.records.attempt import AttemptKey
from assay_sampling.errors import AssayError
from assay_sampling.launches.parquet import ROW_GROUP_ROWS
from assay_server.store.model import Segment
from assay_server.store.segments import SegmentContent

_log = logging.getLogger(__name__)

_MOST_WAITING = 2


@dataclass(frozen=True)
class AheadLimits:
    """How much may be written ahead.

    ``held_bytes``: launches in memory, over all attempts; ``attempts``: with a file or launches in memory;
    ``threads``: that write.
    """

    held_bytes: int = 256 << 20
    attempts: int = 256
    threads: int = 2


DEFAULT_AHEAD_LIMITS = AheadLimits()


class FileAhead:
    """The file of one attempt. Its segments come in order, from one thread at a time."""

    def __init__(self, path: Path, temporary: Path) -> None:
        self.segments: list[Segment] = []
        self._path, self._temporary = path, temporary
        self._changed = threading.Condition()
        self._waiting: deque[SegmentContent] = deque()
        self._gathered: list[SegmentContent] = []  # not in the file yet
        self._gathered_rows = 0
        self._writes = False
        self._dropped = False
        self._file: LaunchFileUnderWay | None = None
        self._in_memory_bytes = 0
        self._in_file_bytes = 0  # of launches that do not fill a row group yet

    @property
    def idle(self) -> bool:
        """Whether nothing is written now."""
        return not self._writes

    @property
    def held_bytes(self) -> int:
        """The size of the launches that it holds in memory."""
        return self._in_memory_bytes + self._in_file_bytes

    def add(self, segment: Segment, content: SegmentContent, threads: ThreadPoolExecutor) -> None:
        """Take the next segment; waits while too many wait to be written."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < _MOST_WAITING or self._dropped)
            if self._dropped:
                return
            self.segments.append(segment)
            self._waiting.append(content)
            self._in_memory_bytes += content.memory_bytes
            if not self._writes and self._fills_a_group():
                self._writes = True
                threads.submit(self._write_waiting)

    def _fills_a_group(self) -> bool:
        waiting = sum(each.launches for each in self._waiting)
        if self._gathered_rows + waiting >= ROW_GROUP_ROWS:
            return True
        self._gather()
        return False

    def _gather(self) -> None:
        while self._waiting:
            content = self._waiting.popleft()
            self._gathered.append(content)
            self._gathered_rows += content.launches
        self._changed.notify_all()

    def _write_waiting(self) -> None:
        try:
            while True:
                with self._changed:
                    if not self._waiting or self._dropped:
                        return
                    self._gather()
                self._write_gathered()
        except (AssayError, OSError) as error:
            _log.info("%s is not written ahead: %s", self._path, error)
            with self._changed:
                self._dropped = True
        finally:
            with self._changed:
                self._writes = False
                self._changed.notify_all()

    def _write_gathered(self) -> None:
        if self._file is None:
            schema = self._gathered[0].schema
            make_folder(self._path.parent)
            self._file = LaunchFileUnderWay(self._path, schema, self._temporary)
        for content in self._gathered:
            for batch in content.launch_batches():
                self._file.write(batch, named=True)  # ingest has checked each id against all names so far
        last = self._gathered[-1]
        last_bytes = last.memory_bytes
        written_bytes = sum(content.memory_bytes for content in self._gathered)
        with self._changed:
            # A row group that is not full also keeps the rest of the segment that it began in.
            group_bytes = self._file.held_launches * last_bytes // max(1, last.launches)
            self._in_file_bytes = group_bytes + last_bytes
            self._in_memory_bytes -= written_bytes
            self._gathered, self._gathered_rows = [], 0

    def is_of(self, segments: Sequence[Segment]) -> bool:
        """Whether it holds exactly these segments; waits until no thread writes."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writes)
            return not self._dropped and self.segments == list(segments)

    def end(self) -> None:
        """Complete the file, durably, under its name. Raises StorageError."""
        with self._changed:
            self._gather()
        if self._gathered:
            self._write_gathered()
        assert self._file is not None
        self._file.end()

    def drop(self) -> None:
        """Remove what was written; waits until no thread writes."""
        with self._changed:
            self._dropped = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._writes)
            self._waiting.clear()
            self._gathered = []
        if self._file is not None:
            self._file.drop()


class FilesAhead:
    """The files of all attempts that are written ahead. Thread-safe."""

    def __init__(self, limits: AheadLimits = DEFAULT_AHEAD_LIMITS) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._files: OrderedDict[AttemptKey, FileAhead] = OrderedDict()
        self._threads = ThreadPoolExecutor(limits.threads, "assay-write-ahead")

    def add(self, key: AttemptKey, path: Path, segment: Segment, content: SegmentContent) -> None:
        """Take the next segment of an attempt, if the file of those before it is here."""
        with self._lock:
            file = self._files.get(key)
            if file is None and segment.index == 0:
                file = self._files[key] = FileAhead(path, _temporary(path, key))
            if file is None or len(file.segments) != segment.index:
                return
            self._files.move_to_end(key)
            surplus = self._surplus(key, content.memory_bytes)
        for each in surplus:
            each.drop()
        if file not in surplus:
            file.add(segment, content, self._threads)

    def _surplus(self, newest: AttemptKey, more_bytes: int) -> list[FileAhead]:
        """Take out what no longer fits, the attempts first that were silent longest; with the lock."""
        held = {key: file.held_bytes for key, file in self._files.items()}
        total, surplus = sum(held.values()) + more_bytes, []
        for key in [*(k for k in held if k != newest and self._files[k].idle), newest]:
            if total <= self._limits.held_bytes and len(self._files) <= self._limits.attempts:
                break
            total -= held[key]
            surplus.append(self._files.pop(key))
        return surplus

    def take(self, key: AttemptKey, segments: Sequence[Segment]) -> FileAhead | None:
        """The file of exactly these segments, to be ended; None if there is none."""
        with self._lock:
            file = self._files.pop(key, None)
        if file is None or file.is_of(segments):
            return file
        file.drop()
        return None

    def forget(self, key: AttemptKey) -> None:
        """Drop the file of an attempt, if there is one."""
        with self._lock:
            file = self._files.pop(key, None)
        if file is not None:
            file.drop()


def _temporary(path: Path, key: AttemptKey) -> Path:
    """Where an attempt's file is until it ends: two attempts of one slice may be under way."""
    return path.with_name(f"{temporary_of(path).name}-{key.attempt}")
