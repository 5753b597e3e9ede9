"""What is the fault of a box rests its slot, and costs no run a try."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import RunState, Submission
from assay_core.records.failure import Failure, failure
from assay_core.records.machine import Inventory, Slot
from assay_sampling.running.failures import FailureClass, Fault
from assay_server.campaigns.scheduling.resting import RestPolicy
from assay_server.campaigns.scheduling.retry import RetryPolicy
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.campaigns.submit import submit
from assay_server.store.model import Agent, PublishedFile, Run, Segment
from assay_server.store.records import LocalRecordStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server.coordinators import coordinator_over
from tests.support.server.server_support import HandClock
from tests.support.server.waiting import waiting_for

DISK_FULL = failure(FailureClass.DISK_FULL, "the spool", "no space is left")
PERMISSION = failure(FailureClass.PERMISSION, "the driver")
HANG = failure(FailureClass.HANG, "the workload")


class Lab:
    """A coordinator over real stores, with agents that do as they are told."""

    def __init__(self, folder: Path, runs: int) -> None:
        self.clock = HandClock()
        policy = SchedulePolicy(60_000, RetryPolicy(delay_ms=1000), RestPolicy())
        self.coordinator = coordinator_over(SqliteStore(None), LocalRecordStore(folder), policy, self.clock)
        recording = "recordings: [{device: V100, light: r.sqlite}]"
        workloads = "".join(f"  - {{name: w{i}, {recording}}}\n" for i in range(runs))
        submit(self.coordinator, Submission(f"campaign: c\nworkloads:\n{workloads}", "c.yaml", "/data"))

    def register(self, *names: str, session: str = "s") -> None:
        for name in names:
            agent = Agent(name, session, name, Inventory(), (Slot("0", ("recorded",)),), 0)
            with self.coordinator.schedule() as schedule:
                schedule.register(agent, {})
            self.coordinator.restarted(agent)

    def lease(self, name: str) -> AttemptKey | None:
        with self.coordinator.schedule() as schedule:
            lease = schedule.lease(name, "0")
        return None if lease is None else lease.attempt.key

    def must_lease(self, name: str) -> AttemptKey:
        key = self.lease(name)
        assert key is not None
        return key

    def fail(self, key: AttemptKey, why: Failure) -> None:
        with self.coordinator.schedule() as schedule:
            schedule.fail(key, why)

    def publish(self, key: AttemptKey) -> None:
        segment = Segment(key.run_id, key.slice_index, key.attempt, 0, 0, 10, 0, 1, b"", b"h")
        with self.coordinator.schedule() as schedule:
            schedule.add_segments([segment], key)
            schedule.begin_publish(key, 1, 10, (), AttemptLog())
            assert schedule.end_publish(key, PublishedFile(f"{key.run_id}.parquet", 5, 10, "hash"))

    def runs(self) -> list[Run]:
        with self.coordinator.snapshot() as read:
            return read.runs("c-1")

    def states(self) -> dict[str, int]:
        states = [str(run.state) for run in self.runs()]
        return {state: states.count(state) for state in set(states)}

    def waiting(self) -> set[str]:
        with self.coordinator.snapshot() as read:
            agents = read.agents()
        told = waiting_for(self.runs(), agents, self.clock.ms, self.coordinator.resting())
        return set(told.values())


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path, 3)
    lab.register("a", "b")
    yield lab


@pytest.mark.parametrize(
    ("failure_class", "runs"),
    [
        (c, 200 if c is FailureClass.DISK_FULL else 20)
        for c in FailureClass
        if c.fault is Fault.BOX and c is not FailureClass.GPU_LOST
    ],
)
def test_one_sick_box_beside_a_healthy_one_costs_two_hundred_runs_nothing(
    tmp_path: Path, failure_class: FailureClass, runs: int
) -> None:
    lab = Lab(tmp_path, runs)
    lab.register("sick", "healthy")
    tries = 0
    while (key := lab.lease("healthy")) is not None:
        # The sick one is faster, as it does nothing.
        for _ in range(4):
            if (sick := lab.lease("sick")) is not None:
                tries += 1
                lab.fail(sick, failure(failure_class, "the box"))
            lab.clock.ms += 250
        lab.publish(key)
    assert lab.states() == {"done": runs}
    assert tries == {20: 3, 200: 6}[runs], "so many fit where each rest takes twice as long"


def test_a_slot_rests_longer_after_each_failure_in_a_row_and_a_run_that_is_done_ends_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(tmp_path, 3)
    lab.register("a")
    for rest_ms in (5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 640_000, 900_000, 900_000):
        lab.fail(lab.must_lease("a"), DISK_FULL)
        lab.clock.ms += rest_ms - 1
        assert lab.lease("a") is None
        lab.clock.ms += 1
    lab.publish(lab.must_lease("a"))
    lab.fail(lab.must_lease("a"), DISK_FULL)
    [rest] = lab.coordinator.resting().values()
    assert (rest.agent_id, rest.failures, rest.until_ms - lab.clock.ms) == ("a", 1, 5_000)
    assert all(run.state in (RunState.WAITING, RunState.DONE) for run in lab.runs())
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert next(each for each in said if " rests for " in each) == (
        "slot 0 of agent a rests for 5 s (failures in a row: 1): no space is left [disk_full]; "
        f"{FailureClass.DISK_FULL.remedy}"
    )
    assert "slot 0 of agent a has done a run and no longer rests" in said


def test_the_run_goes_to_another_slot_at_once(two: Lab) -> None:
    key = two.must_lease("a")
    two.fail(key, DISK_FULL)
    again = two.must_lease("b")
    assert (again.run_id, again.attempt) == (key.run_id, 2)


def test_what_failed_in_a_slot_is_left_to_another_one_that_may_be_free_later(two: Lab) -> None:
    busy = two.must_lease("b")
    key = two.must_lease("a")
    two.fail(key, HANG)
    two.clock.ms += 2_000
    other = two.must_lease("a")
    assert other.run_id not in (key.run_id, busy.run_id), "it does something else meanwhile"
    two.publish(other)
    assert two.lease("a") is None
    two.publish(busy)
    assert two.must_lease("b").run_id == key.run_id


def test_a_slot_tries_again_itself_where_no_other_is_there_or_free_for_long(two: Lab) -> None:
    two.must_lease("b")
    key = two.must_lease("a")
    two.fail(key, HANG)
    two.publish(two.must_lease("a"))
    two.clock.ms += 600_001
    two.register("a", "b")
    assert two.must_lease("a").run_id == key.run_id


def test_where_every_slot_rests_the_campaign_waits_and_says_so(two: Lab) -> None:
    two.fail(two.must_lease("a"), DISK_FULL)
    assert two.waiting() == set()
    two.fail(two.must_lease("b"), DISK_FULL)
    assert two.waiting() == {
        "every slot for the playing of recordings rests, with a retry now and then: 0 of agent a (no "
        f"space is left [disk_full]; {FailureClass.DISK_FULL.remedy}); 0 of agent b (no space is left "
        f"[disk_full]; {FailureClass.DISK_FULL.remedy})"
    }
    assert two.states() == {"waiting": 3}
    two.clock.ms += 5_000
    assert two.waiting() == set()
    for name in ("a", "b", "a"):
        two.publish(two.must_lease(name))
    assert two.states() == {"done": 3}


def test_an_agent_that_was_started_again_is_given_a_run_at_once(two: Lab) -> None:
    for _ in range(5):
        two.clock.ms += 900_000
        two.fail(two.must_lease("a"), DISK_FULL)
    two.register("a")  # the same process announces something: no new start
    assert two.lease("a") is None
    two.register("a", session="s2")
    two.fail(two.must_lease("a"), DISK_FULL)
    [rest] = two.coordinator.resting().values()
    assert rest.failures == 6


def test_what_only_a_person_mends_fails_the_run_where_every_box_has_it(two: Lab) -> None:
    key = two.must_lease("a")
    two.fail(key, PERMISSION)
    assert two.states() == {"waiting": 3}
    again = two.must_lease("b")
    assert again.run_id == key.run_id
    two.fail(again, PERMISSION)
    run = two.runs()[0]
    assert (run.state, run.failure) == (RunState.FAILED, PERMISSION)
    two.fail(two.must_lease("b"), PERMISSION)
    two.fail(two.must_lease("b"), PERMISSION)
    assert two.states() == {"failed": 3}, "nobody waits for a box that cannot"


def test_a_workload_that_fills_every_disk_is_found_out(tmp_path: Path) -> None:
    lab = Lab(tmp_path, 12)
    names = ("a", "b", "c", "d")
    lab.register(*names)
    for name in names[:3]:
        filler = lab.must_lease(name)
        assert filler.run_id == "c-1.0000"
        lab.fail(filler, DISK_FULL)
        lab.clock.ms += 5_000
        other = lab.must_lease(name)
        assert other.run_id != "c-1.0000", "it is left to a box that has not failed it"
        lab.publish(other)
        lab.register(*names)
    last = lab.must_lease("d")
    assert last.run_id == "c-1.0000"
    lab.fail(last, DISK_FULL)
    run = lab.runs()[0]
    assert run.state is RunState.FAILED and run.failure is not None
    assert run.failure.cause == (
        "it failed like this on 4 slots that did other runs since; the last time: no space is left"
    )
    assert lab.coordinator.resting() == {}, "the last box is not to blame"


def test_one_slot_gives_the_other_runs_their_turn_before_it_tries_again_what_failed_in_it(
    tmp_path: Path,
) -> None:
    """The first run fills the disk each time: the others tell that the box is in order, and it fails."""
    lab = Lab(tmp_path, 12)
    lab.register("a")
    turns = 0
    while any(run.state in (RunState.WAITING, RunState.RUNNING) for run in lab.runs()) and turns < 60:
        turns += 1
        key = lab.lease("a")
        if key is None:
            lab.clock.ms += 5_000
        elif key.run_id == "c-1.0000":
            lab.fail(key, DISK_FULL)
        else:
            lab.publish(key)
    assert lab.states() == {"done": 11, "failed": 1}, f"after {turns} turns"
    why = lab.runs()[0].failure
    assert why is not None and "it failed like this on 1 slot that did other runs since" in why.cause
