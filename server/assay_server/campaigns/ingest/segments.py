"""Segments from agents: intact as they arrive, then durable, then acknowledged.

Nothing of an attempt is kept in memory: the store alone knows how far it has come.
"""

from __future__ import annotations

from concurrent.futures import Future

from assay_server.campaigns.ingest.arrival import Arrival
from assay_server.campaigns.ingest.group_commit import GroupCommit
from assay_server.campaigns.ingest.upload import Answer, Upload
from assay_server.campaigns.scheduling.coordinator import Coordinator


class Ingest:
    """Takes uploads. Thread-safe."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._commit = GroupCommit(coordinator)

    def close(self) -> None:
        self._commit.close()

    def take(self, upload: Upload) -> Future[Answer]:
        """Check an upload and write it to disk. The future resolves once it is durable or refused.

        The future raises StorageError if the disk refused it or an earlier segment: send them again later.
        """
        arrival = Arrival.of(upload)
        # A stream that ends cancels what it waits for; the segment is on its way all the same.
        arrival.answer.set_running_or_notify_cancel()
        self._commit.submit(arrival)
        return arrival.answer
