"""Gangs: runs over several GPUs of a box get all of them at once or none, and do not wait for ever."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from assay_core.records.campaign import AttemptState, QueueKind
from assay_core.records.failure import failure
from assay_core.records.lab import LabQuestion
from assay_sampling.errors import CampaignError
from assay_sampling.running.failures import FailureClass
from assay_server.campaign_file.compiled import Placement, Requirements, SchedulingRules
from assay_server.campaigns.planning.plan import plan_campaign
from assay_server.campaigns.scheduling.fitting_slots import Lack, Seat
from assay_server.campaigns.scheduling.queue import Account, Queue
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.campaigns.scheduling.waiting import Lab, Reason, wait_reason
from assay_server.rpc.handlers.campaigns import attempt_detail
from assay_server.rpc.handlers.lab import LabHandler
from assay_server.store.model import Agent, Attempt, need_of
from tests.support.server.campaign_files import load_campaign
from tests.support.server.cancelling import cancel
from tests.support.server.queue_lab import QueueLab, agent_of, live_campaign

HOUR_MS = 3_600_000
LOST = failure(FailureClass.GPU_LOST, "GPU v100-1", "XID 79")
PAIR, FOUR = Placement(gang=2), Placement(gang=4)


def box(name: str, slots: int, *, gangs: bool = True) -> Agent:
    """An agent whose slots take part in gangs."""
    made = agent_of("v100", slots, name)
    return replace(made, slots=tuple(replace(slot, gangs=gangs) for slot in made.slots))


def without(agent: Agent, slot_id: str) -> Agent:
    """The agent with one GPU out of service."""
    slots = (replace(s, quarantine_reason="lost" if s.slot_id == slot_id else "") for s in agent.slots)
    return replace(agent, slots=tuple(slots))


def reason(lab: QueueLab, run_id: str) -> Reason:
    with lab.store.snapshot() as read:
        run = read.run(run_id)
        assert run is not None
        campaign = read.campaign(run.campaign_id)
        assert campaign is not None
        line = lab.coordinator.line(read, campaign, [run])
        why = wait_reason(run, Lab(read.agents(), lab.clock.ms), line)
        assert why is not None
        return why


def leased(lab: QueueLab) -> dict[str, tuple[str, ...]]:
    """By run: the slots that it has."""
    return {attempt.key.run_id: attempt.slots for attempt in lab.leased()}


def test_a_gang_gets_all_of_its_gpus_at_once_and_gives_them_back_together() -> None:
    lab = QueueLab(box("a", 4))
    lab.submit(*live_campaign(1, ["v100"], placement=Placement(gang=3)))
    lab.submit(*live_campaign(2, ["v100"] * 4))
    assert lab.got("a-1") == "c-1.0000"
    assert leased(lab) == {"c-1.0000": ("a-1", "a-0", "a-2")}
    assert [lab.got(slot) for slot in ("a-0", "a-2", "a-3")] == ["", "", "c-2.0000"]
    with lab.coordinator.schedule() as schedule:
        again = schedule.lease("a", "a-1")  # the answer was lost
        assert again is not None and again.attempt.gang == ("a-0", "a-2")
    lab.finish("a-1")
    assert [lab.got(slot) for slot in ("a-0", "a-1", "a-2")] == ["c-2.0001", "c-2.0002", "c-2.0003"]


def test_room_is_kept_for_a_gang_so_that_small_runs_cannot_keep_it_waiting() -> None:
    lab = QueueLab(box("a", 2), box("b", 2))
    lab.submit(*live_campaign(1, ["v100"] * 4))
    assert all(lab.got(slot) for slot in ("a-0", "a-1", "b-0", "b-1"))
    lab.submit(*live_campaign(2, ["v100"], placement=PAIR))
    lab.submit(*live_campaign(3, ["v100"] * 9))
    assert reason(lab, "c-2.0000").kind is QueueKind.GANG
    lab.finish("a-0")
    assert lab.got("a-0") == ""  # c-2 is next, and takes two GPUs
    lab.finish("b-0")
    assert lab.got("b-0") == "c-3.0000"  # one box is kept free, not every box
    lab.submit(*live_campaign(4, ["v100"], SchedulingRules(1)))
    assert lab.got("a-0") == "c-4.0000"  # a higher priority does not wait
    lab.finish("a-1")
    assert lab.got("a-1") == ""
    lab.finish("a-0")
    assert lab.got("a-0") == "c-2.0000"
    assert leased(lab)["c-2.0000"] == ("a-0", "a-1")


def test_whichever_gpu_becomes_idle_brings_a_gang_nearer() -> None:
    lab = QueueLab(box("a", 4))
    lab.submit(*live_campaign(1, ["v100"] * 4))
    for number in range(4):
        lab.got(f"a-{number}")
    lab.submit(*live_campaign(2, ["v100"], placement=Placement(gang=3)))
    lab.submit(*live_campaign(3, ["v100"] * 9))
    for slot in ("a-3", "a-1"):
        lab.finish(slot)
        assert lab.got(slot) == ""
    lab.finish("a-2")
    assert lab.got("a-2") == "c-2.0000"
    assert set(leased(lab)["c-2.0000"]) == {"a-1", "a-2", "a-3"}


def test_an_exclusive_gang_keeps_the_rest_of_its_box_idle() -> None:
    lab = QueueLab(box("a", 3))
    lab.submit(*live_campaign(1, ["v100"], placement=Placement(exclusive="box", gang=2)))
    lab.submit(*live_campaign(2, ["v100"] * 2))
    assert [lab.got(slot) for slot in ("a-0", "a-1", "a-2")] == ["c-1.0000", "", ""]
    lab.finish("a-0")
    assert [lab.got(slot) for slot in ("a-0", "a-1", "a-2")] == ["c-2.0000", "c-2.0001", ""]


def test_a_gang_that_no_box_can_hold_says_so() -> None:
    lab = QueueLab(box("a", 2), box("b", 3))
    lab.submit(*live_campaign(1, ["v100"], placement=FOUR))
    assert lab.got("b-0") == ""
    told = reason(lab, "c-1.0000")
    assert told.kind is QueueKind.NOT_OFFERED and "no box has more than 3 of them" in told.text
    lab.register(without(lab.agents["b"], "b-2"))
    assert "more than 2 of them" in reason(lab, "c-1.0000").text
    lab.register(box("c", 4))
    assert reason(lab, "c-1.0000").kind is QueueKind.QUEUED
    lab.agents["c"] = box("c", 4)
    assert lab.got("c-0") == "c-1.0000"


def test_agents_of_earlier_releases_and_instances_of_a_gpu_make_no_gangs() -> None:
    lab = QueueLab(box("a", 2, gangs=False))
    campaign, [run] = live_campaign(1, ["v100"], placement=PAIR)
    lab.submit(campaign, [run])
    assert lab.got("a-0") == ""
    assert reason(lab, "c-1.0000").kind is QueueKind.NOT_OFFERED
    parts = box("m", 2)
    parts = replace(parts, slots=tuple(replace(s, slot_id=f"MIG-{s.slot_id}") for s in parts.slots))
    assert Seat(parts, parts.slots[0]).lack(need_of(run)) is Lack.GANGS
    shared = box("s", 2)  # two slots on one GPU
    shared = replace(shared, slots=tuple(replace(s, device=shared.slots[0].device) for s in shared.slots))
    assert Seat(shared, shared.slots[0]).lack(need_of(run)) is Lack.GANG_SIZE


def test_every_gpu_of_a_gang_must_meet_the_requirements() -> None:
    agent = box("a", 3)
    device = agent.slots[1].device
    assert device is not None
    small = replace(agent.slots[1], device=replace(device, sm_count=40))
    large = [replace(s, device=replace(s.device, sm_count=80)) for s in agent.slots if s.device is not None]
    lab = QueueLab(replace(agent, slots=(large[0], small, large[2])))
    lab.submit(*live_campaign(1, ["v100"], placement=Placement(Requirements(sm_count=80), gang=2)))
    assert lab.got("a-1") == ""
    assert lab.got("a-0") == "c-1.0000"
    assert leased(lab) == {"c-1.0000": ("a-0", "a-2")}


def test_a_gang_counts_all_of_its_gpus_for_shares_and_budgets_also_after_a_restart() -> None:
    lab = QueueLab(box("a", 2))
    rules = SchedulingRules(budget_gpu_hours=3.0)
    lab.submit(*live_campaign(1, ["v100"] * 3, rules, placement=PAIR, owner="ann"))
    assert lab.got("a-0") == "c-1.0000"
    lab.clock.ms += HOUR_MS
    held = lab.coordinator.queue.ledger.people[Account("", "ann")]
    assert held.seconds(lab.clock.ms) == pytest.approx(2 * (3600 + 60))
    lab.restart()
    lab.lease("a-1")
    assert lab.coordinator.queue.ledger.people[Account("", "ann")] == held
    lab.finish("a-0")
    assert lab.got("a-0") == "c-1.0001"  # two of three GPU hours are used
    lab.clock.ms += HOUR_MS
    lab.restart()
    lab.lease("a-1")
    lab.finish("a-0")
    assert lab.got("a-0") == ""
    lab.register(lab.agents["a"])
    assert reason(lab, "c-1.0002").kind is QueueKind.BUDGET


def test_a_gang_that_lost_one_gpu_goes_on_with_others_and_gets_no_third() -> None:
    lab = QueueLab(box("a", 4))
    lab.submit(*live_campaign(1, ["v100"] * 2, placement=PAIR))
    assert lab.got("a-0") == "c-1.0000"
    lab.register(without(lab.agents["a"], "a-1"))
    lab.fail("a-0", LOST)
    lab.clock.ms += HOUR_MS
    assert lab.got("a-0") == "c-1.0000"
    assert leased(lab) == {"c-1.0000": ("a-0", "a-2")}
    lab.fail("a-0", LOST)
    with lab.store.snapshot() as read:
        lost = [run.failure.cause for run in read.runs("c-1") if run.failure is not None]
    assert len(lost) == 2 and all("has lost 2 GPUs" in cause for cause in lost)


def test_an_expired_gang_comes_back_only_if_all_of_its_slots_are_still_free() -> None:
    for taken in (True, False):
        lab = QueueLab(box("a", 2), policy=SchedulePolicy(60_000))
        lab.submit(*live_campaign(1, ["v100"], placement=PAIR))
        lab.lease("a-0")
        key = lab.key_at("a-0")
        lab.clock.ms += 61_000
        with lab.coordinator.schedule() as schedule:
            schedule.expire()
        if taken:
            lab.submit(*live_campaign(2, ["v100"], SchedulingRules(1)))
            assert lab.got("a-1") == "c-2.0000"
        with lab.coordinator.schedule() as schedule:
            assert schedule.extend(key) is not taken
        assert ("c-1.0000" in leased(lab)) is not taken


FILE = """\
campaign: ranks
gpus: [H100]
detailed: none
workloads:
  - {name: one, command: [./one]}
  - {name: four, command: [torchrun, train.py], exclusive: box, gang: 4, processes: 8}
