"""Every record store that there is, and what befalls its disk, for the suite that holds for all of them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import obstore
from obstore.store import LocalStore, MemoryStore, S3Store

from assay_server.places import RecordsPlace
from assay_server.store.objects.bucket import Bucket
from assay_server.store.objects.store import ObjectRecordStore
from assay_server.store.quarantine_files import MANIFEST
from assay_server.store.record_store import RecordStore
from assay_server.store.records import LocalRecordStore


class RecordBench(Protocol):
    """A record store, and a hand on what it keeps; files are named relative to the whole."""

    records: RecordStore

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, data: bytes) -> None: ...

    def remove(self, name: str) -> None: ...

    def names(self) -> list[str]:
        """All files of records, reports and staging, and those set aside, sorted."""
        ...


class LocalBench:
    """A folder of this machine."""

    def __init__(self, folder: Path, *, shared: bool = False) -> None:
        self._state = folder / "state"
        self.records: RecordStore = LocalRecordStore(self._state, shared=shared)

    def read(self, name: str) -> bytes:
        return (self._state / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        (self._state / name).write_bytes(data)

    def remove(self, name: str) -> None:
        (self._state / name).unlink()

    def names(self) -> list[str]:
        files = (p for p in self._state.rglob("*") if p.is_file() and p.name != MANIFEST)
        return sorted(str(path.relative_to(self._state)) for path in files)


class BucketBench:
    """An object store, by default one in this process; the cache is on this machine."""

    def __init__(self, folder: Path, store: Any = None) -> None:
        self.store = store or MemoryStore()
        self.records: RecordStore = ObjectRecordStore(
            Bucket(self.store, "the bucket"), RecordsPlace("s3://bucket", cache=folder / "cache")
        )

    def read(self, name: str) -> bytes:
        return bytes(obstore.get(self.store, name).bytes())

    def write(self, name: str, data: bytes) -> None:
        obstore.put(self.store, name, data)

    def remove(self, name: str) -> None:
        obstore.delete(self.store, name)

    def names(self) -> list[str]:
        found = sorted(each["path"] for page in obstore.list(self.store) for each in page)
        return [name for name in found if not name.endswith(MANIFEST)]


def _in_folder(folder: Path) -> BucketBench:
    top = folder / "bucket"
    top.mkdir()
    return BucketBench(folder, LocalStore(top))


RECORD_STORES: dict[str, Callable[[Path], RecordBench]] = {
    "local disk": LocalBench,
    "shared folder": lambda folder: LocalBench(folder, shared=True),
    "bucket in memory": BucketBench,
    "bucket in a folder": _in_folder,
}

if _ENDPOINT := os.environ.get("ASSAY_S3"):

    def _served(folder: Path) -> BucketBench:
        """A prefix of its own in the bucket of a real server."""
        prefix = f"contract/{secrets.token_hex(8)}"
        return BucketBench(folder, S3Store(
            "lab", prefix=prefix, endpoint=_ENDPOINT, region="us-east-1", client_options={"allow_http": True}
        ))  # fmt: skip

    RECORD_STORES["real server"] = _served
