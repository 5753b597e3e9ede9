"""What both daemons tell of themselves: build, clock, memory, processor time, the disk of their state."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, Metric, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from assay_core.program import distribution_version

# Seconds; a quarter of the shortest is a call that nobody waits for, the longest a server that stands still.
SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def program_registry(program: str, state: Path) -> CollectorRegistry:
    """A registry of its own for one daemon in one process, with what every daemon tells."""
    registry = CollectorRegistry(auto_describe=True)
    labels = ["program", "version", "python"]
    build = Gauge("assay_build_info", "1, with the versions of the program.", labels, registry=registry)
    build.labels(program, distribution_version() or "unknown", platform.python_version()).set(1)
    # Prometheus compares it with its own clock (deploy/prometheus/rules.yml).
    clock = Gauge("assay_time_seconds", "The box's clock: Unix time in seconds.", registry=registry)
    clock.set_function(time.time)
    ProcessCollector(registry=registry)
    registry.register(_Disk(state))
    return registry


class _Disk(Collector):
    """The disk of the state folder, asked at each scrape."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def collect(self) -> Iterable[Metric]:
        free = GaugeMetricFamily("assay_disk_free_bytes", "Free bytes on the disk of the state folder.")
        size = GaugeMetricFamily("assay_disk_size_bytes", "Size of that disk.")
        try:
            usage = shutil.disk_usage(self._state)
        except OSError:
            return [free, size]
        free.add_metric([], usage.free)
        size.add_metric([], usage.total)
        return [free, size]
