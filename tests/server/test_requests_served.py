"""Requests about runs over the wire: carried out whole, also by the next server, and analysed again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from assay_core.records.campaign import Submission
from assay_core.records.runs import RunsAction, RunsRequest
from assay_sampling.errors import StorageError
from assay_server.app import Server
from assay_server.campaigns.carry_out import RequestRunner
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.campaigns.submit import submit
from assay_server.store.model import OPEN_RUNS
from assay_server.store.records import LocalRecordStore
from assay_server.store.sql import SqlTransaction
from assay_server.store.sqlite import SqliteStore
from tests.support.server.coordinators import coordinator_over
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import CAMPAIGN, REPORT, HandClock, StandInExecutor, eventually


def test_people_hold_a_campaign_let_it_go_on_and_take_failures_up_again(
    server: Server, analysis: StandInExecutor
) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        campaign_id = agent.submit(CAMPAIGN)
        key = agent.lease().work.key
        told = agent.ask(RunsAction.PAUSE, campaign_id)
        assert (told.runs_changed, told.attempts_ended, told.attempts_running) == (3, 0, 1)
        assert (told.campaign.state, told.campaign.paused) == ("running", True)
        assert agent.heartbeat([key]).drop == ()
        told = agent.ask(RunsAction.PAUSE, campaign_id, at_once=True)
        assert (told.runs_changed, told.attempts_ended, told.attempts_running) == (0, 1, 0)
        assert list(agent.heartbeat([key]).drop) == [key]
        assert agent.lease().work is None
        assert agent.listed().campaigns[0].paused
        assert agent.ask(RunsAction.RESUME, campaign_id).runs_changed == 3
        told = agent.ask(RunsAction.CANCEL, campaign_id, run_id=f"{campaign_id}.0000")
        assert (told.runs_changed, told.campaign.runs_cancelled) == (1, 1)
        for launches in (100, 70):
            agent.play(made_segments((launches,)))
        eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")
        assert [r.state for r in analysis.requests[0].failed_runs] == ["cancelled"]
        told = agent.ask(RunsAction.RETRY, campaign_id)
        assert (told.runs_changed, told.campaign.state) == (1, "running")
        agent.play(made_segments((30,), "detailed", counters=2))
        eventually(lambda: agent.status(campaign_id).state == "done", "its end after the retry")
        assert b"".join(c.data for c in agent.report(campaign_id)) == REPORT
        assert len(analysis.requests) == 2 and analysis.requests[1].failed_runs == ()
        attempts = agent.run(f"{campaign_id}.0000").attempts
        assert [(a.key.attempt, a.state) for a in attempts] == [(1, "cancelled"), (2, "published")]
        with pytest.raises(grpc.RpcError, match="nothing of it failed or was cancelled"):
            agent.ask(RunsAction.RETRY, campaign_id)


def test_the_next_server_carries_on_what_a_crash_left(
    make_server: Callable[..., Server], short_path: Path
) -> None:
    first = make_server()
    with PlayingAgent(first.addresses[0]) as agent:
        campaign_id = agent.submit(CAMPAIGN)
    first.stop()
    metadata = SqliteStore(short_path / "state" / "metadata.sqlite")
    coordinator = coordinator_over(
        metadata, LocalRecordStore(short_path / "state"), SchedulePolicy(), HandClock()
    )
    with coordinator.schedule() as schedule:  # killed after the first piece
        request = schedule.ask(RunsAction.CANCEL, RunsRequest(campaign_id))
    with coordinator.schedule() as schedule:
        schedule.carry_on(request, 1)
    metadata.close()
    second = make_server()
    with PlayingAgent(second.addresses[0]) as agent:
        eventually(
            lambda: agent.status(campaign_id).runs_cancelled == 3, "the rest of the request is carried out"
        )


@pytest.fixture
def coordinator(tmp_path: Path) -> Coordinator:
    made = coordinator_over(SqliteStore(None), LocalRecordStore(tmp_path), SchedulePolicy(), HandClock())
    submit(made, Submission(CAMPAIGN, "c.yaml", "/data"))
    return made


def open_runs(store: SqlTransaction) -> int:
    counts = store.run_counts("made-1")
    return sum(counts.get(state, 0) for state in OPEN_RUNS)


def test_others_get_the_store_between_two_pieces(coordinator: Coordinator) -> None:
    rests: list[float] = []
    seen: list[int] = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        with coordinator.schedule() as schedule:  # a heartbeat
            seen.append(open_runs(schedule.store))

    done = RequestRunner(coordinator, piece_runs=1, rest=rest).ask(RunsAction.CANCEL, RunsRequest("made-1"))
    assert (seen, done.runs_changed) == ([2, 1, 0], 3)
    assert all(seconds > 0 for seconds in rests)


def test_a_server_that_ends_leaves_the_rest_to_the_next(coordinator: Coordinator) -> None:
    runner = RequestRunner(coordinator, piece_runs=1, rest=lambda _: runner.close())
    with pytest.raises(StorageError, match="its next start carries on what is left of the request"):
        runner.ask(RunsAction.CANCEL, RunsRequest("made-1"))
    with coordinator.snapshot() as store:
        assert (open_runs(store), len(store.pending_requests())) == (2, 1)
    RequestRunner(coordinator).resume()
    with coordinator.snapshot() as store:
        assert (open_runs(store), store.pending_requests()) == (0, [])


def test_a_second_request_waits_until_the_first_is_carried_out(coordinator: Coordinator) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def rest(_: float) -> None:
        inside.set()
        assert go_on.wait(60)

    runner = RequestRunner(coordinator, piece_runs=1, rest=rest)
    first = threading.Thread(target=lambda: runner.ask(RunsAction.CANCEL, RunsRequest("made-1")))
    first.start()
    assert inside.wait(60)
    second = threading.Thread(target=lambda: runner.ask(RunsAction.RETRY, RunsRequest("made-1")))
    second.start()
    runner.resume()  # leaves alone what a thread is carrying out
    with coordinator.snapshot() as store:
        assert [each.action for each in store.pending_requests()] == [RunsAction.CANCEL]
    go_on.set()
    first.join(60)
    second.join(60)
    with coordinator.snapshot() as store:
        assert [str(run.state) for run in store.runs("made-1")] == ["waiting"] * 3
