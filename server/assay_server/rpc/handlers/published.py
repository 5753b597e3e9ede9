"""Answers requests for published records. Plain functions; they may block."""

from __future__ import annotations

from collections.abc import Iterator

from assay_core.files.durable import storage_errors
from assay_core.records.archive import (
    LaunchesAsked,
    LaunchesPart,
    RecordFile,
    RecordsAsked,
    RecordsChunk,
    RecordsPage,
    RecordWanted,
)
from assay_sampling.errors import ParameterError
from assay_server.campaigns.errors import UnknownThingError, known_campaign
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.limits import QueryLimits
from assay_server.rpc.handlers.launches import after, launch_parts, published_files

_CHUNK_BYTES = 1 << 20


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
