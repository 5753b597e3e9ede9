"""When the state folder was last backed up and checked, for alerts; other processes do it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from assay_server.maintenance.backup_log import Task, last_done


class KeepingCollector(Collector):
    """Reads the two notes of the state folder when metrics are read."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def collect(self) -> Iterable[Metric]:
        ended = GaugeMetricFamily(
            "assay_server_kept_time_seconds",
            "When the last backup and the last check ended, Unix time; 0: never.",
            labels=["task"],
        )
        faults = GaugeMetricFamily(
            "assay_server_kept_faults",
            "Files that the last backup lacks, and findings of the last check.",
            labels=["task"],
        )
        for task in Task:
            done = last_done(self._state, task)
            ended.add_metric([task], 0.0 if done is None else done.ended_at_ms / 1000)
            faults.add_metric([task], 0 if done is None else done.faults)
        return [ended, faults]
