"""Checks that runs' files still are as published, before and after an analysis."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from assay_core.records.campaign import ChangedFile, FileChange
from assay_sampling.errors import StorageError
from assay_server.analysis.runs.request import RunData
from assay_server.content_hash import fresh_hash_of, hash_of_file


class ChangedRecords:
    """Changed files of campaigns that have ended, as far as they were checked. Thread-safe.

    Names are relative to the state folder.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, ChangedFile] = {}

    def note(self, changed: ChangedFile) -> None:
        with self._lock:
            self._files[changed.file] = changed

    def forget(self, path: str) -> None:
        """The file is as published again."""
        with self._lock:
            self._files.pop(path, None)

    def all(self) -> list[ChangedFile]:
        with self._lock:
            return list(self._files.values())


class RecordsChangedError(StorageError):
    """Files of runs are missing or were changed since they were published: measure their runs again."""

    def __init__(self, files: tuple[ChangedFile, ...]) -> None:
        self.files = files
        first = files[0]
        more = f" (and {len(files) - 1:,} more)" if len(files) > 1 else ""
        super().__init__(
            f"run {first.run_id}", f"its file {first.file} is {first.what}{more}", "measure the run again"
        )


def what_changed(path: Path, content_hash: str, *, afresh: bool = False) -> FileChange | None:
    """How a published file changed, by its hash; None if it did not.

    ``afresh``: the file is read even if this process remembers its hash.
    """
    try:
        current = fresh_hash_of(path) if afresh else hash_of_file(path)
        return None if current == content_hash else FileChange.CHANGED
    except FileNotFoundError:
        return FileChange.MISSING
    except OSError:
        return FileChange.UNREADABLE


def unreadable_copy(file: str) -> StorageError:
    """A copy of a bucket's file cannot be read here: that is this machine's disk, and not the record."""
    return StorageError(
        f"records/{file}", "its copy in the cache cannot be read", "check the disk of --records-cache"
    )


def require_intact(runs: Iterable[RunData]) -> None:
    """Raises RecordsChangedError with every file of the runs that is missing or changed.

    A second call only checks whether files were written to since the first.
    """
    changed = tuple(_changed(runs))
    if changed:
        raise RecordsChangedError(changed)


def _changed(runs: Iterable[RunData]) -> Iterator[ChangedFile]:
    for run in runs:
        for path, content_hash in zip(run.files, run.file_hashes, strict=bool(run.file_hashes)):
            what = what_changed(Path(path), content_hash)
            if what is not None:
                yield ChangedFile(run.run_id, path, what)
