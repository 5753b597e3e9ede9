"""Whether the files of runs are what was published: asked before an analysis rests on them, and after it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay_sampling.errors import StorageError
from assay_server.analysis.request import RunData
from assay_server.content_hash import hash_of_file

Change = Literal["missing", "changed", "unreadable"]


@dataclass(frozen=True)
class ChangedFile:
    """A published file that is not what was published any more."""

    run_id: str
    path: str
    what: Change


class ChangedRecords:
    """Files of campaigns that have ended, as far as somebody looked. Safe to use from several threads.

    Names are relative to the state folder.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, ChangedFile] = {}

    def note(self, changed: ChangedFile) -> None:
        with self._lock:
            self._files[changed.path] = changed

    def forget(self, path: str) -> None:
        """It is what was published, again."""
        with self._lock:
            self._files.pop(path, None)

    def all(self) -> list[ChangedFile]:
        with self._lock:
            return list(self._files.values())


class RecordsChangedError(StorageError):
    """Files of runs are missing, or are not what was published: their runs must be measured again."""

    def __init__(self, files: tuple[ChangedFile, ...]) -> None:
        self.files = files
        first = files[0]
        more = f" (and {len(files) - 1:,} more)" if len(files) > 1 else ""
        super().__init__(
            f"run {first.run_id}", f"its file {first.path} is {first.what}{more}", "measure the run again"
        )


def what_changed(path: Path, content_hash: str) -> Change | None:
    """What is the matter with a published file, by its hash; None: nothing is."""
    try:
        return None if hash_of_file(path) == content_hash else "changed"
    except FileNotFoundError:
        return "missing"
    except OSError:
        return "unreadable"


def require_intact(runs: Iterable[RunData]) -> None:
    """Raises RecordsChangedError with every file of the runs that is not what was published.

    Asked again, it only looks whether somebody wrote to the files meanwhile.
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
