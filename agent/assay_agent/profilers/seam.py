"""The interface of profilers: every way of measuring a run.

A profiler is asked for its command (a pure function of the work, so that it can be tested and shown
without a GPU), then for a measurement: a context manager that gives launch batches during the run, and
ends everything that it started when it is left.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

from assay_core.records.attempt import AttemptLog
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import Work
from assay_sampling.launches.table import LaunchBatch


class Measurement(Protocol):
    """One run under a profiler, from its start to its last launch.

    ``flags`` and ``log`` are complete once it is left.
    """

    @property
    def flags(self) -> tuple[ValidityFlag, ...]: ...

    @property
    def log(self) -> AttemptLog: ...

    def batches(self) -> Iterator[LaunchBatch]:
        """The launches during the run, all of one schema; ends early when the run is cancelled.

        Raises ProfilerError.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Profiler(Protocol):
    """A way of measuring. ``name`` is its name in campaign files and slots."""

    name: str

    def plan(self, work: Work) -> list[str] | None:
        """The command that measures; None if nothing is run, as for a recording. Pure.

        Raises ProfilerError for work that this profiler cannot do.
        """
        ...

    def run(self, work: Work, cancelled: threading.Event) -> Measurement:
        """Start measuring; ``cancelled`` may be set at any time. Raises ProfilerError."""
        ...
