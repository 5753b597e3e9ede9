"""Published records: files of slices, and the launches of a run as Arrow record batches from a cursor on.

A cursor names a slice, a launch of its file, and a hash of everything that was published up to that slice: as
published files never change, a stream that broke goes on there, also while later slices are measured. One
part is in memory at a time. Source: docs/python.md, "Records of a campaign".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from assay_core.files.durable import storage_errors
from assay_core.records.archive import (
    LaunchesAsked,
    LaunchesCursor,
    LaunchesPart,
    RecordFile,
    RecordsAsked,
    RecordsChunk,
    RecordsPage,
    RecordWanted,
)
from assay_sampling.errors import ParameterError, RefusedError, StorageError
from assay_sampling.launches.parquet import NAMES_KEY
from assay_sampling.launches.table import METADATA_KEY, text_columns
from assay_server.campaigns.errors import UnknownThingError, known_campaign
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.limits import QueryLimits
from assay_server.store.model import Slice

_CHUNK_BYTES = 1 << 20
_PART_BYTES = 4 << 20  # of unpacked launches, so that a part stays far below gRPC's limit
_LEAST_LAUNCHES = 1_024
_NAMES_BYTES = 1 << 20
_FROM_THE_BEGINNING = "read them again from the beginning, without a cursor"
# LZ4 takes a third of zstd's time here, and most networks in a lab are faster than zstd.
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


Wanted = tuple[Slice, int]  # a published slice, and the first of its launches that is sent


def published_files(slices: Iterable[Slice]) -> list[Slice]:
    """The published slices of a run in their order; the ``content_hash`` of each is of the files up to it."""
    hashing = hashlib.blake2b(digest_size=32)
    files = []
    for each in sorted(slices, key=lambda one: one.index):
        if each.file:
            hashing.update(f"{each.index}:{each.content_hash}\n".encode())
            files.append(replace(each, content_hash=hashing.hexdigest()))
    return files


def after(files: Sequence[Slice], cursor: LaunchesCursor) -> list[Wanted]:
    """What comes after a cursor; raises RefusedError if other files were published, ParameterError for a
    cursor that lies nowhere in them."""
    if not cursor.content_hash:
        if cursor.slice or cursor.launch:
            raise ParameterError("cursor", "it has no content hash", _FROM_THE_BEGINNING)
        return [(each, 0) for each in files]
    begun = next((each for each in files if each.index == cursor.slice), None)
    if begun is None or begun.content_hash != cursor.content_hash:
        raise RefusedError(
            "cursor",
            "other launches have been published than those that it was given for",
            _FROM_THE_BEGINNING,
        )
    if not 0 <= cursor.launch <= begun.launches:
        raise ParameterError("cursor", f"its slice has {begun.launches:,} launches", _FROM_THE_BEGINNING)
    later = [(each, 0) for each in files if each.index > cursor.slice]
    return [(begun, cursor.launch), *later] if cursor.launch < begun.launches else later


def launch_parts(
    reading: Callable[[str], AbstractContextManager[Path]], files: Sequence[Wanted], columns: Sequence[str]
) -> Iterator[LaunchesPart]:
    """Names and launches of files, part by part; ``columns`` empty: all.

    Raises ParameterError for a column that a file lacks, StorageError for a file that cannot be read.
    """
    for published, first in files:
        with reading(published.file) as path:
            yield from _parts_in(path, published, first, columns)


def _parts_in(path: Path, published: Slice, first: int, columns: Sequence[str]) -> Iterator[LaunchesPart]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as file:
            yield from _parts_of(file, published, first, columns)
    except (pa.ArrowException, OSError) as error:
        with storage_errors(path):
            # Arrow reports damage as an OSError, too, then without the system's number.
            if getattr(error, "errno", None):
                raise
        raise StorageError(
            f"records {published.file}", "its file is damaged", "see what assay-server check finds"
        ) from error


def _parts_of(
    file: pq.ParquetFile, published: Slice, first: int, columns: Sequence[str]
) -> Iterator[LaunchesPart]:
    schema = _chosen(file.schema_arrow, columns)
    if set(schema.names) & set(text_columns(schema)):
        names = memoryview((file.metadata.metadata or {}).get(NAMES_KEY, b""))
        for start in range(0, len(names), _NAMES_BYTES):
            yield LaunchesPart(names=bytes(names[start : start + _NAMES_BYTES]))
    row_bytes = max(1, sum(item.type.bit_width for item in schema) // 8)
    most = max(_LEAST_LAUNCHES, _PART_BYTES // row_bytes)
    sent = first
    for batch in _batches(file, first, schema.names, most):
        sent += batch.num_rows
        following = LaunchesCursor(published.index, sent, published.content_hash)
        yield LaunchesPart(batch=_packed(batch, schema), next=following)


def _chosen(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    metadata = {METADATA_KEY: (schema.metadata or {}).get(METADATA_KEY, b"")}
    for column in columns:
        if column not in schema.names:
            raise ParameterError(
                "columns",
                f"the launches have no column {column[:100]!r}",
                f"use some of {', '.join(schema.names)}",
            )
    chosen = [schema.field(column) for column in dict.fromkeys(columns)] if columns else list(schema)
    return pa.schema(chosen, metadata)


def _batches(file: pq.ParquetFile, first: int, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
    """Launches from number ``first`` on, at most ``most`` a batch."""
    start = 0
    for group in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        skip = max(0, first - start)
        start += rows
        if skip >= rows:
            continue
        for batch in file.iter_batches(most, row_groups=[group], columns=list(columns), use_threads=False):
            if skip < batch.num_rows:
                yield batch.slice(skip).select(columns)
            skip = max(0, skip - batch.num_rows)


def _packed(batch: pa.RecordBatch, schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_OPTIONS) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    data: bytes = sink.getvalue().to_pybytes()
    return data


class PublishedHandler:
    """Lists and reads published files; a file is never written again, so any part of it can be read later."""

    def __init__(self, coordinator: Coordinator, limits: QueryLimits) -> None:
        self._coordinator = coordinator
        self._limits = limits

    def list(self, request: RecordsAsked) -> RecordsPage:
        """The files of a page of runs."""
        first, most = max(0, request.first), self._limits.status_page_runs
        with self._coordinator.snapshot() as store:
            known_campaign(store.campaign(request.campaign_id), request.campaign_id)
            overviews = store.run_overviews(request.campaign_id, first=first, most=most + 1)
            runs = [overview.run for overview in overviews]
            files: list[RecordFile] = []
            for place, run in enumerate(runs):
                if place == most or len(files) >= self._limits.records_page_files:
                    return RecordsPage(tuple(files), run.ordinal)
                # People know a file by this name, wherever and under which name it is kept.
                files += [
                    RecordFile.like(
                        piece,
                        run,
                        slice=piece.index,
                        file=f"{piece.run_id}/slice-{piece.index:05d}.parquet",
                        bytes=piece.file_bytes,
                    )
                    for piece in store.slices(run.run_id)
                    if piece.file
                ]
        return RecordsPage(tuple(files), 0)

    def read(self, request: RecordWanted) -> Iterator[RecordsChunk]:
        """A file from an offset on."""
        with self._coordinator.snapshot() as store:
            run = store.run(request.run_id)
            piece = store.slice(request.run_id, request.slice)
        if run is None or run.campaign_id != request.campaign_id or piece is None or not piece.file:
            raise UnknownThingError(
                f"records of run {request.run_id[:100]!r}",
                "the server has published no such file",
                "see the files of a campaign: assay lab fetch CAMPAIGN",
            )
        if not 0 <= request.offset <= piece.file_bytes:
            raise ParameterError("offset", f"the file has {piece.file_bytes:,} bytes", "start from its begin")
        return self._chunks(piece.file, request.offset)

    def launches(self, request: LaunchesAsked) -> Iterator[LaunchesPart]:
        """The published launches of a run from a cursor on; raises RefusedError if they have changed since.

        UnknownThingError for a run that the campaign does not have, ParameterError for a cursor behind the
        end or a column that the launches do not have.
        """
        with self._coordinator.snapshot() as store:
            run = store.run(request.run_id)
            slices = store.slices(request.run_id)
        if run is None or run.campaign_id != request.campaign_id:
            raise UnknownThingError(
                f"run {request.run_id[:100]!r}",
                "the campaign has no such run",
                "see: assay lab status CAMPAIGN",
            )
        files = published_files(slices)
        return launch_parts(self._coordinator.records.reading, after(files, request.cursor), request.columns)

    def _chunks(self, name: str, offset: int) -> Iterator[RecordsChunk]:
        with self._coordinator.records.reading(name) as path, storage_errors(path), path.open("rb") as file:
            file.seek(offset)
            while data := file.read(_CHUNK_BYTES):
                yield RecordsChunk(data)
