"""Answers requests to delete, export and import campaigns. Plain functions; they may block."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

from assay_core.records.archive import (
    ArchiveChunk,
    DeletedCampaign,
    DeleteRequest,
    ExportRequest,
    ImportedCampaign,
)
from assay_sampling.errors import StorageError
from assay_server.campaigns.bundles import named_bundles
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.maintenance.archives import Import, delete_campaign, export_campaign, remove_leftovers


class ArchiveHandler:
    """Delete, export and import. One campaign is deleted or imported at a time."""

    def __init__(self, coordinator: Coordinator, state: Path) -> None:
        self._coordinator = coordinator
        self._state = state
        self._capacity = coordinator.capacity
        self._changing = threading.Lock()
        remove_leftovers(state)

    def delete(self, request: DeleteRequest) -> DeletedCampaign:
        """Delete a campaign that has ended."""
        with self._changing:
            deleted = delete_campaign(self._coordinator, request)
        with self._coordinator.snapshot() as store:
            self._capacity.look(store)
            named = named_bundles(store)
        self._coordinator.bundles.forget(named)
        return deleted

    def export(self, request: ExportRequest) -> Iterator[ArchiveChunk]:
        """The archive of a campaign that has ended."""
        return (ArchiveChunk(data) for data in export_campaign(self._coordinator, request.campaign_id))

    def receive(self) -> Generator[None, ArchiveChunk | None, ImportedCampaign]:
        """Takes an archive in chunks, checks it and takes it in. Raises StorageError if there is no room."""
        chunk = yield
        self._capacity.require()
        with self._coordinator.snapshot() as store:
            most_bytes = self._capacity.most_bytes(store)
        with contextlib.closing(Import(self._coordinator, self._state, most_bytes)) as archive:
            while chunk is not None:
                archive.write(chunk.data)
                chunk = yield
            if not self._changing.acquire(timeout=60):
                raise StorageError("server", "another campaign is deleted or imported", "try again later")
            try:
                return archive.finish()
            finally:
                self._changing.release()
