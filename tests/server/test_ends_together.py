"""Ends of one transaction are those of transactions of their own, on every metadata store.

Where the store is a database server, what they ask for is read before; whatever it reads must not be older
than what the transaction itself has changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import CampaignState, RunState
from assay_core.records.failure import failure
from assay_core.records.lease import LeaseRequest
from assay_core.records.work import CommandSource
from assay_sampling.errors import StorageError
from assay_sampling.running.failures import FailureClass
from assay_server.campaign_file.compiled import AnalysisSettings, CompiledCampaign, SchedulingRules
from assay_server.campaigns.heartbeats import Heartbeats
from assay_server.campaigns.ingest.publish import Publisher
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.rpc.handlers.agents import AgentHandler
from assay_server.store.model import Campaign, Hold, OpenEnds, PublishedFile, Run, Segment, Slice, SliceState
from assay_server.store.records import LocalRecordStore
from assay_server.store.sql import MetadataStore, SqlTransaction
from tests.bench.leases import made_agent, submit
from tests.support.server.coordinators import coordinator_over
from tests.support.server.metadata_stores import METADATA_STORES
from tests.support.server.server_support import HandClock
from tests.support.server.stored_values import attempt, campaign, run

AGENTS = 6
MakeStore = Callable[[], MetadataStore]


@pytest.fixture(params=METADATA_STORES)
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    made: list[MetadataStore] = []

    def make() -> MetadataStore:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(METADATA_STORES[request.param](folder))
        return made[-1]

    yield make
    for store in made:
        store.close()


class Lab:
    """Six agents with a slot each, two campaigns, and what became of their attempts."""

    def __init__(self, store: MetadataStore, folder: Path) -> None:
        policy = SchedulePolicy()
        self.coordinator = coordinator_over(store, LocalRecordStore(folder), policy, HandClock())
        self.analyse: set[str] = set()
        self.coordinator.listen(lambda effects: self.analyse.update(effects.analyse))
        heartbeats = Heartbeats(self.coordinator)
        self._heartbeats = heartbeats
        self._handler = AgentHandler(self.coordinator, Publisher(self.coordinator), heartbeats, 5_000)
        self.held: dict[int, AttemptKey] = {}
        for number in range(AGENTS):
            with self.coordinator.schedule() as schedule:
                schedule.register(made_agent(number), {})

    def close(self) -> None:
        self._heartbeats.close()

    def lease(self, agents: Sequence[int]) -> list[tuple[str, int, int] | None]:
        """What free slots get: run, slice and the attempt's number."""
        free = [agent for agent in agents if agent not in self.held]
        told = [self._handler.lease(LeaseRequest(f"agent-{each}", "session", f"GPU-{each}")) for each in free]
        found = []
        for agent, answer in zip(free, told, strict=True):
            work = answer.work
            found.append(None if work is None else (work.key.run_id, work.key.slice_index, work.key.attempt))
            if work is not None:
                self.held[agent] = work.key
        tokens = [answer.work.key.token for answer in told if answer.work is not None]
        assert tokens == sorted(set(tokens))
        return found

    def fail(self, agent: int) -> None:
        key = self.held.pop(agent)
        with self.coordinator.schedule() as schedule:
            schedule.fail(key, failure(FailureClass.HANG, "w", "it hangs", "look", retryable=True))

    def finish(self, agents: Sequence[int], together: bool) -> None:
        keys = [self.held.pop(agent) for agent in dict.fromkeys(agents) if agent in self.held]
        for key in keys:
            with self.coordinator.schedule() as schedule:
                part = Segment(key.run_id, key.slice_index, key.attempt, 0, 0, 10, 0, 1, b"", b"h")
                schedule.add_segments([part], key)
                schedule.begin_publish(key, 1, 10, (), AttemptLog())
        for group in [keys] if together else [[key] for key in keys]:
            with self.coordinator.schedule() as schedule:
                for key in group:
                    assert schedule.end_publish(key, PublishedFile(f"{key}", 5, 10, "hash"))

    def states(self) -> list[object]:
        with self.coordinator.snapshot() as store:
            ids = [each.campaign_id for each in store.campaigns()]
            runs = [(each.run_id, each.state) for one in ids for each in store.runs(one)]
            slices = [piece for run_id, _ in runs for piece in store.slices(run_id)]
            courses = [(one, found.state) for one in ids if (found := store.campaign(one)) is not None]
            return [runs, slices, courses, sorted(self.analyse)]


