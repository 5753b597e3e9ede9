"""Campaigns whose runs have ended, with analyses that a test carries out."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import Any

from assay_core.records.failure import Failure
from assay_server.campaigns.analysing.analyses import Analyses
from assay_server.store.model import Campaign
from tests.support.server.ingest_box import Box
from tests.support.server.made_segments import made_segments


class HandExecutor(Executor):
    """Gives futures that the test resolves by hand."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.functions: list[Any] = []
        self.calls: list[tuple[Any, ...]] = []
        self.futures: list[Future[Any]] = []
        self.broken = False

    def submit(self, function: Any, /, *arguments: Any, **_keywords: Any) -> Future[Any]:
        if self.broken:
            raise BrokenExecutor
        self.requests.append(arguments[0])
        self.functions.append(function)
        self.calls.append(arguments)
        self.futures.append(Future())
        return self.futures[-1]


class Lab(Box):
    """A box with analyses on an executor of the test's.

    ``starter`` starts the analyses of campaigns whose last run has ended.
    """

    def __init__(self, state: Path, starter: Executor | None = None) -> None:
        self._starter = starter
        self.executors: list[HandExecutor] = []
        super().__init__(state)

    def open(self) -> None:
        super().open()
        self.analyses = Analyses(self.coordinator, self._executor, starter=self._starter)

    def _executor(self) -> Executor:
        self.executors.append(HandExecutor())
        return self.executors[-1]

    @property
    def futures(self) -> list[Future[Any]]:
        return [future for executor in self.executors for future in executor.futures]

    def end_runs(self, *, fail_second: bool = False) -> None:
        box: Box = self
        for segment in made_segments((100, 50)):
            box.send(segment)
        assert box.finish(2, 150)
        box.key = box.lease()
        if fail_second:
            with self.coordinator.schedule() as schedule:
                schedule.fail(
                    box.key, Failure("input_unreadable", "/data/y", "it is cut off", "copy it", False)
                )
        else:
            box.send(made_segments((70,))[0])
            assert box.finish(1, 70)

    def campaign(self) -> Campaign:
        with self.coordinator.snapshot() as store:
            found = store.campaign("made-1")
        assert found is not None
        return found

    def report(self, form: str) -> bytes:
        return self.coordinator.records.report_path("made-1", form).read_bytes()
