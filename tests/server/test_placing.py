"""Where and when runs begin: shares, requirements, alone on a box, in order, budgets and windows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from assay_core.identity.roles import IdentityKind, Role
from assay_core.records.campaign import QueueKind
from assay_core.records.lab import LabQuestion, SlotHealth
from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_sampling.errors import CampaignError, ParameterError
from assay_server.campaign_file.compiled import Placement, Requirements, SchedulingRules
from assay_server.campaign_file.reading import compile_campaign
from assay_server.campaigns.planning.plan import plan_campaign
from assay_server.campaigns.scheduling.fitting_slots import Lack, Seat
from assay_server.campaigns.scheduling.queue import HALF_LIFE_MS
from assay_server.campaigns.scheduling.resting import windows_of
from assay_server.campaigns.scheduling.retry import MOST_SLOTS_FAILED
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.campaigns.scheduling.waiting import Lab, wait_reason
from assay_server.rpc.handlers.campaigns import StatusBoard
from assay_server.rpc.handlers.lab import LabHandler
from assay_server.store.model import Agent, Hold, Need, Run, Slice
from assay_server.store.people import Identity
from tests.support.server.campaign_files import load_campaign
from tests.support.server.queue_lab import HANG, QueueLab, agent_of, live_campaign

HOUR_MS = 3_600_000
BOX, GPU = Placement(exclusive="box"), Placement(exclusive="gpu")


def reason(lab: QueueLab, run_id: str) -> QueueKind:
    with lab.store.snapshot() as read:
        run = read.run(run_id)
        assert run is not None
        campaign = read.campaign(run.campaign_id)
        assert campaign is not None
        line = lab.coordinator.line(read, campaign, [run])
        why = wait_reason(run, Lab(read.agents(), lab.clock.ms), line)
        assert why is not None
        return why.kind


# --- shares and priorities


def test_projects_share_equally_and_their_people_too_and_nobody_starves() -> None:
    lab = QueueLab(agent_of("v100", 3))
    owners = [("p", "ann"), ("p", "bob"), ("q", "cid")]
    for number, (project, owner) in enumerate(owners, 1):
        lab.submit(*live_campaign(number, ["v100"] * 120, owner=owner, project=project))
    seconds: Counter[str] = Counter()
    minutes = {"ann": 10, "bob": 40, "cid": 20}  # a person with longer runs gets fewer of them
    ends: dict[str, tuple[int, str]] = {}
    began: dict[str, list[int]] = {owner: [] for _, owner in owners}
    for _ in range(140):
        for slot_id in ("v100-0", "v100-1", "v100-2"):
            if slot_id not in ends:
                owner = owners[int(lab.got(slot_id)[2]) - 1][1]
                ends[slot_id] = (lab.clock.ms + minutes[owner] * 60_000, owner)
                began[owner].append(lab.clock.ms)
        slot_id, (lab.clock.ms, owner) = min(ends.items(), key=lambda each: each[1])
        del ends[slot_id]
        lab.finish(slot_id)
        seconds[owner] += minutes[owner] * 60
    total = seconds.total()
    assert seconds["cid"] / total == pytest.approx(1 / 2, abs=0.06)
    assert seconds["ann"] / total == pytest.approx(1 / 4, abs=0.06)
    assert seconds["bob"] / total == pytest.approx(1 / 4, abs=0.06)
    longest = max(b - a for starts in began.values() for a, b in pairwise(starts))
    assert longest <= 4 * 40 * 60_000


def test_shares_forget_and_outlive_a_restart() -> None:
    lab = QueueLab(agent_of("v100", 1))
    lab.submit(*live_campaign(1, ["v100"] * 3, owner="ann"))
    lab.submit(*live_campaign(2, ["v100"] * 3, owner="bob"))
    assert lab.got("v100-0") == "c-1.0000"
    lab.clock.ms += HOUR_MS
    lab.finish("v100-0")
    lab.restart()
    assert lab.got("v100-0") == "c-2.0000"  # ann has used an hour
    lab.clock.ms += 2 * HOUR_MS
    lab.finish("v100-0")
    assert lab.got("v100-0") == "c-1.0001"
    lab.finish("v100-0")
    lab.clock.ms += 1000 * HALF_LIFE_MS
    assert lab.got("v100-0") == "c-1.0002"  # all is forgotten: the oldest goes first


def test_a_higher_priority_goes_first_whatever_was_used() -> None:
    lab = QueueLab(agent_of("v100", 1))
    lab.submit(*live_campaign(1, ["v100"], owner="ann"))
    lab.submit(*live_campaign(2, ["v100"] * 2, SchedulingRules(1), owner="bob"))
    order = []
    while run_id := lab.got("v100-0"):
        lab.clock.ms += HOUR_MS
        lab.finish("v100-0")
        order.append(run_id)
    assert order == ["c-2.0000", "c-2.0001", "c-1.0000"]


# --- requirements

H100 = InstalledDevice(0, "NVIDIA H100 80GB HBM3", "GPU-1", "9.0", 132, 80 << 30)


@pytest.mark.parametrize(
    ("asked", "missing", "lack"),
    [
        ({"architectures": ("8.0", "9.0")}, {"architectures": ("8.0",)}, Lack.ARCHITECTURE),
        ({"gpu": "*h100*hbm3"}, {"gpu": "*A100*"}, Lack.NAME),
        ({"sm_count": 132}, {"sm_count": 133}, Lack.SM_COUNT),
        ({"memory_gib": 80.0}, {"memory_gib": 80.5}, Lack.MEMORY),
        ({"driver": "550.54"}, {"driver": "550.60"}, Lack.DRIVER),
        ({"tools": ("cupti",)}, {"tools": ("cupti", "nsight_systems")}, Lack.TOOLS),
        ({"labels": ("rack3",)}, {"labels": ("rack3", "quiet")}, Lack.LABELS),
        ({"mig": "no"}, {"mig": "yes"}, Lack.MIG),
    ],
)
def test_a_slot_fits_if_it_meets_every_requirement(
    asked: dict[str, object], missing: dict[str, object], lack: Lack
) -> None:
    slot = Slot("GPU-1", ("nsight_compute", "cupti"), False, H100)
    agent = Agent("a", "s", "a", Inventory(driver_version="550.54.14"), (slot,), 0, labels=("rack3", "fast"))

    def lacks(requires: dict[str, object]) -> Lack | None:
        placement = Placement(Requirements(**requires))  # type: ignore[arg-type]
        return Seat(agent, slot).lack(Need("cupti", slot.device_key, placement=placement))

    assert lacks({}) is None
    assert lacks(asked) is None
    assert lacks(missing) is lack


def test_requirements_decide_which_slot_gets_a_run() -> None:
    small = agent_of("v100", 1, "small")
    large = agent_of("v100", 1, "large")
    device = large.slots[0].device
    assert device is not None
    large = replace(large, slots=(replace(large.slots[0], device=replace(device, sm_count=80)),))
    lab = QueueLab(small, large)
    lab.submit(*live_campaign(1, ["v100"], placement=Placement(Requirements(sm_count=80))))
    assert lab.got("small-0") == ""
    assert reason(lab, "c-1.0000") is QueueKind.QUEUED
    assert lab.got("large-0") == "c-1.0000"


# --- alone on a GPU or a box


class AloneOnABox(RuleBasedStateMachine):
    """Exclusive runs share no box, and a stream of small runs cannot keep them waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.lab = QueueLab(agent_of("v100", 3, "a"), agent_of("v100", 2, "b"))
        self.slots = [slot.slot_id for agent in self.lab.agents.values() for slot in agent.slots]
        self.campaigns = 0
        self.exclusive: set[str] = set()

    @rule(alone=st.booleans(), runs=st.integers(1, 3))
    def submit(self, alone: bool, runs: int) -> None:
        self.campaigns += 1
        campaign, made = live_campaign(
            self.campaigns, ["v100"] * runs, placement=BOX if alone else Placement()
        )
        self.exclusive |= {run.run_id for run in made} if alone else set()
        self.lab.submit(campaign, made)

    @rule(number=st.integers(0, 4))
    def ask(self, number: int) -> None:
        if all(attempt.slot_id != self.slots[number] for attempt in self.lab.leased()):
            self.lab.lease(self.slots[number])

    @rule(number=st.integers(0, 4), well=st.booleans())
    def end(self, number: int, well: bool) -> None:
        if any(attempt.slot_id == self.slots[number] for attempt in self.lab.leased()):
            (self.lab.finish if well else self.lab.fail)(self.slots[number])
            self.lab.clock.ms += 60_000

    @invariant()
    def exclusive_runs_are_alone(self) -> None:
        for box in self.lab.agents:
            runs = [attempt.key.run_id for attempt in self.lab.leased() if attempt.agent_id == box]
            assert len(runs) == 1 or not self.exclusive & set(runs)

    def teardown(self) -> None:
        """Whatever happened, everything ends, an exclusive run as soon as those before it have."""
        for _ in range(400):
            held = {attempt.slot_id for attempt in self.lab.leased()}
            free = [slot_id for slot_id in self.slots if slot_id not in held]
            given = [self.lab.got(slot_id) for slot_id in free]
            if not held and not any(given):
                break
            self.lab.clock.ms += 60_000
            for attempt in self.lab.leased():
                self.lab.finish(attempt.slot_id)
        with self.lab.store.snapshot() as read:
            assert not any(read.open_ends(f"c-{number}").open_runs for number in range(1, self.campaigns + 1))


