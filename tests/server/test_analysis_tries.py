"""Tries at analyses: the newest one alone ends an analysis, which is given up after too many."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay_core.records.campaign import CampaignState, ChangedFile, FileChange
from assay_server.analysis.runs.intact import RecordsChangedError
from assay_server.campaigns.analysing import analyses as module
from assay_server.campaigns.analysing.analyses import MOST_TRIES, Analyses
from assay_server.campaigns.analysing.executors import ExecutorApart, WorkersAwayError
from assay_server.store.model import AnalysisTry
from tests.support.server.analysis_lab import HandExecutor, Lab
from tests.support.server.coordinators import coordinator_over
from tests.support.server.server_support import eventually

REPORT = (b"{}", b"<p>", b"PAR1")
AWAY = WorkersAwayError("dask://h:1", "it does not answer", "start it")


class HandExecutorApart(HandExecutor, ExecutorApart):
    """Workers on other machines, played by hand."""


class Pair(Lab):
    """A server, and the one that takes over from it on the same database and folder, each with executors."""

    def open(self) -> None:
        super().open()
        self.theirs: list[HandExecutor] = []
        their_coordinator = coordinator_over(
            self.metadata, self.coordinator.records, self.coordinator.policy, self.clock
        )
        self.other = Analyses(their_coordinator, self._their_executor)

    def _their_executor(self) -> HandExecutor:
        self.theirs.append(HandExecutor())
        return self.theirs[-1]

    @property
    def their_futures(self) -> list[Any]:
        return [future for executor in self.theirs for future in executor.futures]

    def row(self) -> AnalysisTry:
        with self.coordinator.snapshot() as store:
            found = store.analysis_try("made-1")
        assert found is not None
        return found


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.analyses.close()
    pair.other.close()
    pair.close()


def test_an_analysis_that_is_under_way_is_not_begun_again(pair: Pair) -> None:
    pair.end_runs()
    for _ in range(3):
        pair.analyses.look()
    assert (len(pair.futures), pair.row()) == (1, AnalysisTry("made-1", token=1, attempts=1))
    pair.futures[0].set_result(REPORT)
    assert (pair.campaign().state, pair.analyses.running) == (CampaignState.DONE, 0)
    pair.analyses.look()
    assert (len(pair.futures), pair.row().attempts) == (1, 0)


def test_who_takes_over_begins_it_again_and_the_earlier_server_does_no_harm(pair: Pair) -> None:
    pair.end_runs()
    pair.other.look()
    pair.their_futures[0].set_result((b"theirs", b"<p>", b"PAR1"))
    # The first one stood still all the time, and comes back with a report of its own.
    pair.futures[0].set_result((b"late", b"<late>", b"PAR1 late"))
    assert (pair.campaign().state, pair.report("json"), pair.report("html")) == (
        CampaignState.DONE, b"theirs", b"<p>"
    )  # fmt: skip
    names = sorted(p.name for p in (pair.state / "reports/made-1").iterdir())
    assert names == ["report.html", "report.json", "report.parquet"]


def test_a_late_failure_of_the_first_server_does_not_fail_what_the_second_one_makes(pair: Pair) -> None:
    pair.end_runs()
    pair.other.look()
    pair.futures[0].set_exception(ZeroDivisionError("late"))
    assert pair.campaign().state is CampaignState.ANALYSING
    assert pair.row().token == 2
    pair.their_futures[0].set_result(REPORT)
    assert (pair.campaign().state, pair.campaign().failure) == (CampaignState.DONE, None)


def test_a_late_report_never_replaces_the_one_of_a_campaign_that_was_tried_again(pair: Pair) -> None:
    pair.end_runs(fail_second=True)
    pair.other.look()
    # The first one writes its report and stands still at the very moment before it is put in its place.
    records = pair.coordinator.records
    records.stage_report("made-1", "1", {"json": b"late", "html": b"late"})
    pair.their_futures[0].set_result((b"newer", b"newer", b"newer"))
    with pytest.raises(Exception, match="staged-1"):
        records.put_report("made-1", "1", ("json", "html"))
    assert pair.report("json") == b"newer"


def test_a_server_that_stops_leaves_its_analysis_to_the_next_one_at_once(pair: Pair) -> None:
    pair.end_runs()
    pair.analyses.close()
    pair.other.look()
    assert len(pair.their_futures) == 1
    assert pair.row().attempts == 1


def test_an_analysis_that_every_server_dies_of_is_given_up(pair: Pair) -> None:
    pair.end_runs()
    taken = 1
    while pair.campaign().state is CampaignState.ANALYSING:
        lost = Analyses(pair.coordinator, HandExecutor)
        lost.look()
        taken += lost.running
    assert taken == MOST_TRIES
    campaign = pair.campaign()
    assert campaign.state is CampaignState.FAILED and campaign.failure is not None
    assert campaign.failure.cause == f"{MOST_TRIES} servers in a row died, or stood still, while they made it"


def test_a_campaign_that_a_person_tried_again_meanwhile_is_analysed_once_more(pair: Pair) -> None:
    pair.end_runs()
    with pair.metadata.transaction() as store:
        store.save_campaign(replace(pair.campaign(), retried=1))
    pair.futures[0].set_result((b"without the new runs", b"<p>", b"PAR1"))
    assert pair.campaign().state is CampaignState.ANALYSING
    assert (pair.row().attempts, pair.row().retried) == (1, 1)
    pair.futures[1].set_result(REPORT)
    assert (pair.campaign().state, pair.report("json")) == (CampaignState.DONE, b"{}")


def test_workers_that_are_away_are_waited_for_and_the_campaign_says_so(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AWAY_PAUSE_SECONDS", 0.01)
    there: list[HandExecutor] = []

    def away() -> HandExecutor:
        if not there:
            raise AWAY
        return there[0]

    waiting = Analyses(pair.coordinator, away)
    pair.analyses.close()  # only the other one hears of the end
    pair.end_runs()
    eventually(lambda: pair.campaign().failure is not None, "the reason in the status")
    failure = pair.campaign().failure
    assert failure is not None and failure.retryable
    assert (failure.failure_class, failure.subject, failure.cause, failure.remedy) == (
        "analysis_workers", "dask://h:1", "it does not answer", "start it"
    )  # fmt: skip
    assert pair.campaign().state is CampaignState.ANALYSING
    there.append(HandExecutor())
    eventually(lambda: bool(there[0].futures), "the analysis")
    eventually(lambda: pair.campaign().failure is None, "the end of the waiting")
    # Lost in the middle: it waits, and is tried again.
    there[0].futures[0].set_exception(AWAY)
    eventually(lambda: len(there[0].futures) == 2, "the second try")
    there[0].futures[1].set_result(REPORT)
    eventually(lambda: pair.campaign().state is CampaignState.DONE, "the end of the campaign")
    assert pair.campaign().failure is None
    waiting.close()


def test_a_worker_that_misses_files_which_the_server_has_does_not_have_them_measured_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        pair, "_executor", lambda: pair.executors.append(HandExecutorApart()) or pair.executors[-1]
    )
    monkeypatch.setattr(pair.analyses, "_make_executor", pair._executor)
    pair.end_runs()
    [request] = pair.executors[0].requests
    missed = ChangedFile("made-1.0000", request.runs[0].files[0], FileChange.MISSING)
    pair.futures[0].set_exception(RecordsChangedError((missed,)))
    campaign = pair.campaign()
    assert campaign.state is CampaignState.ANALYSING and campaign.failure is not None
    assert campaign.failure.remedy == "let the workers see the server's records under the same path"
    assert Path(request.runs[0].files[0]).exists()


def test_a_broken_executor_fails_the_campaign_the_second_time(pair: Pair) -> None:
    pair.end_runs()
    for _ in range(2):
        pair.executors[-1].broken = True
        pair.futures[-1].set_exception(BrokenExecutor("a worker died"))
    assert pair.campaign().state is CampaignState.FAILED
