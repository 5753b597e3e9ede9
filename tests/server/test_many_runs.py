"""A thousand live runs over fifty GPUs: all are done, each where it belongs, one at a time on a GPU."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import AttemptState, CampaignState, RunState, Submission, Submitted
from assay_core.records.failure import Failure
from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_server.campaigns.scheduling.attempt_results import FinishOutcome, SegmentOutcome
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.campaigns.submit import submit
from assay_server.store.model import Agent, Attempt, PublishedFile, Segment, SliceState
from assay_server.store.records import LocalRecordStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server.coordinators import coordinator_over
from tests.support.server.queued import waiting_slice

KINDS = ("V100", "RTX 2060", "RTX 3070", "A100", "H100")
WORKLOADS, SLOTS_EACH = 40, 10
CAMPAIGN = f"""\
campaign: many
synthetic: true
gpus: [{", ".join(KINDS)}]
detailed: {{first: 900, slice_launches: 500, sets: features}}
conditions: [{{cache: all}}, {{sm_percent: 50}}]
workloads:
""" + "".join(f"  - {{name: w{i}, command: [w{i}.toml]}}\n" for i in range(WORKLOADS))

PROFILERS = ("nsight_compute", "nsight_systems")


class TickingClock:
    """Every look at it is a moment of its own, so that the store shows what came first."""

    def __init__(self) -> None:
        self._ticks = itertools.count(1)

    def now_ms(self) -> int:
        return next(self._ticks)


@contextmanager
def laboratory(state: Path, agents: list[Agent]) -> Iterator[Coordinator]:
    """A coordinator with a campaign of a thousand runs, and agents."""
    metadata = SqliteStore(state / "metadata.sqlite")
    policy = SchedulePolicy(lease_ms=10**9)
    coordinator = coordinator_over(metadata, LocalRecordStore(state), policy, TickingClock())
    assert submit(coordinator, Submission(CAMPAIGN, "c.yaml", "/data")) == Submitted("many-1", 1000)
    for agent in agents:
        with coordinator.schedule() as schedule:
            schedule.register(agent, {})
    yield coordinator
    metadata.close()


def virtual_agent(kind: str, slots: int = SLOTS_EACH, *, synthetic: bool = True) -> Agent:
    device = InstalledDevice(name=f"virtual {kind}" if synthetic else f"NVIDIA {kind}")
    made = tuple(Slot(f"{kind}-{i}", PROFILERS, synthetic, device) for i in range(slots))
    return Agent(kind, "session", kind, Inventory(), made, 0)


def play(coordinator: Coordinator, agent: Agent) -> int:
    """Every slot of an agent takes and ends one attempt after another, until there are no more."""
    done = 0
    busy = {slot.slot_id: None for slot in agent.slots}
    while busy:
        keys: list[AttemptKey] = []
        for slot_id in list(busy):
            with coordinator.schedule() as schedule:
                lease = schedule.lease(agent.agent_id, slot_id)
            if lease is None:
                del busy[slot_id]
            else:
                keys.append(lease.attempt.key)
        for key in keys:
            end(coordinator, key)
            done += 1
    return done


def end(coordinator: Coordinator, key: AttemptKey) -> None:
    segment = Segment(key.run_id, key.slice_index, key.attempt, 0, 0, 10, 0, 1, b"", b"h")
    with coordinator.schedule() as schedule:
        assert schedule.add_segments([segment], key) is SegmentOutcome.ADDED
        assert schedule.begin_publish(key, 1, 10, (), AttemptLog()) is FinishOutcome.PUBLISH
    with coordinator.schedule() as schedule:
        assert schedule.end_publish(key, PublishedFile(f"{key.run_id}/{key.slice_index}", 5, 10, "hash"))


def all_attempts(coordinator: Coordinator) -> list[Attempt]:
    with coordinator.snapshot() as store:
        return store.attempts_in(tuple(AttemptState))


def test_a_thousand_runs_over_fifty_gpus(tmp_path: Path) -> None:
    agents = [virtual_agent(kind) for kind in KINDS]
    with laboratory(tmp_path, agents) as coordinator:
        with ThreadPoolExecutor(len(agents)) as threads:
            done = list(threads.map(lambda agent: play(coordinator, agent), agents))
        attempts = all_attempts(coordinator)
        with coordinator.snapshot() as store:
            campaign, runs = store.campaign("many-1"), store.runs("many-1")
    # Five runs a workload and GPU, two of them in two slices.
    assert done == [WORKLOADS * 7] * len(KINDS)
    assert campaign is not None and campaign.state is CampaignState.ANALYSING
    assert {run.state for run in runs} == {RunState.DONE}
    assert Counter(a.state for a in attempts) == {AttemptState.PUBLISHED: WORKLOADS * 7 * len(KINDS)}
    kinds = {run.run_id: run.device_kind for run in runs}
    by_slot: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        assert attempt.slot_id.rpartition("-")[0] == kinds[attempt.key.run_id]
        by_slot.setdefault(attempt.slot_id, []).append(attempt)
    assert len(by_slot) == SLOTS_EACH * len(KINDS)
    for of_slot in by_slot.values():
        of_slot.sort(key=lambda attempt: attempt.leased_at_ms)
        assert all(a.leased_at_ms < a.ended_at_ms for a in of_slot)
        assert all(a.ended_at_ms < b.leased_at_ms for a, b in pairwise(of_slot))
    # Several slices of one run were made side by side, on equal GPUs.
    slots = {(a.key.run_id, a.key.slice_index): a.slot_id for a in attempts}
    both = [(slots[run_id, 0], slots[run_id, 1]) for run_id, index in slots if index == 1]
    assert len(both) == 400 and any(one != other for one, other in both)


def steps_of_a_lease(state: Path, workloads: int, slot: Slot) -> int:
    """Steps of the database (in hundreds) to find the last waiting run of a campaign, all others ended."""
    text = CAMPAIGN.partition("workloads:\n")[0] + "workloads:\n"
    text += "".join(f"  - {{name: w{i}, command: [w{i}.toml]}}\n" for i in range(workloads))
    metadata = SqliteStore(state / f"{workloads}.sqlite")
    coordinator = coordinator_over(metadata, LocalRecordStore(state), SchedulePolicy(), TickingClock())
    submit(coordinator, Submission(text, "c.yaml", "/data"))
    with metadata.transaction() as store:
        *others, last = [run for run in store.runs("many-1") if run.device_key == slot.device_key]
        for run in others:
            store.save_run(replace(run, state=RunState.DONE))
            for piece in store.slices(run.run_id):
                store.save_slice(replace(piece, state=SliceState.DONE))
    steps = itertools.count()
    with metadata.snapshot() as store:
        connection = store.connection.connection.driver_connection
        connection.set_progress_handler(lambda: next(steps) < 0, 100)
        found = waiting_slice(store, slot, 10**9)
        connection.set_progress_handler(None, 0)
    metadata.close()
    assert found is not None and found[0] == last
    return next(steps)


def test_a_lease_costs_no_more_in_a_campaign_of_ten_times_the_runs(tmp_path: Path) -> None:
    slot = virtual_agent("V100", 1).slots[0]
    small, large = (steps_of_a_lease(tmp_path, workloads, slot) for workloads in (20, 200))
    assert large <= 2 * small + 10, f"{small} and {large} hundred steps"


def test_an_attempt_that_ends_well_wakes_no_slot(tmp_path: Path) -> None:
    """Its own agent asks for more; the others would all ask in vain, for every attempt of the campaign."""
    agent = virtual_agent("V100", 2)
    with laboratory(tmp_path, [agent]) as coordinator:
        woken = []
        coordinator.listen(lambda effects: woken.append(effects.work))
        with coordinator.schedule() as schedule:
            lease = schedule.lease(agent.agent_id, "V100-0")
        assert lease is not None
        end(coordinator, lease.attempt.key)
        assert woken and not any(woken)
        with coordinator.schedule() as schedule:
            lease = schedule.lease(agent.agent_id, "V100-0")
        assert lease is not None
        with coordinator.schedule() as schedule:
            schedule.fail(lease.attempt.key, Failure("hang", "w", "no progress", "wait", True))
        assert woken[-1], "a slice waits again"


@pytest.mark.parametrize("wrong", ["another mark", "another GPU", "no profiler"])
def test_no_run_meets_a_slot_that_it_does_not_fit(tmp_path: Path, wrong: str) -> None:
    agent = {
        "another mark": virtual_agent("V100", synthetic=False),
        "another GPU": virtual_agent("RTX 3070 Ti"),
        "no profiler": Agent(
            "a",
            "session",
            "a",
            Inventory(),
            (Slot("s", ("recorded",), True, InstalledDevice(name="V100")),),
            0,
        ),
    }[wrong]
    with laboratory(tmp_path, [agent]) as coordinator:
        assert play(coordinator, agent) == 0
        assert all_attempts(coordinator) == []


def test_a_slot_that_is_asked_for_by_many_at_once_gets_one_attempt(tmp_path: Path) -> None:
    agent = virtual_agent("V100", 1)
    with laboratory(tmp_path, [agent]) as coordinator:
        start = threading.Barrier(8)

        def ask(_: int) -> AttemptKey | None:
            start.wait(timeout=60)
            with coordinator.schedule() as schedule:
                lease = schedule.lease(agent.agent_id, "V100-0")
            return lease and lease.attempt.key

        with ThreadPoolExecutor(8) as threads:
            keys = set(threads.map(ask, range(8)))
        [attempt] = all_attempts(coordinator)
        assert keys == {attempt.key}