TestAloneOnABox = AloneOnABox.TestCase
TestAloneOnABox.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)


def test_a_box_is_kept_free_for_a_run_that_needs_it_but_not_against_a_higher_priority() -> None:
    lab = QueueLab(agent_of("v100", 2))
    lab.submit(*live_campaign(1, ["v100"] * 2))
    assert [lab.got("v100-0"), lab.got("v100-1")] == ["c-1.0000", "c-1.0001"]
    lab.submit(*live_campaign(2, ["v100"], placement=BOX))
    lab.submit(*live_campaign(3, ["v100"] * 9))
    assert reason(lab, "c-2.0000") is QueueKind.EXCLUSIVE
    lab.finish("v100-0")
    assert lab.got("v100-0") == ""  # c-2 is next, and must be alone
    lab.submit(*live_campaign(4, ["v100"], SchedulingRules(1)))
    assert lab.got("v100-0") == "c-4.0000"
    lab.finish("v100-0")
    lab.finish("v100-1")
    assert lab.got("v100-1") == "c-2.0000"
    assert lab.got("v100-0") == ""
    lab.finish("v100-1")
    assert lab.got("v100-0").startswith("c-3")


def test_a_box_stays_reserved_when_shares_turn_to_somebody_else() -> None:
    lab = QueueLab(agent_of("v100", 2), agent_of("a100", 1))
    lab.submit(*live_campaign(1, ["v100"]))
    assert lab.got("v100-1") == "c-1.0000"
    lab.submit(*live_campaign(2, ["v100"], placement=BOX, owner="ann"))
    lab.submit(*live_campaign(3, ["v100"] * 9, owner="bob"))
    assert lab.got("v100-0") == ""
    lab.submit(*live_campaign(4, ["a100"], owner="ann"))
    assert lab.got("a100-0") == "c-4.0000"  # now ann has used more than bob
    assert lab.got("v100-0") == ""
    lab.finish("v100-1")
    assert lab.got("v100-1") == "c-2.0000"