"""


def test_the_key_gang_reaches_the_runs_of_its_workload() -> None:
    runs = plan_campaign(load_campaign(FILE, "c.yaml"), "ranks-1", "/data", "c.yaml").runs
    assert {run.workload: run.placement for run in runs} == {
        "one": Placement(),
        "four": Placement(exclusive="box", gang=4),
    }
    assert [run.command.processes for run in runs if run.command is not None] == [0, 8]


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("detailed: none", "detailed: {first: 10}", "would hang; write 'detailed: none'"),
        ("detailed: none", "detailed: none\nlight: cupti", "records one GPU"),
        ("detailed: none", "detailed: none\nconditions: [{sm_percent: 50}]", "is that of one GPU"),
        ("detailed: none", "detailed: none\nrequires: {mig: true}", "sees one MIG instance"),
        ("gang: 4", "gang: 4, kineto: trace.json", "a Kineto trace is of one process"),
        ("processes: 8", "processes: 6", "6 processes cannot share 4 GPUs evenly"),
        ("gang: 4", "kineto: t.json", "a Kineto trace is of one process"),
        ("gang: 4", "gang: 1", "1 is below 2"),
        ("gang: 4", "gang: 65", "65 is above 64"),
        ("command: [torchrun, train.py]", "recordings: [{device: H100, light: a.json}]", "needs a 'command'"),
    ],
)
def test_a_gang_that_cannot_be_measured_is_refused_with_the_reason(old: str, new: str, cause: str) -> None:
    with pytest.raises(CampaignError, match=re.escape(cause)):
        load_campaign(FILE.replace(old, new), "c.yaml")


def test_a_gang_stays_with_an_agent_that_was_restarted_and_holds_its_launches() -> None:
    lab = QueueLab(box("a", 2))
    lab.submit(*live_campaign(1, ["v100"], placement=PAIR))
    lease = lab.lease("a-0")
    assert lease is not None
    again = replace(lab.agents["a"], session_id="again")
    with lab.coordinator.schedule() as schedule:
        key = lease.attempt.key
        assert schedule.register(again, {key: lease.attempt.write_secret}) == ([key], [])
    lab.submit(*live_campaign(2, ["v100"] * 2))
    assert [lab.got(slot) for slot in ("a-0", "a-1")] == ["", ""]
    lab.finish("a-0")
    assert [lab.got(slot) for slot in ("a-0", "a-1")] == ["c-2.0000", "c-2.0001"]


class Gangs(RuleBasedStateMachine):
    """Whatever happens, no GPU has two runs, no gang is incomplete, and none waits for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.lab = QueueLab(box("a", 3), box("b", 2), policy=SchedulePolicy(600_000))
        self.slots = [slot.slot_id for agent in self.lab.agents.values() for slot in agent.slots]
        self.campaigns = 0

    def leading(self, slot_id: str) -> Attempt | None:
        return next((each for each in self.lab.leased() if each.slot_id == slot_id), None)

    @rule(
        gang=st.integers(1, 3),
        runs=st.integers(1, 3),
        priority=st.integers(0, 1),
        alone=st.sampled_from(["", "gpu", "box"]),
    )
    def submit(self, gang: int, runs: int, priority: int, alone: str) -> None:
        self.campaigns += 1
        placement = Placement(exclusive=alone, gang=gang)  # type: ignore[arg-type]
        rules = SchedulingRules(priority)
        self.lab.submit(*live_campaign(self.campaigns, ["v100"] * runs, rules, placement=placement))

    @rule(number=st.integers(0, 4))
    def ask(self, number: int) -> None:
        """Also slots of a gang that another slot leads ask, and a slot whose answer was lost."""
        self.lab.lease(self.slots[number])

    @rule(number=st.integers(0, 4), well=st.booleans())
    def end(self, number: int, well: bool) -> None:
        if self.leading(self.slots[number]) is not None:
            (self.lab.finish if well else self.lab.fail)(self.slots[number])

    @rule(number=st.integers(0, 4))
    def box_fails(self, number: int) -> None:
        if self.leading(self.slots[number]) is not None:
            self.lab.fail(self.slots[number], failure(FailureClass.DISK_FULL, "disk", "full"))

    @rule(number=st.integers(0, 4), comes_back=st.booleans())
    def lose_and_find(self, number: int, comes_back: bool) -> None:
        """The lease of an attempt runs out; its agent may show up again."""
        attempt = self.leading(self.slots[number])
        if attempt is None:
            return
        self.lab.clock.ms += 600_001
        with self.lab.coordinator.schedule() as schedule:
            schedule.expire()
        for slot_id in self.slots[:number]:
            self.lab.lease(slot_id)
        if comes_back:
            with self.lab.coordinator.schedule() as schedule:
                schedule.extend(attempt.key)

    @rule(number=st.integers(0, 4), out=st.booleans())
    def quarantine(self, number: int, out: bool) -> None:
        slot_id = self.slots[number]
        agent = self.lab.agents[slot_id[0]]
        self.lab.register(without(agent, slot_id) if out else agent)

    @rule(number=st.integers(1, 5))
    def cancel(self, number: int) -> None:
        if number <= self.campaigns:
            with self.lab.coordinator.schedule() as schedule:
                cancel(schedule, f"c-{number}")

    @rule()
    def restart_the_server(self) -> None:
        self.lab.restart()

    @rule()
    def restart_an_agent(self) -> None:
        """Its new process holds nothing: what the earlier one measured is lost."""
        self.lab.agents["a"] = replace(self.lab.agents["a"], session_id=f"session {self.lab.clock.ms}")
        self.lab.register(self.lab.agents["a"])

    @rule(ms=st.sampled_from([1_000, 60_000]))
    def wait(self, ms: int) -> None:
        self.lab.clock.ms += ms

    @invariant()
    def no_gpu_has_two_runs_and_no_gang_is_incomplete(self) -> None:
        held: Counter[tuple[str, str]] = Counter()
        with self.lab.store.snapshot() as read:
            for attempt in read.attempts_in((AttemptState.LEASED,)):
                run = read.run(attempt.key.run_id)
                assert run is not None and len(set(attempt.slots)) == run.placement.gang
                held.update((attempt.agent_id, slot_id) for slot_id in attempt.slots)
        assert set(held.values()) <= {1} and set(held) <= {(slot[0], slot) for slot in self.slots}

    @invariant()
    def every_gpu_of_every_lease_is_charged(self) -> None:
        fresh, kept = Queue(), self.lab.coordinator.queue
        with self.lab.store.transaction() as store:
            fresh.candidates(store)
            kept.candidates(store)
        held = [sum(usage.gpus for usage in queue.ledger.projects.values()) for queue in (fresh, kept)]
        assert held == [sum(len(attempt.slots) for attempt in self.lab.leased())] * 2

    def teardown(self) -> None:
        """Once nothing else happens, everything ends."""
        for agent in self.lab.agents.values():
            self.lab.register(agent)
        for _ in range(400):
            given = [self.lab.got(slot_id) for slot_id in self.slots]
            if not self.lab.leased() and not any(given) and not self.open_runs():
                break
            self.lab.clock.ms += 60_000
            for attempt in self.lab.leased():
                self.lab.finish(attempt.slot_id)
        assert not self.open_runs()
        self.lab.store.close()

    def open_runs(self) -> bool:
        with self.lab.store.snapshot() as read:
            return any(read.open_ends(f"c-{number}").open_runs for number in range(1, self.campaigns + 1))


TestGangs = Gangs.TestCase
TestGangs.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def test_every_gpu_of_a_gang_is_shown_with_its_run_and_the_queue_says_what_a_gang_waits_for() -> None:
    lab = QueueLab(box("a", 3))
    lab.submit(*live_campaign(1, ["v100"] * 2, placement=PAIR))
    assert lab.got("a-0") == "c-1.0000"
    handler = LabHandler(lab.coordinator)
    [agent] = handler.agents(LabQuestion()).agents
    assert [slot.run_id for slot in agent.slots] == ["c-1.0000", "c-1.0000", ""]
    [queued] = handler.queue(LabQuestion()).queued
    assert (queued.kind, queued.first_run_id) == (QueueKind.GANG, "c-1.0001")
    attempt = attempt_detail(lab.leased()[0])
    assert (attempt.slot, attempt.gang) == ("a-0", ("a-1",))
