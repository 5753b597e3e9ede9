"""The published launches of a run as record batches; a stream that breaks goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from assay_client.ending import raise_if_asked
from assay_client.remote.connection import Connection
from assay_core.records.archive import LaunchesAsked, LaunchesCursor, LaunchesPart
from assay_sampling.errors import AssayError, ServerUnreachableError, StorageError
from assay_sampling.launches.parquet import unpack_names
from assay_sampling.launches.table import Names

_GIVE_UP_SECONDS = 60.0
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class StreamedLaunches:
    """Launches of one slice in their order, the names that their ids stand for, and the place after them.

    ``names`` is None if no column of the batch holds ids.
    """

    batch: pa.RecordBatch
    names: Names | None
    next: LaunchesCursor


def stream_launches(
    connection: Connection,
    campaign_id: str,
    run_id: str,
    *,
    columns: Sequence[str] = (),
    cursor: LaunchesCursor | None = None,
    give_up_seconds: float = _GIVE_UP_SECONDS,
) -> Iterator[StreamedLaunches]:
    """All published launches of a run after ``cursor``, with one part in memory.

    Waits ``give_up_seconds`` for a server that went away, then raises ServerUnreachableError. A server ends a
    stream whose receiver takes nothing for a minute; it goes on when the next part is asked for. Raises
    RefusedError if other launches were published since, StorageError for a damaged file, AssayError for what
    cannot be read.
    """
    request = LaunchesAsked(campaign_id, run_id, tuple(columns), cursor or LaunchesCursor())
    give_up_at, came = 0.0, False
    while True:
        try:
            for part in _decoded(connection, request):
                request, came = replace(request, cursor=part.next), True
                yield part
                give_up_at = time.monotonic() + give_up_seconds
        except ServerUnreachableError:
            if time.monotonic() >= give_up_at:
                raise
            raise_if_asked()
            time.sleep(_PAUSE_SECONDS)
        except StorageError:
            if not came:
                raise
        else:
            return
        came = False


def _decoded(connection: Connection, request: LaunchesAsked) -> Iterator[StreamedLaunches]:
    pieces: list[bytes] = []
    names: Names | None = None
    for part in connection.launches(request):
        if part.next is None:
            pieces.append(part.names)
            continue
        if pieces:
            names, pieces = unpack_names(b"".join(pieces), f"names from {connection.address}"), []
        yield StreamedLaunches(_batch(connection, part), names, part.next)


def _batch(connection: Connection, part: LaunchesPart) -> pa.RecordBatch:
    try:
        with pa.ipc.open_stream(part.batch) as stream:
            batch = stream.read_next_batch()
        batch.validate(full=True)
    except (pa.ArrowException, StopIteration, OSError) as error:
        raise AssayError(
            connection.address,
            f"it sent launches that cannot be read ({str(error)[:200]})",
            "use client and server of the same release of Assay",
        ) from error
    return batch
