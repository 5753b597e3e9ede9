"""Finished workloads of analyses, kept in the database until the report is there.

A server that takes an analysis over goes on with the workloads that are missing. Only who holds the newest
lease keeps anything, so that nothing comes after the report.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Mapping
from typing import Protocol

from assay_core.program_log import log_about
from assay_sampling.errors import StorageError
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.store.model import Analysis, AnalysisPart

_log = logging.getLogger(__name__)

# The analysis of a workload takes some ten kilobytes; a longer one is computed again rather than kept.
MOST_BYTES = 32 << 20
# What is kept of campaigns that were cancelled, or whose analysis failed.
KEPT_SECONDS = 86_400
# A database that refused a workload is not asked to keep others for so long: each may wait for its answer.
PAUSE_SECONDS = 60.0


class Parts(Protocol):
    """Where finished workloads outlive the server; keys are those of ``part_key``."""

    def known(self, keys: Mapping[str, str]) -> dict[str, bytes]:
        """What is kept under these keys, both by workload."""

    def keep(self, workload: str, key: str, content: bytes) -> None:
        """Keep a finished workload, if that is possible."""

    def forget(self) -> None:
        """Remove what is kept: it cannot be used."""


class KeptParts:
    """``Parts`` of the analysis that a lease gives. Thread-safe; what the database refuses is not kept."""

    def __init__(self, coordinator: Coordinator, lease: Analysis) -> None:
        self._coordinator = coordinator
        self._lease = lease
        self._refused_at: float | None = None

    def known(self, keys: Mapping[str, str]) -> dict[str, bytes]:
        try:
            with self._coordinator.snapshot() as store:
                parts = store.analysis_parts(self._lease.campaign_id)
        except StorageError:
            return {}
        found = {
            part.workload: part.content
            for part in parts
            if keys.get(part.workload) == part.key and _is_whole(part.content)
        }
        if found:
            with log_about(campaign=self._lease.campaign_id):
                _log.info(
                    "the analysis goes on: %d of %d workloads are finished already", len(found), len(keys)
                )
        return found

    def keep(self, workload: str, key: str, content: bytes) -> None:
        if len(content) > MOST_BYTES or self._pauses():
            return
        campaign_id = self._lease.campaign_id
        try:
            with self._coordinator.schedule() as schedule:
                if schedule.holds_analysis(self._lease):
                    part = AnalysisPart(campaign_id, workload, key, content, self._coordinator.clock.now_ms())
                    schedule.store.keep_analysis_part(part)
        except StorageError as error:
            self._refused_at = time.monotonic()
            with log_about(campaign=campaign_id):
                _log.warning("a finished workload is not kept for the next server: %s", error)

    def _pauses(self) -> bool:
        return self._refused_at is not None and time.monotonic() < self._refused_at + PAUSE_SECONDS

    def forget(self) -> None:
        try:
            with self._coordinator.schedule() as schedule:
                if schedule.holds_analysis(self._lease):
                    schedule.store.forget_analysis_parts(self._lease.campaign_id)
        except StorageError as error:
            _log.warning("finished workloads that cannot be used are still there: %s", error)


def _is_whole(content: bytes) -> bool:
    try:
        zlib.decompress(content)  # ends with a check sum
    except zlib.error:
        return False
    return True
