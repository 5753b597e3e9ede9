"""A campaign whose runs have ended, in a state folder, and servers that analyse it; one dies on the way.

python -m tests.support.server.campaign_to_analyse STATE COUNT    # kills itself after COUNT workloads
"""

from __future__ import annotations

import os
import signal
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import Any

from assay_core.records.campaign import CampaignState, RunState
from assay_server.analysis.runs.request import AnalysisRequest
from assay_server.campaign_file.compiled import AnalysisSettings, CompiledCampaign
from assay_server.campaigns.analysing.analyses import Analyses
from assay_server.campaigns.analysing.job import analyse_one_workload
from assay_server.campaigns.analysing.request_builder import analysis_request
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.content_hash import hash_of_file
from assay_server.store.model import Slice, SliceState
from assay_server.store.record_store import REPORT_FORMS
from assay_server.store.records import LocalRecordStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server.coordinators import coordinator_over
from tests.support.server.server_support import HandClock
from tests.support.server.stored_values import campaign, run
from tests.support.server.workloads_to_analyse import made_request

ID = "made-1"
METHODS: tuple[tuple[str, dict[str, Any]], ...] = (("systematic", {"launches": 4}),)


class Inline(Executor):
    """Computes each task where it is submitted. ``before`` hears of each workload before it is computed.

    ``really``: else each workload, and the report, is a few bytes, for tests of what is computed at all.
    """

    def __init__(self, before: Callable[[str], None] = lambda workload: None, *, really: bool = True) -> None:
        self.computed: list[str] = []
        self.broken = False
        self._before = before
        self._really = really

    def submit(self, function: Any, /, *arguments: Any, **_keywords: Any) -> Future[Any]:
        if self.broken:
            raise BrokenExecutor
        future: Future[Any] = Future()
        try:
            part = function is analyse_one_workload
            if part:
                self._before(arguments[1])
                self.computed.append(arguments[1])
            made_up = zlib.compress(b"made up") if part else (b"{}", b"", b"")
            future.set_result(function(*arguments) if self._really else made_up)
        except Exception as error:  # noqa: BLE001 - whoever asked hears of it
            future.set_exception(error)
        return future


class Ended:
    """A state folder with a campaign that is to be analysed, of one detailed run for each workload."""

    def __init__(self, state: Path) -> None:
        self.state, self.clock = state, HandClock()
        state.mkdir(exist_ok=True)
        self.metadata = SqliteStore(state / "metadata.sqlite")
        self.records = LocalRecordStore(state)
        self.coordinator = self.beside()

    def beside(self) -> Coordinator:
        """What another server on the same database has."""
        return coordinator_over(self.metadata, self.records, SchedulePolicy(), self.clock)

    def fill(self, workloads: int = 3, launches: int = 60) -> None:
        made = made_request(self.state / "records", workloads, launches).runs
        runs = [
            run(
                number,
                workload=each.workload,
                level="detailed",
                condition=each.condition,
                flags=(),
                state=RunState.DONE,
            )
            for number, each in enumerate(made)
        ]
        compiled = CompiledCampaign(AnalysisSettings(0, METHODS, None, 1 << 30), None, None)
        ended = campaign(ID, synthetic=False, state=CampaignState.ANALYSING, compiled=compiled)
        pieces = [
            Slice(
                each.run_id,
                0,
                state=SliceState.DONE,
                file=Path(each.files[0]).name,
                content_hash=hash_of_file(Path(each.files[0])),
                launches=each.launches,
            )
            for each in made
        ]
        with self.metadata.transaction() as store:
            store.add_campaign(ended, runs, pieces)

    def request(self) -> AnalysisRequest:
        with self.coordinator.snapshot() as store:
            return analysis_request(store, ID, self.records)

    def campaign_state(self) -> CampaignState:
        with self.coordinator.snapshot() as store:
            found = store.campaign(ID)
        assert found is not None
        return found.state

    def report(self) -> tuple[bytes, ...]:
        return tuple(self.records.report_path(ID, form).read_bytes() for form in REPORT_FORMS)

    def close(self) -> None:
        self.metadata.close()


def analysed(ended: Ended, executor: Executor) -> Analyses:
    """A server has taken the analysis, and made as much of it as the executor does at once."""
    analyses = Analyses(ended.beside(), lambda: executor)
    analyses.look()
    return analyses


def _die_after(count: int) -> Inline:
    def before(workload: str) -> None:
        if len(executor.computed) == count:
            os.kill(os.getpid(), signal.SIGKILL)

    executor = Inline(before)
    return executor


if __name__ == "__main__":
    analysed(Ended(Path(sys.argv[1])), _die_after(int(sys.argv[2])))