def sliced(coordinator: Coordinator) -> None:
    """A campaign whose workload "second" waits for its workload "first", a run of which has three slices."""
    rules = SchedulingRules(priority=1, after={"second": ("first",)})
    compiled = CompiledCampaign(AnalysisSettings(0, (("pks", {}),), None, 1 << 30), scheduling=rules)
    made = Campaign("sliced-1", "sliced", 1, False, CampaignState.RUNNING, "", "c.yaml", "/", compiled, 0)
    workloads = [("first", ()), ("first", ()), ("second", (Hold.AFTER,))]
    runs = [
        Run(
            run_id=f"sliced-1.{number}",
            ordinal=number,
            campaign_id="sliced-1",
            workload=workload,
            device_kind="V100",
            device_key="v100",
            level="detailed",
            profiler="nsight_systems",
            command=CommandSource(("./a.out",)),
            holds=holds,
        )
        for number, (workload, holds) in enumerate(workloads)
    ]
    pieces = [Slice("sliced-1.0", index, 10 * index, 10) for index in range(3)]
    with coordinator.schedule() as schedule:
        schedule.add_campaign(made, runs, [*pieces, Slice("sliced-1.1", 0), Slice("sliced-1.2", 0)])


def played(lab: Lab, steps: Sequence[tuple[str, list[int]]], together: bool) -> list[object]:
    """What each step came to."""
    submit(lab.coordinator, "plain-1", 5)
    sliced(lab.coordinator)
    told: list[object] = []
    for step, agents in steps:
        if step == "lease":
            told.append(lab.lease(agents))
        elif step == "fail":
            told.extend(lab.fail(agent) for agent in agents[:1] if agent in lab.held)
        else:
            lab.finish(agents, together)
        told.append(lab.states())
    lab.close()
    return told


AGENT_LISTS = st.lists(st.integers(0, AGENTS - 1), min_size=1, max_size=AGENTS, unique=True)
STEPS = st.lists(
    st.tuples(st.sampled_from(["lease", "lease", "finish", "finish", "fail"]), AGENT_LISTS), max_size=12
)
ALL = list(range(AGENTS))
TO_THE_END = [("lease", ALL), ("finish", ALL)] * 4


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=STEPS)
@example(steps=TO_THE_END)
@example(steps=[("lease", ALL), ("fail", [0]), ("lease", [0, 1]), *TO_THE_END])
@example(steps=[("lease", ALL), ("finish", [0, 1]), ("finish", [4, 3, 2]), ("lease", [5, 4, 3, 2, 1, 0])])
def test_together_or_one_by_one_comes_to_the_same(
    make_store: MakeStore, tmp_path: Path, steps: list[tuple[str, list[int]]]
) -> None:
    found = [played(Lab(make_store(), tmp_path), steps, together) for together in (True, False)]
    assert found[0] == found[1]


def test_all_of_both_campaigns_is_done_in_the_end(make_store: MakeStore, tmp_path: Path) -> None:
    *_, (_, _, courses, analyse) = played(Lab(make_store(), tmp_path), TO_THE_END, True)
    assert courses == [("plain-1", CampaignState.ANALYSING), ("sliced-1", CampaignState.ANALYSING)]
    assert analyse == ["plain-1", "sliced-1"]


def test_whoever_breaks_a_rule_at_its_end_fails_alone(make_store: MakeStore) -> None:
    store, second = make_store(), threading.Event()
    with store.transaction() as write:
        write.add_campaign(campaign(), [run(0), run(1)], [Slice(run(0).run_id, 0), Slice(run(1).run_id, 0)])
        write.add_attempt(attempt(1, agent_id="one", slot_id="a"))

    def writes_too() -> None:
        second.set()
        with store.transaction() as write:
            assert len(write.attempts(run(0).run_id)) == 1
            write.add_attempt(attempt(3, ordinal=1, agent_id="two", slot_id="b"))

    thread = threading.Thread(target=writes_too)
    with pytest.raises(StorageError), store.transaction() as write:
        thread.start()
        assert second.wait(10)
        time.sleep(0.1)  # it waits for its turn, in all likelihood
        write.add_attempt(attempt(2, 2, agent_id="three", slot_id="c"))  # a second lease of a slice
    thread.join()
    with store.snapshot() as read:
        assert [each.agent_id for each in read.attempts(run(0).run_id)] == ["one"]
        assert [each.agent_id for each in read.attempts(run(1).run_id)] == ["two"]


