"""The status of a campaign of many runs: in pages, and one summary for all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import grpc
import pytest

from assay_client.api import Client
from assay_core.records.campaign import CampaignState, CampaignStatus
from assay_protos import campaign_pb2
from assay_server.app import Server
from assay_server.limits import QueryLimits
from assay_server.rpc.handlers.campaigns import CampaignHandler, StatusBoard
from assay_server.store.parts import campaigns as campaign_rows
from assay_server.store.parts.overviews import WorkloadCost
from assay_server.store.sql import SqlTransaction
from tests.support.server.playing_agent import PlayingAgent

RUNS = 2_345


def many(runs: int = RUNS) -> str:
    recording = "recordings: [{device: V100, light: r.sqlite}]"
    workloads = "".join(f"  - {{name: w{i}, {recording}}}\n" for i in range(runs))
    return f"campaign: many\nworkloads:\n{workloads}"


def asked(agent: PlayingAgent, **page: int) -> CampaignStatus:
    return agent.status("many-1", **page)


def test_runs_come_in_pages_and_a_client_puts_them_together(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        agent.submit(many())
        first = asked(agent)
        assert (len(first.runs), first.runs_next, first.runs_total) == (1_000, 1_000, RUNS)
        last = asked(agent, first=2_000)
        assert (len(last.runs), last.runs_next) == (345, 0)
        assert (last.slices, last.slices_done, last.runs_running) == (RUNS, 0, 0)
        few = asked(agent, first=7, most=3)
        assert [run.workload for run in few.runs] == ["w7", "w8", "w9"]
        assert few.runs_next == 10
        assert len(asked(agent, most=1_000_000).runs) == 1_000
        assert not asked(agent, runs=False).runs
        beyond = asked(agent, first=RUNS)
        assert (len(beyond.runs), beyond.runs_next) == (0, 0)
        assert len(asked(agent, first=-5, most=-1).runs) == 1
    with Client(server.addresses[0]) as client:
        found = client.status("many-1")
        assert [run["workload"] for run in found["runs"]] == [f"w{i}" for i in range(RUNS)]
        assert found["waiting"] == [
            {
                "kind": "no_agent",
                "reason": "no agent has registered",
                "first_run_id": "many-1.0000",
                "runs": RUNS,
            }
        ]


def test_campaigns_come_in_pages_without_their_files(
    make_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueryLimits, "status_page_campaigns", 3)
    server = make_server()
    with PlayingAgent(server.addresses[0]) as agent:
        for _ in range(8):
            agent.submit(many(2))
        agent.register()
        agent.lease()

        def refuse(*_arguments: object) -> None:
            raise AssertionError("a list of campaigns has read a whole one, with its file")

        monkeypatch.setattr(campaign_rows, "campaign_of", refuse)
        first = agent.listed()
        assert ([c.campaign_id for c in first.campaigns], first.campaigns_next) == (
            ["many-1", "many-2", "many-3"], 3,
        )  # fmt: skip
        assert (first.campaigns[0].runs_running, first.campaigns[0].runs_total) == (1, 2)
        last = agent.listed(first=6, most=1_000)
        assert ([c.campaign_id for c in last.campaigns], last.campaigns_next) == (["many-7", "many-8"], 0)
        assert len(agent.listed(first=-5, most=-1).campaigns) == 1
    with Client(server.addresses[0]) as client:
        assert [c["campaign_id"] for c in client.campaigns()] == [f"many-{n}" for n in range(1, 9)]


def test_a_watch_has_no_runs_and_counts_them_all(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        agent.submit(many())
        agent.register()
        agent.lease()
        status = next(agent.watch("many-1"))
        assert (len(status.runs), status.runs_total, status.runs_running) == (0, RUNS, 1)
        assert status.to_proto().ByteSize() < 1000


def test_however_many_ask_a_summary_is_made_once_for_each_change(
    make_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    real = StatusBoard._made

    def counted(board: StatusBoard, campaign_id: str) -> CampaignStatus:
        made.append(campaign_id)
        return real(board, campaign_id)

    monkeypatch.setattr(StatusBoard, "_made", counted)
    server = make_server()
    with PlayingAgent(server.addresses[0]) as agent:
        agent.submit(many(5))
        for _ in range(20):
            assert asked(agent, runs=False).runs_total == 5
        assert len(made) == 1
        agent.register()
        agent.lease()
        assert asked(agent, runs=False).runs_running == 1
        assert len(made) == 2
        with pytest.raises(grpc.RpcError):
            agent.status("another-1")


def test_who_follows_a_campaign_whose_status_takes_long_gets_one_of_a_moment_ago(
    make_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = StatusBoard._made

    def slow(board: StatusBoard, campaign_id: str) -> CampaignStatus:
        time.sleep(0.2)
        return real(board, campaign_id)

    monkeypatch.setattr(StatusBoard, "_made", slow)
    server = make_server()
    with PlayingAgent(server.addresses[0]) as agent:
        agent.submit(many(5))
        watches = [agent.watch("many-1"), agent.watch("many-1")]
        assert next(watches[0]).runs_running == 0
        made_at = time.monotonic()
        agent.register(("recorded-0", "recorded-1"))
        agent.lease()
        assert next(watches[1]).runs_running == 0, "made for the other"
        assert next(watches[0]).runs_running == 1
        assert time.monotonic() - made_at > 1.5, "ten times as long as it took"
        agent.lease("recorded-1")
        assert asked(agent, runs=False).runs_running == 2, "who asks once is told what is so now"


@pytest.mark.parametrize(("large_runs", "kept_seconds", "read"), [(4, 3600, 1), (4, 0, 2), (5, 3600, 2)])
def test_the_costs_of_a_large_campaign_are_not_read_with_every_change(
    make_server: Callable[..., Server],
    monkeypatch: pytest.MonkeyPatch,
    large_runs: int,
    kept_seconds: float,
    read: int,
) -> None:
    costs: list[str] = []
    real = SqlTransaction.workload_costs

    def counted(store: SqlTransaction, campaign_id: str, now_ms: int) -> list[WorkloadCost]:
        costs.append(campaign_id)
        return real(store, campaign_id, now_ms)

    monkeypatch.setattr(SqlTransaction, "workload_costs", counted)
    monkeypatch.setattr("assay_server.rpc.handlers.campaigns._LARGE_RUNS", large_runs)
    monkeypatch.setattr("assay_server.rpc.handlers.campaigns._COSTS_KEPT_SECONDS", kept_seconds)
    server = make_server()
    with PlayingAgent(server.addresses[0]) as agent:
        agent.submit(many(5))
        assert asked(agent, runs=False).runs_running == 0
        agent.register()
        agent.lease()
        assert asked(agent, runs=False).runs_running == 1

    assert len(costs) == read


def test_signs_of_life_do_not_wait_for_statuses(
    make_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statuses that take for ever take their own threads, and no other."""
    begun, end = threading.Semaphore(0), threading.Event()

    def endless(_handler: CampaignHandler, _request: object) -> CampaignStatus:
        begun.release()
        end.wait(60)
        return CampaignStatus(campaign_id="many-1", name="many", state=CampaignState.DONE)

    monkeypatch.setattr(CampaignHandler, "status", endless)
    server = make_server()
    with PlayingAgent(server.addresses[0]) as agent:
        agent.submit(many(2))
        waiting = [
            agent.campaigns.GetStatus.future(campaign_pb2.GetStatusRequest(campaign_id="many-1"))
            for _ in range(40)
        ]
        assert begun.acquire(timeout=20)
        agent.register()
        key = agent.lease().work.key
        assert not agent.heartbeat([key]).drop
        end.set()
        assert all(future.result(timeout=60).state == campaign_pb2.CAMPAIGN_STATE_DONE for future in waiting)
