"""Damaged files of the spool: moved out of the way with the reason, for a person to look at.

    <state>/spool-damaged/2026-11-22T04-05-06Z-RUN-SLICE-ATTEMPT/reason.json
                                                                segment-00000003.seg

Only so many are kept, the newest: they are evidence of a bad disk, and nothing reads them again.
"""

from __future__ import annotations

import itertools
import json
import logging
import shutil
import threading
from datetime import UTC, datetime
from pathlib import Path

from assay_core.files import durable
from assay_core.files.private_folders import make_private_folder
from assay_core.records.attempt import AttemptKey

REASON = "reason.json"
MOST_KEPT = 16

_log = logging.getLogger(__name__)


class DamagedFiles:
    """The folder of a spool's damaged files, made when it is needed. Thread-safe; never raises."""

    def __init__(self, folder: Path, most: int = MOST_KEPT) -> None:
        self.folder = folder
        self._most = most
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many there are now; a person who has looked at one removes its folder."""
        return len(self._folders())

    def put(self, key: AttemptKey, path: Path, cause: str) -> None:
        """Move a damaged file here and note why. A disk that refuses that leaves the file to its attempt."""
        with self._lock:
            try:
                folder = self._new_folder(key)
                document = {
                    "run_id": key.run_id,
                    "slice": key.slice_index,
                    "attempt": key.attempt,
                    "file": path.name,
                    "cause": cause,
                }
                durable.write_atomically(folder / REASON, json.dumps(document, indent=1).encode())
                if path.exists():  # a file that is gone leaves only the reason
                    durable.replace(path, folder / path.name)
                self._forget_oldest()
            except OSError as error:
                _log.warning("%s is damaged (%s) and cannot be kept: %s", path, cause, error)
                return
        _log.warning("%s is damaged (%s): it is in %s, and the slice is measured again", path, cause, folder)

    def _new_folder(self, key: AttemptKey) -> Path:
        name = f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}-{key.directory_name}"
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        folder = next(self.folder / each for each in names if not (self.folder / each).exists())
        make_private_folder(folder)
        return folder

    def _folders(self) -> list[Path]:
        try:
            return sorted(path for path in self.folder.iterdir() if path.is_dir())
        except OSError:
            return []

    def _forget_oldest(self) -> None:
        for path in self._folders()[: -self._most]:
            shutil.rmtree(path, ignore_errors=True)
