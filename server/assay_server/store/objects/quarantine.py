"""Objects that were set aside in their bucket: copied below ``set-aside/``, then removed from their place.

As in a folder (:mod:`assay_server.store.quarantine_files`): a manifest names them before they are moved, and
nothing here removes them.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from assay_core.records.campaign import SetAsideReason
from assay_server.store.objects.bucket import Bucket
from assay_server.store.quarantine_files import MANIFEST, MovedFiles

_TOP = "set-aside"
_LISTED_EVERY_SECONDS = 30.0


class ObjectsAside:
    """``set-aside/`` of a bucket. Thread-safe."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._lock = threading.Lock()
        self._listed: list[MovedFiles] = []
        self._due = 0.0

    def put(self, names: Sequence[str], reason: SetAsideReason) -> MovedFiles | None:
        """Move objects; None if there are none. Raises StorageError."""
        sizes = {
            name: bucket_object.size_bytes
            for name in sorted(names)
            if (bucket_object := self._bucket.look_at(name))
        }
        if not sizes:
            return None
        now = datetime.now(UTC)
        folder = f"{_TOP}/{now:%Y-%m-%dT%H-%M-%SZ}-{reason}-{secrets.token_hex(3)}"
        moved = MovedFiles(folder, reason, int(now.timestamp() * 1000), sum(sizes.values()), tuple(sizes))
        self._bucket.put_new(f"{folder}/{MANIFEST}", json.dumps(asdict(moved), indent=1).encode())
        for name, size_bytes in sizes.items():
            self._bucket.copy(name, f"{folder}/{name}", size_bytes)
        self._bucket.remove(list(sizes))
        with self._lock:
            self._due = 0.0
        return moved

    def all(self) -> list[MovedFiles]:
        """What is there, oldest first, as listed within the last half minute. Raises StorageError."""
        with self._lock:
            if time.monotonic() >= self._due:
                self._listed = self._look()
                self._due = time.monotonic() + _LISTED_EVERY_SECONDS
            return list(self._listed)

    def _look(self) -> list[MovedFiles]:
        there: dict[str, dict[str, int]] = {}
        for each in self._bucket.listed(_TOP):
            _, folder, name = each.name.split("/", 2)
            there.setdefault(folder, {})[name] = each.size_bytes
        moved_files = []
        for folder in sorted(name for name, files in there.items() if len(files) > 1):
            files = {name: size for name, size in there[folder].items() if name != MANIFEST}
            reason, at_ms = self._manifest_entries(f"{_TOP}/{folder}")
            moved_files.append(
                MovedFiles(f"{_TOP}/{folder}", reason, at_ms, sum(files.values()), tuple(sorted(files)))
            )
        return sorted(moved_files, key=lambda each: each.set_aside_at_ms)

    def _manifest_entries(self, folder: str) -> tuple[SetAsideReason, int]:
        try:
            document = json.loads(self._bucket.get(f"{folder}/{MANIFEST}"))
            return SetAsideReason(document["reason"]), int(document["set_aside_at_ms"])
        except (ValueError, KeyError, TypeError):
            return SetAsideReason.UNKNOWN, 0