def test_a_gpu_alone_means_no_other_slot_of_the_same_gpu() -> None:
    agent = agent_of("v100", 3)
    shared = [
        replace(slot, device=replace(slot.device, index=min(i, 1))) for i, slot in enumerate(agent.slots)
    ]
    lab = QueueLab(replace(agent, slots=tuple(shared)))
    lab.submit(*live_campaign(1, ["v100"], placement=GPU))
    lab.submit(*live_campaign(2, ["v100"] * 3))
    assert lab.got("v100-1") == "c-1.0000"
    assert lab.got("v100-2") == ""  # the other slot of GPU 1
    assert lab.got("v100-0") == "c-2.0000"


# --- order


def test_a_workload_begins_when_those_before_it_have_ended_with_any_outcome() -> None:
    lab = QueueLab(agent_of("v100", 2))
    after = {"b": ("a",), "c": ("a", "b")}
    lab.submit(*live_campaign(1, ["v100"] * 2, SchedulingRules(after=after), workloads=("a", "b", "c")))
    assert [lab.got("v100-0"), lab.got("v100-1")] == ["c-1.0000", "c-1.0001"]
    assert reason(lab, "c-1.0002") is QueueKind.AFTER
    lab.finish("v100-0")
    assert lab.got("v100-0") == ""
    lab.fail("v100-1", replace(HANG, retryable=False))
    assert [lab.got("v100-0"), lab.got("v100-1")] == ["c-1.0002", "c-1.0003"]
    lab.finish("v100-0")
    lab.finish("v100-1")
    assert lab.got("v100-0") == "c-1.0004"


