"""The seam behind which every way of measuring a run stands.

A profiler is asked for its command (a pure function of the work, so that it can be tested and shown
without a GPU), then for a measurement: a context manager that gives launch batches while the run goes on,
and ends whatever it started when it is left. Source: design, "Seams".
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

from assay_agent.records import AttemptLog
from assay_agent.work import Assignment, ValidityFlag
from assay_sampling.errors import AssayError
from assay_sampling.failures import Failure, FailureClass, failure
from assay_sampling.launch_table import LaunchBatch


class ProfilerError(AssayError):
    """A measurement failed for a cause that is known: ``failure_class`` decides whether to try again.

    Args:
        failure_class: the class of the cause.
        subject: the thing that failed.
        cause: what is wrong with it; the meaning of the class where left out.
        remedy: what to do; the remedy of the class where left out.
    """

    exit_code = 6

    def __init__(self, failure_class: FailureClass, subject: str, cause: str = "", remedy: str = "") -> None:
        self.failure_class = failure_class
        super().__init__(subject, cause or failure_class.meaning, remedy or failure_class.remedy)

    @property
    def failure(self) -> Failure:
        """What to tell the server."""
        return failure(self.failure_class, self.subject, self.cause, self.remedy)


class Measurement(Protocol):
    """One run under a profiler, from its start to its last launch.

    ``flags`` and ``log`` are complete once it is left.
    """

    @property
    def flags(self) -> tuple[ValidityFlag, ...]: ...

    @property
    def log(self) -> AttemptLog: ...

    def batches(self) -> Iterator[LaunchBatch]:
        """The launches while the run goes on, all of one schema; ends early when the run is cancelled.

        Raises ProfilerError.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Profiler(Protocol):
    """A way of measuring. ``name`` is what campaign files and slots call it."""

    name: str

    def plan(self, work: Assignment) -> list[str] | None:
        """The command that measures; None where nothing is run, as for a recording. Pure.

        Raises ProfilerError for work that this profiler cannot do.
        """
        ...

    def run(self, work: Assignment, cancelled: threading.Event) -> Measurement:
        """Start measuring; ``cancelled`` may be set at any time. Raises ProfilerError."""
        ...
