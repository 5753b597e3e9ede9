"""Reports of campaigns that have not ended, or were cancelled: of what is there, made one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import grpc
import pytest

from assay_core.records.runs import RunsAction
from assay_server.app import Server
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import CAMPAIGN, PAGE, REPORT, ROWS, StandInExecutor, eventually


def read(agent: PlayingAgent, campaign_id: str, form: str = "json") -> bytes:
    return b"".join(chunk.data for chunk in agent.report(campaign_id, form))


@pytest.fixture
def begun(server: Server) -> Callable[[PlayingAgent], str]:
    """Submits a campaign of three runs, the first of which is published."""

    def submitted(agent: PlayingAgent) -> str:
        agent.register()
        campaign_id = agent.submit(CAMPAIGN)
        with pytest.raises(grpc.RpcError, match="it is still running, so there is no report yet"):
            read(agent, campaign_id)
        agent.play(made_segments((30,), "detailed", counters=2))
        return campaign_id

    return submitted


def test_a_running_campaign_has_a_report_of_the_runs_that_are_there(
    server: Server, analysis: StandInExecutor, begun: Callable[[PlayingAgent], str]
) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        campaign_id = begun(agent)
        assert read(agent, campaign_id) == REPORT
        assert read(agent, campaign_id, "html") == PAGE
        (request,) = analysis.requests  # the second was kept from the first
        assert [run.run_id for run in request.runs] == [f"{campaign_id}.0000"]
        assert [run.state for run in request.failed_runs] == ["waiting", "waiting"]
        assert agent.status(campaign_id).state == "running"
        agent.play(made_segments((100,)))
        assert read(agent, campaign_id) == REPORT
        assert [len(each.runs) for each in analysis.requests] == [1, 2]


def test_a_cancelled_campaign_keeps_the_report_of_what_is_there(
    server: Server, analysis: StandInExecutor, begun: Callable[[PlayingAgent], str]
) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        campaign_id = begun(agent)
        agent.ask(RunsAction.CANCEL, campaign_id)
        eventually(lambda: agent.status(campaign_id).state == "cancelled", "the campaign's end")
        assert read(agent, campaign_id) == REPORT
        assert [run.state for run in analysis.requests[-1].failed_runs] == ["cancelled", "cancelled"]


def test_one_is_made_at_a_time(
    server: Server, analysis: StandInExecutor, begun: Callable[[PlayingAgent], str]
) -> None:
    asked, release = threading.Event(), threading.Event()

    def slow() -> tuple[bytes, bytes, bytes]:
        asked.set()
        release.wait(60)
        return REPORT, PAGE, ROWS

    with PlayingAgent(server.addresses[0]) as agent:
        campaign_id = begun(agent)
        analysis.outcome = slow
        found: list[bytes] = []
        first = threading.Thread(target=lambda: found.append(read(agent, campaign_id)))
        first.start()
        assert asked.wait(60)
        with pytest.raises(grpc.RpcError, match="makes one at a time"):
            read(agent, campaign_id)
        release.set()
        first.join(60)
        assert found == [REPORT]


def test_what_an_analysis_refuses_is_said_and_asked_again(
    server: Server, analysis: StandInExecutor, begun: Callable[[PlayingAgent], str]
) -> None:
    def refuse() -> tuple[bytes, bytes, bytes]:
        raise MemoryError("no room")

    with PlayingAgent(server.addresses[0]) as agent:
        campaign_id = begun(agent)
        kept, analysis.outcome = analysis.outcome, refuse
        with pytest.raises(grpc.RpcError):
            read(agent, campaign_id)
        analysis.outcome = kept
        assert read(agent, campaign_id) == REPORT
        assert agent.status(campaign_id).state == "running"