def test_each_workload_is_told_by_those_that_it_waits_for() -> None:
    lab = QueueLab(agent_of("v100", 1))
    rules = SchedulingRules(after={"c": ("a",), "d": ("a", "b"), "e": ("a",)})
    lab.submit(*live_campaign(1, ["v100"] * 2, rules, workloads=("a", "b", "c", "d", "e")))
    told = {
        (each.first_run_id, each.runs): each.reason
        for each in LabHandler(lab.coordinator).queue(LabQuestion()).queued
        if each.kind is QueueKind.AFTER
    }
    assert told == {
        ("c-1.0004", 4): "a must end before it",
        ("c-1.0006", 2): "a, b must end before it",
    }
    waiting = StatusBoard(lab.coordinator).status("c-1").waiting
    assert [(each.first_run_id, each.runs, each.reason) for each in waiting] == [
        (first, runs, reason) for (first, runs), reason in told.items()
    ]


def test_the_keys_of_a_campaign_file_reach_every_live_run() -> None:
    text = """\
campaign: placed
project: llm
priority: 5
budget_gpu_hours: 1.5
requires: {architecture: [sm_80, 9.0], memory_gib: 40, labels: quiet}
gpus: [A100]
workloads:
  - {name: first, command: [./first]}
  - {name: second, command: [./second], after: [first], exclusive: box, requires: {driver: "550"}}
"""
    spec = load_campaign(text, "c.yaml")
    rules = compile_campaign(spec).scheduling
    assert rules == SchedulingRules(5, 1.5, {"second": ("first",)})
    runs = {run.workload: run for run in plan_campaign(spec, "placed-1", "/data", "c.yaml").runs}
    quiet = Requirements(("8.0", "9.0"), memory_gib=40.0, labels=("quiet",))
    assert (runs["first"].placement, runs["first"].holds) == (Placement(quiet), ())
    alone = Placement(Requirements(driver="550"), "box")
    assert (runs["second"].placement, runs["second"].holds) == (alone, (Hold.AFTER,))
    assert spec.project == "llm"


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("after: [a]", "after: [x]", "there is no workload 'x'"),
        ("after: [a]", "after: [b]", "it would wait for itself: b wait for one another"),
        ("after: [a]", "exclusive: rack", "exclusive"),
        ("after: [a]", "requires: {architecture: Hopper}", "architecture"),
    ],
)
def test_an_order_that_cannot_be_is_refused(old: str, new: str, cause: str) -> None:
    text = "campaign: c\ngpus: [V100]\nworkloads:\n  - {name: a, command: [./a]}\n"
    text += "  - {name: b, command: [./b], after: [a]}\n"
    load_campaign(text, "c.yaml")
    with pytest.raises(CampaignError, match=cause):
        load_campaign(text.replace(old, new), "c.yaml")


# --- budgets, windows, workloads set aside


def test_a_campaign_stops_at_its_budget_and_a_person_at_theirs() -> None:
    lab = QueueLab(agent_of("v100", 1), policy=SchedulePolicy(10**12, person_gpu_hours=3.0))
    lab.submit(*live_campaign(1, ["v100"] * 9, SchedulingRules(budget_gpu_hours=1.5), owner="ann"))
    lab.submit(*live_campaign(2, ["v100"] * 9, owner="ann"))
    taken = []
    for _ in range(6):
        taken.append(lab.got("v100-0")[:3])
        if taken[-1]:
            lab.clock.ms += HOUR_MS
            lab.finish("v100-0")
    assert taken == ["c-1", "c-1", "c-2", "", "", ""]
    with lab.coordinator.schedule() as schedule:
        assert schedule.is_registered("v100", "session")
    assert reason(lab, "c-1.0002") is QueueKind.BUDGET
    assert reason(lab, "c-2.0001") is QueueKind.BUDGET
    lab.clock.ms += 31 * 24 * HOUR_MS
    assert lab.got("v100-0") == "c-2.0001"  # the last 30 days are free; the campaign's budget is spent


def test_a_run_that_has_begun_waits_for_the_budget_too_but_not_while_it_is_measured() -> None:
    """``assay run`` gives up what waits, and must not give up a slice that is measured."""
    lab = QueueLab(agent_of("v100", 1))
    campaign, runs = live_campaign(1, ["v100"] * 2, SchedulingRules(budget_gpu_hours=1.5))
    with lab.coordinator.schedule() as schedule:
        slices = [*(Slice(runs[0].run_id, index) for index in (0, 1)), Slice(runs[1].run_id, 0)]
        schedule.add_campaign(campaign, runs, slices)

    def waiting() -> list[tuple[str, int]]:
        with lab.coordinator.schedule() as schedule:
            assert schedule.is_registered("v100", "session")  # it is there
        told = StatusBoard(lab.coordinator).status("c-1").waiting
        return [(each.first_run_id, each.runs) for each in told if each.kind is QueueKind.BUDGET]

    assert (lab.got("v100-0"), waiting()) == ("c-1.0000", [])
    lab.clock.ms += 2 * HOUR_MS
    assert waiting() == [("c-1.0001", 1)]
    lab.finish("v100-0")
    assert lab.got("v100-0") == "", "not even the next slice of the run that has begun"
    assert waiting() == [("c-1.0000", 1), ("c-1.0001", 1)]


