"""The queue as people see it: why runs wait, who is ahead, until when, and what each slot runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from assay_core.records.campaign import Estimate, RunState
from assay_core.records.lab import LabAgents, LabQuestion, LabQueue, QueueKind, SlotHealth
from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_core.records.runs import RunsAction
from assay_core.records.work import CommandSource
from assay_protos import lab_pb2_grpc
from assay_server.app import Server
from assay_server.campaigns.scheduling.queue import Candidates, Ledger
from assay_server.campaigns.scheduling.resting import Rest
from assay_server.campaigns.scheduling.waiting import (
    Lab,
    ahead_of,
    held_reason,
    slots_by_gpu,
    wait_reason,
    wait_reasons,
)
from assay_server.store.model import Agent, Hold, Run
from tests.support.server.desk import HANG, Desk
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import CAMPAIGN
from tests.support.server.stored_values import run

GPU = InstalledDevice(0, "NVIDIA V100", "GPU-1", "7.0", 80, 32 << 30)
NOW_MS = 1_000_000


def live(ordinal: int = 0, **fields: Any) -> Run:
    command = CommandSource(("./train",), {}, "/base")
    return run(
        ordinal, recorded=None, command=command, device_key="v100", profiler="nsight_systems", **fields
    )


def box(*slots: str, seen_at_ms: int = NOW_MS, **fields: Any) -> Agent:
    made = tuple(Slot(slot, ("nsight_systems",), False, replace(GPU, uuid=slot), **fields) for slot in slots)
    return Agent("a", "s", "box", Inventory(), made, seen_at_ms)


REST = Rest("a", "GPU-1", "box", "s", 1, NOW_MS + 5_000, HANG)


@pytest.mark.parametrize(
    ("waiting", "lab", "kind", "told"),
    [
        (live(), Lab([], NOW_MS), QueueKind.NO_AGENT, "no agent has registered"),
        (live(), Lab([box("GPU-1", quarantine_reason="lost")], NOW_MS), QueueKind.OUT_OF_SERVICE, "lost"),
        (live(), Lab([box("GPU-1")], NOW_MS, {("a", "GPU-1"): REST}), QueueKind.RESTING, "rests"),
        (live(), Lab([box("GPU-1")], NOW_MS), QueueKind.QUEUED, "slots that fit measure other runs"),
        (live(holds=(Hold.PAUSED,)), Lab([], NOW_MS), QueueKind.PAUSED, "--run made-1.0000"),
        (live(holds=(Hold.AFTER,)), Lab([], NOW_MS), QueueKind.AFTER, "must end before it"),
    ],
)  # fmt: skip
def test_a_waiting_run_has_one_typed_reason(waiting: Run, lab: Lab, kind: QueueKind, told: str) -> None:
    reason = held_reason(waiting) or wait_reason(waiting, lab)
    assert reason is not None
    assert (reason.kind, told in reason.text) == (kind, True), reason.text


def test_a_pause_of_the_campaign_comes_before_all_other_reasons() -> None:
    waiting = live(holds=(Hold.PAUSED, Hold.AFTER))
    reason = held_reason(waiting, campaign_paused=True, awaits_light=True)
    assert reason is not None and reason.kind is QueueKind.CAMPAIGN_PAUSED
    light = held_reason(live(), awaits_light=True)
    assert light is not None and light.kind is QueueKind.LIGHT_RUN
    assert light.text == "the light run of training on V100 comes first: it decides the slices"


def test_a_running_run_is_told_only_if_its_further_slices_are_held() -> None:
    runs = [live(0, state=RunState.RUNNING), live(1), live(2, state=RunState.RUNNING, holds=(Hold.PAUSED,))]
    lab = Lab([box("GPU-1")], NOW_MS)
    assert list(wait_reasons(runs, lab, awaiting_light={"made-1.0001"})) == ["made-1.0001", "made-1.0002"]
    assert list(wait_reasons(runs, lab)) == ["made-1.0002"]


def test_who_is_ahead_is_the_schedulers_own_order() -> None:
    desk = Desk(campaigns=3)
    desk.register()
    candidates = Candidates()
    with desk.store.snapshot() as read:
        candidates.add(read.entrants())
        waiting, agents = read.runs("made-3")[0], read.agents()
    seats = Lab(agents, desk.clock.ms).seats(waiting)
    assert len(seats) == 2
    assert ahead_of("made-3", seats, candidates, Ledger(), desk.clock.ms) == ("made-1", "made-2")
    assert ahead_of("made-1", seats, candidates, Ledger(), desk.clock.ms) == ()
    assert ahead_of("made-3", [], candidates, Ledger(), desk.clock.ms) == ()
    desk.store.close()


def test_slots_count_if_their_agent_is_there_and_they_are_in_service() -> None:
    away = replace(box("GPU-3"), agent_id="b", seen_at_ms=NOW_MS - 200_000)
    assert slots_by_gpu(Lab([box("GPU-1", "GPU-2"), away], NOW_MS)) == {"v100": 2, "": 2}
    assert slots_by_gpu(Lab([box("GPU-1", quarantine_reason="lost")], NOW_MS)) == {}


def test_agents_and_queue_over_the_wire(make_server: Callable[..., Server]) -> None:
    server = make_server()
    with PlayingAgent(server.addresses[0]) as agent:
        lab: Any = lab_pb2_grpc.LabServiceStub(agent.channel)  # type: ignore[no-untyped-call]

        def agents() -> LabAgents:
            return LabAgents.from_proto(lab.ListAgents(LabQuestion().to_proto(), timeout=60))

        def queue() -> LabQueue:
            return LabQueue.from_proto(lab.GetQueue(LabQuestion().to_proto(), timeout=60))

        assert (agents(), queue()) == (LabAgents(), LabQueue())
        gpu = Slot("GPU-1", ("nsight_systems",), False, GPU, "lost: XID 79")
        agent.register(["recorded-0", gpu])
        first, second = (agent.submit(CAMPAIGN) for _ in range(2))
        key = agent.lease().work.key
        [found] = agents().agents
        assert (found.name, found.present, found.inventory.host) == ("name of agent-1", True, "box")
        assert found.since_ms > 0 and found.seen_at_ms >= found.since_ms
        assert [(s.slot.slot_id, s.health, s.run_id) for s in found.slots] == [
            ("recorded-0", SlotHealth.READY, key.run_id), ("GPU-1", SlotHealth.QUARANTINED, ""),
        ]  # fmt: skip
        assert (found.slots[1].why, found.slots[1].slot) == ("lost: XID 79", gpu)
        told = queue().queued
        assert [(q.campaign_id, q.first_run_id, q.runs, q.kind) for q in told] == [
            (first, f"{first}.0001", 1, QueueKind.QUEUED),
            (first, f"{first}.0002", 1, QueueKind.QUEUED),
            (second, f"{second}.0000", 2, QueueKind.QUEUED),
            (second, f"{second}.0002", 1, QueueKind.QUEUED),
        ]
        assert [q.ahead for q in told] == [(), (), (first,), (first,)]
        assert [q.runs_ahead for q in told] == [0, 0, 2, 2]
        first_told = told[0].estimate
        assert first_told.known and first_told.assumed, "by the assumptions of plans, before anything has run"
        assert 0 < first_told.low_ms < first_told.remaining_ms < first_told.high_ms
        agent.ask(RunsAction.PAUSE, second)
        assert [q.kind for q in queue().queued][2:] == [QueueKind.CAMPAIGN_PAUSED] * 2
        status = agent.status(second)
        assert {r.waiting_for for r in status.runs} == {
            f"its campaign is paused; let it go on with: assay lab resume {second}"
        }
        assert [w.runs for w in status.waiting] == [2, 1]
        assert status.eta == Estimate(missing="it is paused")
        agent.upload(key, made_segments((30,), "detailed", counters=2))
        assert agent.finish(key, 1, 30).published
        agent.play(made_segments((100, 50)))
        eta = agent.status(first, runs=False).eta
        assert eta.known and not eta.assumed, "every level that is left has a finished slice"
