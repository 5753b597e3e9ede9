"""The queue: whoever is next by the rules, kept in memory exactly as the store has it, without polling."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from assay_core.records.campaign import AttemptState, CampaignState
from assay_core.records.lease import LeaseAnswer, LeaseRequest
from assay_server.app import Server
from assay_server.campaign_file.compiled import SchedulingRules
from assay_server.campaigns.scheduling.fitting_slots import Seat
from assay_server.campaigns.scheduling.leases import Chooser
from assay_server.campaigns.scheduling.queue import HALF_LIFE_MS, Account, Candidates, Ledger, Queue, Usage
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.rpc.handlers.agents import AgentHandler
from assay_server.store.model import Entrant, Hold, Lane, Need, Slice
from assay_server.store.records import LocalRecordStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server.cancelling import cancel
from tests.support.server.coordinators import coordinator_over
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.queue_lab import HANG, agent_of, live_campaign
from tests.support.server.server_support import CAMPAIGN, HandClock, eventually

KINDS = ("v100", "a100", "h100")
ONE_RUN = "campaign: one\nworkloads: [{name: w, recordings: [{device: V100, light: light.sqlite}]}]\n"


def entrant(
    number: int, kinds: str = "v100", owner: str = "", project: str = "", priority: int = 0
) -> Entrant:
    lanes = tuple(Lane(10 * number + place, Need("ncu", kind)) for place, kind in enumerate(kinds.split()))
    return Entrant(f"c-{number}", number, SchedulingRules(priority), lanes, owner, project)


def line_up(candidates: Candidates, ledger: Ledger, kind: str = "v100", now_ms: int = 0) -> list[str]:
    found = candidates.in_order(lambda need: need.device_key == kind, ledger, now_ms)
    return [candidate.campaign_id for candidate in found]


people = st.builds(
    entrant,
    number=st.integers(0, 999),
    kinds=st.sampled_from(["v100", "a100", "v100 a100"]),
    owner=st.sampled_from(["ann", "bob", ""]),
    project=st.sampled_from(["p", "q"]),
    priority=st.integers(-1, 1),
)
usages = st.builds(Usage, st.floats(0, 1e6), st.just(0), st.integers(0, 3), st.just(0))


@given(
    st.lists(people, max_size=12, unique_by=lambda each: each.ordinal),
    st.dictionaries(st.sampled_from(["p", "q"]), usages),
    st.dictionaries(st.builds(Account, st.sampled_from(["p", "q"]), st.sampled_from(["ann", "bob"])), usages),
)
@settings(max_examples=30, deadline=None)
def test_who_is_next_is_a_sort_by_priority_project_person_and_age(
    entrants: list[Entrant], projects: dict[str, Usage], persons: dict[Account, Usage]
) -> None:
    candidates, ledger = Candidates(), Ledger(projects, persons)
    candidates.add(entrants)

    def rank(each: Entrant) -> tuple[float, ...]:
        project = projects.get(each.project, Usage()).seconds(0)
        person = persons.get(Account(each.project, each.owner), Usage()).seconds(0)
        return (-each.rules.priority, project, person)

    for kind in KINDS:
        fitting = [each for each in entrants if any(lane.need.device_key == kind for lane in each.lanes)]
        line = line_up(candidates, ledger, kind)
        assert sorted(line) == sorted(each.campaign_id for each in fitting)
        ranks = [rank(next(each for each in fitting if each.campaign_id == name)) for name in line]
        assert ranks == sorted(ranks)
    alone = [replace(each, owner="", project="", rules=SchedulingRules()) for each in entrants]
    candidates = Candidates()
    candidates.add(alone)
    assert line_up(candidates, Ledger()) == [
        each.campaign_id for each in sorted(alone, key=lambda e: e.ordinal) if "v100" in str(each.lanes)
    ]


def test_a_lane_rests_until_it_is_due_and_leaves_when_it_is_empty() -> None:
    candidates = Candidates()
    candidates.add([entrant(1, "v100 a100"), entrant(2)])
    candidates.rest(10, 500)
    assert line_up(candidates, Ledger()) == ["c-2"]
    assert line_up(candidates, Ledger(), now_ms=500) == ["c-1", "c-2"]
    candidates.drop(10)
    candidates.drop(20)
    assert line_up(candidates, Ledger(), now_ms=500) == []
    assert line_up(candidates, Ledger(), "a100") == ["c-1"]
    candidates.add([entrant(1, "v100 a100")])
    assert line_up(candidates, Ledger()) == ["c-1"]


@given(st.floats(0, 1e6), st.integers(0, HALF_LIFE_MS * 4))
def test_use_counts_half_after_a_half_life(seconds: float, moment: int) -> None:
    usage = Usage().spent(seconds, moment)
    assert usage.seconds(moment) == pytest.approx(seconds)
    assert usage.seconds(moment + HALF_LIFE_MS) == pytest.approx(seconds / 2)
    both = usage.spent(seconds, moment + HALF_LIFE_MS)
    assert both.seconds(moment + HALF_LIFE_MS) == pytest.approx(1.5 * seconds)
    late = Usage().spent(seconds, moment + HALF_LIFE_MS).spent(seconds, moment)
    assert late.seconds(moment + HALF_LIFE_MS) == pytest.approx(1.5 * seconds)


# --- the queue in memory against the store


class KeptQueue(RuleBasedStateMachine):
    """Whatever happens, the queue in memory gives what a new look at the whole store would give."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.store = HandClock(), SqliteStore(None)
        self.coordinator = coordinator_over(
            self.store,
            LocalRecordStore(Path("unused"), make_folders=False),
            SchedulePolicy(10**9),
            self.clock,
        )
        self.agents = {kind: agent_of(kind) for kind in KINDS}
        for agent in self.agents.values():
            with self.coordinator.schedule() as schedule:
                schedule.register(agent, {})
        self.campaigns = 0
        self.held: set[str] = set()

    @rule(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3), priority=st.integers(-1, 1))
    def submit(self, kinds: list[str], priority: int) -> None:
        if self.campaigns < 4:
            self.campaigns += 1
            campaign, runs = live_campaign(self.campaigns, kinds, SchedulingRules(priority))
            with self.coordinator.schedule() as schedule:
                schedule.add_campaign(campaign, runs, [Slice(run.run_id, 0) for run in runs])

    @rule(kind=st.sampled_from(KINDS), number=st.integers(0, 1))
    def lease(self, kind: str, number: int) -> None:
        agent = self.agents[kind]
        slot = agent.slots[number]
        with self.coordinator.schedule() as schedule:
            busy = schedule.store.attempts_in(
                (AttemptState.LEASED,), agent_id=agent.agent_id, slot_id=slot.slot_id
            )
            if busy:
                return
            seat = Seat(agent, slot)
            chooser = Chooser(schedule.store, self.coordinator.slots, Queue(), self.clock.ms, seat)
            expected = chooser.choose()
            worth = self.coordinator.queue.may_serve(
                seat, resting=self.coordinator.slots, windows=(), now_ms=self.clock.ms
            )
            lease = schedule.lease(agent.agent_id, slot.slot_id)
            campaign = None if lease is None else schedule.store.campaign(lease.run.campaign_id)
        if lease is None:
            assert expected is None
            return
        assert worth and expected is not None and lease.run.run_id == expected[0].run_id
        assert campaign is not None and campaign.state is CampaignState.RUNNING
        assert lease.run.run_id not in self.held

    @rule(number=st.integers(0, 5), retryable=st.booleans())
    def fail(self, number: int, retryable: bool) -> None:
        with self.coordinator.schedule() as schedule:
            leased = schedule.store.attempts_in((AttemptState.LEASED,))
            if number < len(leased):
                schedule.fail(leased[number].key, replace(HANG, retryable=retryable))

    @rule(number=st.integers(1, 4))
    def cancel(self, number: int) -> None:
        with self.coordinator.schedule() as schedule:
            if schedule.store.campaign(f"c-{number}") is not None:
                cancel(schedule, f"c-{number}")

    @rule(number=st.integers(1, 4))
    def hold_or_release(self, number: int) -> None:
        with self.coordinator.schedule() as schedule:
            for run in schedule.store.runs(f"c-{number}")[:1]:
                schedule.store.set_holds([run.run_id], () if run.holds else (Hold.AFTER,))
                self.held ^= {run.run_id}
                schedule.effects.campaigns.add(run.campaign_id)
                schedule.effects.work = True

    @rule(ms=st.sampled_from([1, 1_000, 60_000]))
    def wait(self, ms: int) -> None:
        self.clock.ms += ms

    @invariant()
    def nothing_is_given_twice(self) -> None:
        with self.store.snapshot() as read:
            active = read.attempts_in((AttemptState.LEASED, AttemptState.PUBLISHING))
        assert len({(a.key.run_id, a.key.slice_index) for a in active}) == len(active)
        assert len({(a.agent_id, a.slot_id) for a in active}) == len(active)

    def teardown(self) -> None:
        self.store.close()


