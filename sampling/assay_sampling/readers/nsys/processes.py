"""Which processes of an export called CUDA, and when each began to.

Source: docs/reading-recordings.md, "Nsight Systems exports".
"""

from __future__ import annotations

from pathlib import Path

from assay_sampling.readers.nsys.database import RUNTIME, Database

_SESSION = "TARGET_INFO_SESSION_START_TIME"


def first_calls_ns(path: Path) -> dict[int, int]:
    """By process, when its first call of CUDA began, in ns since the epoch; empty without any call.

    Where the export does not say when it began, all times are 0. Raises InputError.
    """
    database = Database(path, path)
    try:
        if not database.has(RUNTIME, "start", "globalTid"):
            return {}
        begin = (
            database.first(f"SELECT utcEpochNs FROM {_SESSION}")
            if database.has(_SESSION, "utcEpochNs")
            else None
        )
        # The process is in the middle of the identifier of a thread.
        query = f"SELECT (globalTid >> 24) & 16777215, MIN(start) FROM {RUNTIME} GROUP BY 1"
        calls = [row for rows in database.rows(query) for row in rows]
        epoch_ns = begin[0] if begin and isinstance(begin[0], int) else None
        return {
            process: 0 if epoch_ns is None else epoch_ns + start
            for process, start in calls
            if isinstance(process, int) and isinstance(start, int)
        }
    finally:
        database.close()
