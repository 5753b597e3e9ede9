"""Files of a state as they are in a folder, also those that are objects of a bucket."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from assay_core.files.durable import storage_errors, write_pieces
from assay_core.records.attempt import AttemptKey
from assay_server.records.opening import folder_of_records
from assay_server.store.record_store import BUNDLES, PACKED, RecordStore
from assay_server.store.sqlite import SqliteStore

_STAGED = re.compile(r"staging/([^/]+)/slice-(\d+)-attempt-(\d+)")


@contextlib.contextmanager
def at_hand(state: Path, records: RecordStore, database: Path, name: str) -> Iterator[Path]:
    """Where a file of the state, named relative to its folder, can be read until the block ends.

    ``database``: a copy, which knows the segments of attempts. Raises StorageError.
    """
    top, _, rest = name.partition("/")
    if top == "records":
        with records.reading(rest) as path:
            yield path
    elif top == BUNDLES and rest.endswith(PACKED):
        with records.reading_bundle(rest) as path:
            yield path
    elif top == "reports":
        campaign_id, _, file = rest.partition("/")
        yield records.report_path(campaign_id, file.partition(".")[2])
    elif top == "staging" and records.place is not None:
        with tempfile.TemporaryDirectory(prefix="assay-staged-", dir=database.parent) as folder:
            path = Path(folder) / "staged"
            with storage_errors(path):
                join_segments(records, database, name, path)
            yield path
    else:
        yield (folder_of_records(state) if top == "staging" else state) / name


def join_segments(records: RecordStore, database: Path, name: str, path: Path) -> None:
    """Write the staged segments of an attempt into one file, as a folder has them.

    Without any there is no file. Raises StorageError.
    """
    match = _STAGED.fullmatch(name)
    assert match is not None
    store = SqliteStore(database)
    try:
        with store.snapshot() as read:
            key = AttemptKey(match[1], int(match[2]), int(match[3]), 0)
            segments = read.segments(key)
    finally:
        store.close()
    for segment in segments:
        parts = records.staged(segment)
        write_pieces(path, [(segment.offset_bytes, parts.names + parts.launches)])