def planned(store: MetadataStore, runs: int) -> list[Run]:
    """Waiting runs of one slice, all in one lane."""
    made = [run(number) for number in range(runs)]
    with store.transaction() as write:
        write.add_campaign(campaign(), made, [Slice(each.run_id, 0) for each in made])
    return made


def lanes_of(store: SqlTransaction) -> tuple[int, ...]:
    return tuple(lane.lane_id for entrant in store.entrants() for lane in entrant.lanes)


def test_what_waits_follows_what_is_written(make_store: MakeStore) -> None:
    store = make_store()
    first, second, third, _ = planned(store, 4)
    with store.transaction() as write:
        lanes = lanes_of(write)
        assert write.first_waiting(lanes, 10) == (first, Slice(first.run_id, 0))
        # Passed over, given away, ended, and waiting again.
        assert write.first_waiting(lanes, 10, [(first.run_id, 0)]) == (second, Slice(second.run_id, 0))
        write.save_slice(Slice(first.run_id, 0, state=SliceState.LEASED))
        assert write.first_waiting(lanes, 10) == (second, Slice(second.run_id, 0))
        write.save_run(replace(second, state=RunState.CANCELLED))
        assert write.first_waiting(lanes, 10) == (third, Slice(third.run_id, 0))
        write.save_slice(again := Slice(first.run_id, 0, not_before_ms=5))
        assert write.first_waiting(lanes, 10) == (first, again)
        write.set_holds([first.run_id], {Hold.PAUSED})
        assert write.first_waiting(lanes, 10) == (third, Slice(third.run_id, 0))
        assert write.is_running(first.campaign_id)
        write.save_campaign(replace(campaign(), paused=True))
        assert not write.is_running(first.campaign_id)


def test_what_is_open_follows_what_is_written(make_store: MakeStore) -> None:
    store = make_store()
    runs = planned(store, 3)
    with store.transaction() as write:
        write.add_attempt(attempt(1))
    with store.transaction() as write:
        assert write.states_beside(runs[0].run_id, 0) == frozenset()
        assert write.open_ends("made-1") == OpenEnds(True, False, False)
        for each in runs:
            write.save_run(replace(each, state=RunState.DONE))
        assert write.open_ends("made-1") == OpenEnds(False, False, False)
        write.save_run(replace(runs[1], state=RunState.RUNNING))
        assert write.open_ends("made-1") == OpenEnds(True, False, False)
        write.set_holds([runs[2].run_id], {Hold.AFTER})
        assert write.open_ends("made-1") == OpenEnds(True, False, True)
        write.replace_slices(runs[0].run_id, 1, [Slice(runs[0].run_id, 1)])
        assert write.states_beside(runs[0].run_id, 0) == frozenset({SliceState.WAITING})


def test_the_run_of_a_waiting_slice_is_as_it_was_written(make_store: MakeStore) -> None:
    store, one = make_store(), run(0)
    with store.transaction() as write:
        write.add_campaign(campaign(), [one], [Slice(one.run_id, 0), Slice(one.run_id, 1)])
    with store.transaction() as write:
        lanes = lanes_of(write)
        write.save_slice(Slice(one.run_id, 0, state=SliceState.LEASED))
        write.save_run(replace(one, state=RunState.RUNNING))
        found = write.first_waiting(lanes, 10)
        assert found is not None and found[0].state is RunState.RUNNING


def test_what_statements_change_is_read_again(make_store: MakeStore) -> None:
    """Records that a transaction has read, and then changes by a statement about many."""
    store = make_store()
    one, two = planned(store, 2)
    with store.transaction() as write:
        assert write.run(one.run_id) == one and write.slice(one.run_id, 0) is not None
        write.cancel_runs([one.run_id])
        cancelled, piece = write.run(one.run_id), write.slice(one.run_id, 0)
        assert cancelled is not None and cancelled.state is RunState.CANCELLED
        assert piece is not None and piece.state is SliceState.CANCELLED
        assert write.run(two.run_id) == two
        write.delete_runs([two.run_id])
        assert write.run(two.run_id) is None and write.slice(two.run_id, 0) is None
