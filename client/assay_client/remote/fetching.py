"""Fetching what a campaign has: its report, and its published records, each file checked against its hash.

A file that is there already is not fetched again, and one that broke off goes on where it ended.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay_client.files import write_atomically
from assay_client.remote.client import Client
from assay_client.remote.connection import Connection
from assay_core.files.durable import replace, storage_errors, sync_directory, sync_file
from assay_core.records.archive import RecordFile, RecordWanted
from assay_sampling.errors import AssayError, StorageError

_PART = ".part"
_READ_BYTES = 1 << 20
# What servers of ours name; nothing else may become a path here.
_NAME = re.compile(r"[A-Za-z0-9._-]+/slice-\d{5,}\.parquet")


@dataclass(frozen=True)
class Fetched:
    """What was fetched to a folder: ``fetched_bytes`` came now, the rest was there."""

    folder: str
    files: tuple[RecordFile, ...]
    fetched_bytes: int
    reports: tuple[str, ...]


def fetch_campaign(
    client: Client, connection: Connection, campaign_id: str, folder: Path, tell: Callable[[str], None]
) -> Fetched:
    """Fetch records, and the report if there is one, into ``folder``. Raises StorageError, CampaignError."""
    files = tuple(connection.records(campaign_id))
    fetched = 0
    for number, each in enumerate(files, 1):
        came = _fetch(connection, campaign_id, each, folder / "records")
        fetched += came
        tell(f"{number} of {len(files)}: {each.file}" + ("" if came else " was there"))
    reports = []
    if client.summary(campaign_id)["state"] == "done":
        for form in ("json", "html"):
            path = folder / f"report.{form}"
            write_atomically(path, client.report_bytes(campaign_id, form))
            reports.append(path.name)
    return Fetched(str(folder), files, fetched, tuple(reports))


def fetched_document(campaign_id: str, fetched: Fetched) -> dict[str, Any]:
    """What was fetched, as JSON."""
    return {
        "campaign_id": campaign_id,
        "folder": fetched.folder,
        "fetched_bytes": fetched.fetched_bytes,
        "reports": list(fetched.reports),
        "records": [
            {
                "run_id": each.run_id,
                "workload": each.workload,
                "slice": each.slice,
                "file": f"records/{each.file}",
                "bytes": each.bytes,
                "hash": each.content_hash,
                "launches": each.launches,
            }
            for each in fetched.files
        ],
    }


def _fetch(connection: Connection, campaign_id: str, each: RecordFile, folder: Path) -> int:
    """Fetch one file; returns the bytes that came."""
    if _NAME.fullmatch(each.file) is None or each.file.startswith("."):
        raise AssayError(connection.address, f"it named a file {each.file[:100]!r}", "ask its admin")
    path = folder / each.file
    part = path.with_name(path.name + _PART)
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and _hash(path) == each.content_hash:
            return 0
        came = _continued(connection, campaign_id, each, part)
        if _hash(part) != each.content_hash:
            part.unlink()
            raise StorageError(
                str(path), "it did not arrive as it was published", "fetch again; it begins anew then"
            )
        sync_file(part)
        replace(part, path)
        sync_directory(path.parent)
    return came


def _continued(connection: Connection, campaign_id: str, each: RecordFile, part: Path) -> int:
    """Fetch the rest of a file that may have broken off."""
    came = 0
    with part.open("ab") as file:
        if file.tell() > each.bytes:
            file.truncate(0)
            file.seek(0)
        request = RecordWanted(campaign_id, each.run_id, each.slice, file.tell())
        for data in connection.record(request):
            file.write(data)
            came += len(data)
    return came


def _hash(path: Path) -> str:
    hashing = hashlib.blake2b(digest_size=32)
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            hashing.update(data)
    return hashing.hexdigest()
