"""The executors of analyses that the settings name: processes of this machine, or workers of Dask."""

from __future__ import annotations

import logging

from assay_server.campaigns.analysing.executors.interface import Executors
from assay_server.campaigns.analysing.executors.pool import WorkerPool
from assay_server.config import ServerSettings

_log = logging.getLogger(__name__)


def chosen_executors(settings: ServerSettings) -> Executors:
    """Where analyses are made; warns of a scheduler that others can reach without TLS."""
    place = settings.analysis_place
    if place is None:
        return WorkerPool(settings.analysis_workers)
    from assay_server.campaigns.analysing.executors.dask_workers import DaskWorkers  # noqa: PLC0415

    if not place.tls and not place.scheduler.on_this_machine:
        _log.warning(
            "%s: whoever reaches this scheduler can run programs as this server's user; dask+tls:// is safe",
            place,
        )
    return DaskWorkers(place)