def test_an_agent_in_maintenance_gets_no_runs_until_it_ends() -> None:
    windows = windows_of(["v1* 1970-01-01T00:10Z/1970-01-01T01:00Z", "label:quiet 2000-01-01/2001-01-01"])
    lab = QueueLab(agent_of("v100", 1), policy=SchedulePolicy(10**12, windows=windows))
    lab.submit(*live_campaign(1, ["v100"]))
    assert lab.clock.ms == 1_000_000
    assert lab.got("v100-0") == ""
    assert reason(lab, "c-1.0000") is QueueKind.MAINTENANCE
    [told] = LabHandler(lab.coordinator).agents(LabQuestion()).agents[0].slots
    assert (told.health, told.maintenance_until_ms) == (SlotHealth.MAINTENANCE, HOUR_MS)
    assert told.why == "a maintenance window keeps new runs from it until 1970-01-01T01:00+00:00"
    seat = lab.coordinator.queue.idle_seat("v100", "session", "v100-0")
    assert seat is not None
    asked = {"resting": lab.coordinator.slots, "windows": windows}
    assert not lab.coordinator.queue.may_serve(seat, **asked, now_ms=lab.clock.ms)
    assert lab.coordinator.queue.may_serve(seat, **asked, now_ms=HOUR_MS)
    lab.clock.ms = HOUR_MS
    lab.register(replace(lab.agents["v100"], seen_at_ms=HOUR_MS))
    [told] = LabHandler(lab.coordinator).agents(LabQuestion()).agents[0].slots
    assert (told.health, told.maintenance_until_ms, told.why) == (SlotHealth.READY, 0, "")
    assert lab.got("v100-0") == "c-1.0000"


def test_an_agent_whose_identity_was_revoked_is_shown_as_lost_at_once() -> None:
    lab = QueueLab(agent_of("v100", 1))
    handler = LabHandler(lab.coordinator)
    assert handler.agents(LabQuestion()).agents[0].present
    revoked = Identity("v100", IdentityKind.AGENT, "v100", Role.AGENT, revoked_at_ms=lab.clock.ms)
    with lab.store.transaction() as transaction:
        transaction.put_identity(revoked)
    [agent] = handler.agents(LabQuestion()).agents
    [slot] = agent.slots
    assert not agent.present
    assert (slot.health, slot.why) == (SlotHealth.LOST, "its agent's identity was revoked")


@pytest.mark.parametrize(
    "text",
    [
        "", "box-1", "box-1 now/then", "box-1 2026-01-02/2026-01-01",
        " 2026-01-01/2026-01-02", "label: 2026-01-01/2026-01-02", "label:\t 2026-01-01/2026-01-02",
    ],
)  # fmt: skip
def test_a_window_without_a_time_or_for_nobody_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="maintenance window"):
        windows_of([text])


def test_a_star_alone_is_every_agent() -> None:
    [window] = windows_of(["* 1970-01-01T00:10Z/1970-01-01T01:00Z"])
    assert window.covers(agent_of("v100", 1), 600_000) and not window.covers(agent_of("v100", 1), 599_999)


@pytest.mark.parametrize("one_succeeds", [False, True])
def test_a_workload_that_fails_everywhere_is_set_aside(one_succeeds: bool) -> None:
    lab = QueueLab(agent_of("v100", 4))
    lab.submit(*live_campaign(1, ["v100"] * 8))
    if one_succeeds:
        lab.got("v100-3")
        lab.finish("v100-3")
    for number in range(MOST_SLOTS_FAILED):
        lab.got(f"v100-{number}")
        lab.fail(f"v100-{number}", replace(HANG, retryable=False))

    def failed(run: Run) -> bool:
        return run.failure is not None and "set aside" in run.failure.cause

    with lab.store.snapshot() as read:
        aside = [run for run in read.runs("c-1") if failed(run)]
    assert len(aside) == (0 if one_succeeds else 8 - MOST_SLOTS_FAILED)
    assert bool(lab.got("v100-0")) is one_succeeds
