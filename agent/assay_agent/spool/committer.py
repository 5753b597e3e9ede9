"""Group commit: one thread makes segment files durable, all that wait with one directory sync."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from assay_core.files import durable

_MAX_WAITING = 8


@dataclass(frozen=True)
class Commit:
    """A written file to make durable under its final name; ``on_completion`` gets None or the error."""

    temporary: Path
    final: Path
    on_completion: Callable[[OSError | None], None]


class Committer:
    """Syncs and renames files in the order given, in a thread of its own.

    ``submit`` blocks while too many files wait, so that a slow disk slows the profiler's reader down
    instead of filling the memory with unwritten pages.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Commit] = deque()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="assay-spool-commit", daemon=True)
        self._thread.start()

    def submit(self, commit: Commit) -> None:
        """Hand over a file; ``commit.on_completion`` is called from the committer's thread."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < _MAX_WAITING or self._closed)
            self._waiting.append(commit)
            self._changed.notify_all()

    def close(self) -> None:
        """Finish what was handed over, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                group = list(self._waiting)
                self._waiting.clear()
                self._changed.notify_all()
            if not group:
                return
            _commit(group)


def _commit(group: list[Commit]) -> None:
    renamed: list[Commit] = []
    for commit in group:
        try:
            durable.sync_file(commit.temporary)
            durable.replace(commit.temporary, commit.final)
        except OSError as error:
            commit.on_completion(error)
        else:
            renamed.append(commit)
    synced: dict[Path, OSError | None] = {}
    for directory in dict.fromkeys(commit.final.parent for commit in renamed):
        try:
            durable.sync_directory(directory)
            synced[directory] = None
        except OSError as error:
            synced[directory] = error
    for commit in renamed:
        commit.on_completion(synced[commit.final.parent])
