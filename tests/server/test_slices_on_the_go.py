"""Slices while a run goes on: cut anew by what they cost, ended by what they bring, shared by equal GPUs.

A lab of pretended GPUs makes the slices that a real scheduler gives it, on a clock of its own: a slice takes
what a known cost says. No tool runs, so nothing here depends on the machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from assay_core.records.attempt import AttemptLog
from assay_core.records.campaign import AttemptState, CampaignState, RunState
from assay_core.records.failure import Failure
from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_server.campaign_file.compiled import SlicePlan, Slicing
from assay_server.campaign_file.reading import compile_campaign
from assay_server.campaign_file.slices import SliceCost
from assay_server.campaigns.planning.plan import plan_campaign
from assay_server.campaigns.scheduling.attempt_results import FinishOutcome, SegmentOutcome
from assay_server.campaigns.scheduling.leases import Lease
from assay_server.campaigns.scheduling.queue import Queue
from assay_server.campaigns.scheduling.resting import RestingSlots
from assay_server.campaigns.scheduling.schedule import Schedule
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.campaigns.slicing.by_light import LightTimes, chosen_slices
from assay_server.campaigns.slicing.published import RECENT_SLICES, LaunchKinds, SliceCosts
from assay_server.store.model import Agent, Campaign, PublishedFile, Run, Segment, Slice, SliceState
from assay_server.store.sqlite import SqliteStore
from tests.support.server.campaign_files import load_campaign
from tests.support.server.cancelling import cancel

TEXT = """\
campaign: lab
gpus: [V100]
detailed: {detailed}
workloads: [{{name: w, command: [train]}}]
"""


def of_features(detailed: str) -> str:
    """The settings, with one detailed run alone."""
    return f"{detailed[:-1]}, sets: features}}"


# What the forecast assumes is far from this: a launch costs 2 ms, skipping one 0.1 ms, starting 1 s.
COST = SliceCost(1.0, 0.0001, 0.002)


class Kinds(LaunchKinds):
    """The kinds of launches of a workload of which ``kind_of`` gives those of an array of ordinals."""

    def __init__(self, kind_of: Callable[[np.ndarray], np.ndarray]) -> None:
        # Not the parent's: no files are read.
        self._kind_of = kind_of

    def of(self, piece: Slice) -> np.ndarray:
        return np.unique(self._kind_of(np.arange(piece.launch_skip, piece.launch_skip + piece.launches)))


@dataclass
class Lab:
    """A scheduler, and GPUs that make what it gives them; ``seconds`` of work by GPU."""

    gpus: int = 1
    launches: int = 1 << 40
    cost: SliceCost = COST
    kind_of: Callable[[np.ndarray], np.ndarray] = lambda ordinals: ordinals
    store: SqliteStore = field(default_factory=lambda: SqliteStore(None))
    seconds: dict[str, float] = field(default_factory=dict)
    now_s: float = 0.0
    campaigns: int = 0
    # With light runs, and what is chosen from them; without, as in campaigns of earlier releases.
    with_light: bool = False
    plan: SlicePlan | None = None

    def __post_init__(self) -> None:
        profilers = ("nsight_compute", "nsight_systems") if self.with_light else ("nsight_compute",)
        slots = [Slot(f"gpu-{n}", profilers, False, InstalledDevice(name="V100")) for n in range(self.gpus)]
        others = Slot("other", ("nsight_compute",), False, InstalledDevice(name="A100"))
        with self.schedule() as schedule:
            schedule.register(Agent("a", "s", "box", Inventory(), (*slots, others), 0), {})

    @contextmanager
    def schedule(self) -> Iterator[Schedule]:
        with self.store.transaction() as transaction:
            yield Schedule(
                transaction, SchedulePolicy(), 1000 + int(self.now_s * 1000), RestingSlots(), Queue()
            )

    def submit(self, detailed: str) -> str:
        self.campaigns += 1
        name, text = f"lab-{self.campaigns}", TEXT.format(detailed=of_features(detailed))
        spec = load_campaign(text, "c.yaml")
        with self.schedule() as schedule:
            costs = SliceCosts(schedule.store.slice_times(RECENT_SLICES))
            plan = plan_campaign(spec, name, "/base", "c.yaml", costs)
            compiled = compile_campaign(spec)
            campaign = Campaign(
                name,
                "lab",
                self.campaigns,
                False,
                CampaignState.RUNNING,
                text,
                "c.yaml",
                "/base",
                compiled,
                0,
            )
            schedule.add_campaign(campaign, plan.runs, plan.slices)
            if not self.with_light:
                [light] = [run for run in plan.runs if run.level == "light"]
                schedule.start_detailed(light, None)
        return f"{name}.0000"

    def work(self, run_id: str, most: int = 10_000) -> list[Slice]:
        """Give every GPU work until there is none, or ``most`` slices are made; the slices of the run."""
        idle = [f"gpu-{n}" for n in range(self.gpus)]
        busy: list[tuple[float, str, Lease]] = []
        for _ in range(most):
            for gpu in sorted(idle):
                with self.schedule() as schedule:
                    lease = schedule.lease("a", gpu)
                if lease is not None:
                    idle.remove(gpu)
                    heapq.heappush(busy, (self.now_s + self.take(gpu, lease), gpu, lease))
            if not busy:
                break
            self.now_s, gpu, lease = heapq.heappop(busy)
            idle.append(gpu)
            self.publish(lease)
        return self.slices(run_id)

    def made(self, piece: Slice) -> int:
        return max(0, min(piece.launch_count or self.launches, self.launches - piece.launch_skip))

    def take(self, gpu: str, lease: Lease) -> float:
        piece = lease.slice
        seconds = self.cost.seconds(min(piece.launch_skip, self.launches), self.made(piece))
        self.seconds[gpu] = self.seconds.get(gpu, 0.0) + seconds
        return seconds

    def publish(self, lease: Lease) -> None:
        key, launches = lease.attempt.key, self.made(lease.slice)
        skipped = min(lease.slice.launch_skip, self.launches)
        log = AttemptLog(wall_seconds=self.cost.seconds(skipped, launches))
        with self.schedule() as schedule:
            if launches:
                segment = Segment(key.run_id, key.slice_index, key.attempt, 0, 0, launches, 0, 1, b"", b"h")
                assert schedule.add_segments([segment], key) is SegmentOutcome.ADDED
            outcome = schedule.begin_publish(key, int(launches > 0), launches, (), log)
            assert outcome is FinishOutcome.PUBLISH
            file = PublishedFile("x" if launches else "", 1, launches, f"{key}")
            assert schedule.end_publish(key, file, Kinds(self.kind_of), self.plan)

    def slices(self, run_id: str) -> list[Slice]:
        with self.store.snapshot() as read:
            return read.slices(run_id)

    def run(self, run_id: str) -> Run:
        with self.store.snapshot() as read:
            found = read.run(run_id)
        assert found is not None
        return found


def windows(slices: list[Slice]) -> list[tuple[int, int]]:
    return [(piece.launch_skip, piece.launch_count) for piece in slices]


def skipped(lab: Lab, slices: list[Slice]) -> float:
    return max(lab.cost.skipped_percent(piece.launch_skip, piece.launches) for piece in slices)


def test_the_rest_is_cut_anew_as_soon_as_slices_show_what_they_cost() -> None:
    lab = Lab(cost=SliceCost(0.1, 0.001, 0.002))
    run_id = lab.submit("{first: 100000}")
    before = windows(lab.slices(run_id))
    # The forecast thinks profiling 60 times as dear as skipping; here it is twice.
    assert before[:2] == [(0, 500), (500, 500)] and len(before) > 50
    slices = lab.work(run_id)
    assert sum(piece.launches for piece in slices) == 100_000
    assert [skip for skip, _ in windows(slices)] == [0, *(a + n for a, n in windows(slices)[:-1])]
    assert skipped(lab, slices[2:]) < 20.0
    assert len(slices) < 12
    assert lab.run(run_id).state is RunState.DONE
    assert lab.run(run_id).flags == ()
    # The next campaign knows from the beginning, and no cut is changed any more.
    again = lab.submit("{first: 100000}")
    planned = windows(lab.slices(again))
    assert skipped(lab, [Slice("", 0, a, n, launches=n) for a, n in planned]) < 20.0
    assert windows(lab.work(again)) == planned


def test_slices_that_the_file_gives_are_never_changed() -> None:
    lab = Lab(cost=SliceCost(0.0, 1.0, 0.002), launches=900)
    run_id = lab.submit("{first: 2000, slice_launches: 400}")
    slices = lab.work(run_id)
    assert [piece.launches for piece in slices] == [400, 400, 100, 0, 0]
    assert lab.run(run_id).state is RunState.DONE


def test_nothing_is_run_behind_the_end_of_the_workload() -> None:
    lab = Lab(launches=1200)
    run_id = lab.submit("{first: 100000}")
    assert [piece.launches for piece in lab.work(run_id)] == [500, 500, 200]
    assert lab.run(run_id).state is RunState.DONE


def test_an_open_run_ends_when_slices_bring_no_new_kind_of_launch() -> None:
    # New kinds until launch 1,750, of which slices of 500 see the last in the fourth.
    lab = Lab(launches=20_000, kind_of=lambda ordinals: np.minimum(ordinals // 50, 35))
    run_id = lab.submit("{first: auto, slice_launches: 500}")
    assert windows(lab.slices(run_id)) == [(0, 500), (500, 500)]
    slices = lab.work(run_id)
    assert [piece.launches for piece in slices] == [500] * 6
    run = lab.run(run_id)
    assert run.state is RunState.DONE
    assert [(flag.name, flag.detail, flag.invalidates) for flag in run.flags] == [
        (
            "window_cut",
            "the window ends after 3,000 launches: the last 1,000 brought no new kind",
            False,
        )
    ]


def test_an_open_run_whose_launches_always_differ_ends_with_the_workload() -> None:
    lab = Lab(launches=7300)
    run_id = lab.submit("{first: auto}")
    slices = lab.work(run_id)
    assert sum(piece.launches for piece in slices) == 7300
    assert (lab.run(run_id).state, lab.run(run_id).flags) == (RunState.DONE, ())


def test_an_open_run_keeps_every_equal_gpu_busy() -> None:
    lab = Lab(gpus=5, launches=50_000)
    run_id = lab.submit("{first: auto, slice_launches: 500}")
    lab.work(run_id)
    assert len(lab.seconds) == 5
    assert max(lab.seconds.values()) < 0.25 * sum(lab.seconds.values())


@pytest.mark.parametrize(
    "detailed", ["{first: 100000, TIME}", "{first: auto, TIME}", "{first: 9000, slice_launches: 500, TIME}"]
)
def test_a_run_ends_with_its_time_budget(detailed: str) -> None:
    lab = Lab()
    run_id = lab.submit(detailed.replace("TIME", "time_budget_s: 20"))
    slices = lab.work(run_id)
    # Slices of 500 take 2, 2.05, 2.1 ... seconds: nine of them 19.8, and a tenth would end after 22.3.
    assert [piece.launches for piece in slices] == [500] * 9
    assert sum(lab.seconds.values()) == pytest.approx(19.8)
    [flag] = lab.run(run_id).flags
    assert flag.name == "window_cut"
    assert flag.detail == (
        "the window ends after 4,500 launches: another slice would exceed the time budget of 20 s"
    )
    assert lab.run(run_id).state is RunState.DONE


def test_a_budget_too_small_for_two_slices_still_gives_one() -> None:
    lab = Lab()
    run_id = lab.submit("{first: 100000, time_budget_s: 0.5}")
    assert [piece.launches for piece in lab.work(run_id)] == [500]


@pytest.mark.parametrize("detailed", ["{first: 100000}", "{first: 100000, slice_launches: 5000}"])
def test_two_equal_gpus_share_a_run_and_need_at_most_0_6_of_the_time_of_one(detailed: str) -> None:
    alone, together = Lab(), Lab(gpus=2)
    one, both = alone.submit(detailed), together.submit(detailed)
    first, second = alone.work(one), together.work(both)
    assert sum(piece.launches for piece in first) == sum(piece.launches for piece in second) == 100_000
    busiest, needed = max(together.seconds.values()), alone.seconds["gpu-0"]
    print(f"{detailed}: {needed:.1f} s on one GPU, {busiest:.1f} s on two, ratio {busiest / needed:.3f}")
    assert len(together.seconds) == 2
    assert busiest <= 0.6 * needed
    assert together.now_s == pytest.approx(busiest)


def test_what_was_begun_is_never_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(gpus=3, cost=SliceCost(0.1, 0.001, 0.002))
    run_id = lab.submit("{first: 100000}")
    begun: dict[int, tuple[int, int]] = {}
    publish = lab.publish

    def watched(lease: Lease) -> None:
        publish(lease)
        now = {piece.index: (piece.launch_skip, piece.launch_count) for piece in lab.slices(run_id)}
        assert all(now[index] == window for index, window in begun.items())

    take = lab.take
    monkeypatch.setattr(lab, "publish", watched)
    monkeypatch.setattr(
        lab,
        "take",
        lambda gpu, lease: (
            begun.update({lease.slice.index: (lease.slice.launch_skip, lease.slice.launch_count)})
            or take(gpu, lease)
        ),
    )
    assert sum(piece.launches for piece in lab.work(run_id)) == 100_000


def test_another_workload_teaches_nothing() -> None:
    lab = Lab(cost=SliceCost(0.1, 0.001, 0.002))
    lab.work(lab.submit("{first: 2000}"))
    other = TEXT.format(detailed="{first: 2000, sets: features}").replace("[train]", "[train, --other]")
    with lab.store.snapshot() as read:
        costs = SliceCosts(read.slice_times(RECENT_SLICES))
        runs = [plan_campaign(load_campaign(text, "c"), "x-1", "/base", "c").runs[0] for text in
                (other, TEXT.format(detailed="{sets: features}"))]  # fmt: skip
        assert costs.of(runs[0]) == SliceCosts().of(runs[0])
        known = costs.of(runs[1])
    assert known.launch_seconds == pytest.approx(0.002, rel=0.1)


@pytest.mark.parametrize(
    "detailed",
    ["{first: 2000, slice_launches: 400}", "{first: auto, slice_launches: 500}", "{first: 100000}"],
)
def test_a_slice_whose_file_is_lost_is_made_again_and_no_other_is_changed(detailed: str) -> None:
    lab = Lab(launches=3000, kind_of=lambda ordinals: np.minimum(ordinals, 700))
    run_id = lab.submit(detailed)
    before, flags = lab.work(run_id), lab.run(run_id).flags
    lost = before[1]
    why = Failure("records_changed", run_id, "its file is missing", "check the disk", True)
    with lab.schedule() as schedule:
        schedule.lose_record(lost, why)
        schedule.lose_record(lost, why)  # two analyses may tell the same
    assert lab.run(run_id).state is RunState.RUNNING
    assert [p.state for p in lab.slices(run_id)].count(SliceState.WAITING) == 1
    lab.now_s += 3600
    again = lab.work(run_id)
    assert [(windows([p]), p.state, p.launches) for p in again] == [
        (windows([p]), p.state, p.launches) for p in before
    ]
    assert (lab.run(run_id).state, lab.run(run_id).flags) == (RunState.DONE, flags)
    with lab.store.snapshot() as store:
        assert [a.state for a in store.attempts(run_id, 1)] == [AttemptState.FAILED, AttemptState.PUBLISHED]


AUTO = "{first: auto, slice_launches: 100, unseen_percent: 0}"


def planned(ordinals: np.ndarray, budget_s: float = 0.0) -> SlicePlan:
    """The plan from a light run with these signatures, all of equal time."""
    signatures = np.unique(ordinals, return_inverse=True)[1]
    light = LightTimes("lab-1.0001", signatures, np.full(len(ordinals), 10))
    return chosen_slices(light, Slicing(0, 100, budget_s, 0.0), [COST])


def late_kernels() -> SlicePlan:
    return planned(np.repeat([0, 1, 2], [700, 200, 100]))


def test_detailed_runs_wait_for_their_light_run_and_then_measure_its_slices() -> None:
    lab = Lab(launches=1_000, with_light=True, plan=late_kernels())
    run_id = lab.submit(AUTO)
    assert lab.slices(run_id) == []
    with lab.schedule() as schedule:
        lease = schedule.lease("a", "gpu-0")
        assert lease is not None and lease.slice.run_id == "lab-1.0001", "the light run comes first"
    lab.publish(lease)
    assert windows(lab.slices(run_id)) == [(601, 100), (801, 100)]
    done = lab.work(run_id)
    assert [piece.launches for piece in done] == [100, 100]
    run = lab.run(run_id)
    assert (run.state, run.flags, run.plan) == (RunState.DONE, (), lab.plan)


def test_the_plan_is_stored_with_the_light_run_and_outlives_the_server(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    lab = Lab(launches=1_000, with_light=True, plan=late_kernels(), store=SqliteStore(path))
    run_id = lab.submit(AUTO)
    lab.work(run_id, most=2)  # the light run and the first slice
    before, plan = lab.slices(run_id), lab.run(run_id).plan
    assert [piece.state for piece in before] == [SliceState.DONE, SliceState.WAITING]
    lab.store.close()
    again = Lab(launches=1_000, with_light=True, plan=None, store=SqliteStore(path))
    assert (again.slices(run_id), again.run(run_id).plan) == (before, plan)
    assert windows(again.work(run_id)) == windows(before)
    assert again.run(run_id).state is RunState.DONE


def test_a_slice_that_its_workload_does_not_fill_ends_no_planned_run() -> None:
    lab = Lab(launches=880, with_light=True, plan=planned(np.repeat([0, 1, 2, 3], [700, 200, 50, 50])))
    run_id = lab.submit(AUTO)
    lab.work(run_id)
    assert [piece.launches for piece in lab.slices(run_id)] == [
        min(100, max(0, 880 - piece.launch_skip)) for piece in lab.slices(run_id)
    ]
    assert lab.run(run_id).state is RunState.DONE


def test_a_planned_run_goes_on_although_its_slices_bring_no_new_kind() -> None:
    # Operators and shapes make signatures of launches that are of one kind by kernel, grid and block.
    plan = planned(np.arange(1_000))
    lab = Lab(launches=1_000, with_light=True, plan=plan, kind_of=lambda ordinals: ordinals * 0)
    run_id = lab.submit(AUTO)
    assert [piece.launches for piece in lab.work(run_id)] == [100] * 10
    assert lab.run(run_id).flags == ()


def test_without_a_light_run_the_slices_begin_at_the_first_launch() -> None:
    lab = Lab(launches=1_000, with_light=True, kind_of=lambda ordinals: ordinals // 500)
    run_id = lab.submit(AUTO)
    with lab.schedule() as schedule:
        lease = schedule.lease("a", "gpu-0")
        assert lease is not None
        schedule.fail(lease.attempt.key, Failure("input_unreadable", "l", "no", "no", retryable=False))
    assert lab.run("lab-1.0001").state is RunState.FAILED
    assert windows(lab.slices(run_id)) == [(0, 100), (100, 100)]
    lab.work(run_id)
    run = lab.run(run_id)
    assert (run.state, run.plan) == (RunState.DONE, None)
    assert run.flags[0].detail == "the window ends after 300 launches: the last 200 brought no new kind"


def test_a_planned_run_ends_with_its_time_budget() -> None:
    lab = Lab(launches=10_000, with_light=True, plan=planned(np.arange(10_000)[:1_000]))
    run_id = lab.submit("{first: auto, slice_launches: 100, unseen_percent: 0, time_budget_s: 5}")
    # By COST a slice takes 1.2 s and more: four of the ten fit.
    lab.work(run_id)
    [flag] = lab.run(run_id).flags
    assert flag.name == "window_cut"
    assert flag.detail == (
        "4 of the 10 slices were measured: another slice would exceed the time budget of 5 s"
    )
    assert len(lab.slices(run_id)) == 4


def test_a_plan_that_its_budget_ends_says_so_from_the_beginning() -> None:
    lab = Lab(launches=1_000, with_light=True, plan=planned(np.arange(1_000), budget_s=5.0))
    run_id = lab.submit("{first: auto, slice_launches: 100, unseen_percent: 0, time_budget_s: 5}")
    lab.work(run_id)
    [flag] = lab.run(run_id).flags
    assert flag.detail == (
        "60.00 % of the light time stays unseen, more than 0 %: "
        "another slice would exceed the time budget of 5 s"
    )


def test_a_run_that_waits_for_its_light_run_ends_with_its_campaign() -> None:
    lab = Lab(with_light=True)
    run_id = lab.submit(AUTO)
    with lab.schedule() as schedule:
        cancel(schedule, "lab-1")
    assert lab.run(run_id).state is RunState.CANCELLED
