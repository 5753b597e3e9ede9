"""The interface of conditions: a context manager around a run that records what it changed, and undoes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from assay_agent.conditions.journal import Journal
from assay_agent.execution.environment import MeasuredGPU
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import Work


@dataclass(frozen=True)
class Site:
    """Where a run is made.

    Args:
        gpu: the GPU, whose lock is held.
        work: the run.
        base: the GPU's private folder, with a short path (Unix sockets live there).
        lock: the descriptor of the GPU's lock, inherited by every process started.
        environment: of the profiler's tools, before any condition adds to it.
        journal: of the GPU.
        cancelled: set when nobody wants the run any more.
        note: appends to the log of the attempt.
    """

    gpu: MeasuredGPU
    work: Work
    base: Path
    lock: int
    environment: Mapping[str, str]
    journal: Journal
    cancelled: threading.Event
    note: Callable[[str], None]

    @property
    def home(self) -> Path:
        """A folder in which programs may run."""
        return Path(self.environment["HOME"])


class Condition:
    """One condition; in force while it is entered. This one does nothing.

    ``environment`` is added to that of the run; ``facts`` are recorded with it; both are complete once it is
    entered. ``flags`` are complete once it is left. Entering raises ProfilerError if the condition cannot be
    made, after undoing what was done so far.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.environment: dict[str, str] = {}
        self.facts: dict[str, str | int | float] = {}
        self.flags: list[ValidityFlag] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Undo. Never raises: what cannot be undone stays in the journal for the next start."""

    def before_ending(self) -> None:
        """The processes of the run are about to be ended by signals. Never raises."""

    def check(self) -> None:
        """The run has ended by itself; raises ProfilerError if the condition was not in force."""

    def flag(self, name: str, detail: str) -> None:
        """Set a validity flag of the registry."""
        self.flags.append(ValidityFlag.of_kind(name, detail))