TestKeptQueue = KeptQueue.TestCase
TestKeptQueue.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)


# --- idle slots


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When a server that is started afterwards looked for work in its store."""
    looks: list[float] = []
    real = AgentHandler.lease

    def lease(self: AgentHandler, request: LeaseRequest) -> LeaseAnswer:
        looks.append(time.monotonic())
        return real(self, request)

    monkeypatch.setattr(AgentHandler, "lease", lease)
    return looks


def test_an_idle_slot_asks_the_store_once_until_a_campaign_comes(asked: list[float], server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        assert agent.lease(wait_ms=300).work is None
        assert len(asked) == 1
        agent.submit(CAMPAIGN)
        assert agent.lease().work is not None and len(asked) == 2


def test_a_slot_that_asks_again_is_answered_from_memory_until_its_agent_starts_anew(
    asked: list[float], server: Server
) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        assert [agent.lease().work for _ in range(3)] == [None] * 3
        assert len(asked) == 1
        agent.session_id = "the process after it"
        assert agent.lease().register_again
        agent.register()
        agent.lease()
        assert len(asked) == 3


def test_a_lost_answer_is_given_again_also_to_a_slot_that_got_nothing_before(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        assert agent.lease().work is None
        agent.submit(ONE_RUN)
        first = agent.lease(wait_ms=20_000).work
        assert first is not None
        assert agent.lease().work == first


def test_a_slice_that_rests_is_given_once_it_is_due(
    make_server: Callable[..., Server], asked: list[float]
) -> None:
    server = make_server(retry_delay_ms=700)
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        campaign_id = agent.submit(ONE_RUN)
        key = agent.work().key
        before, failed_at = len(asked), time.monotonic()
        agent.fail(key)
        assert agent.lease(wait_ms=20_000).work is not None
        assert time.monotonic() - failed_at >= 0.6
        assert len(asked) - before <= 3
        eventually(lambda: agent.status(campaign_id).runs_running == 1, "the retry")
