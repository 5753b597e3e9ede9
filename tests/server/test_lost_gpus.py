"""A run that lost its GPU goes to another one, its tries kept; a workload that loses two gets no third."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import CampaignState, RunState
from assay_core.records.failure import Failure
from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_server.campaign_file.reading import compile_campaign
from assay_server.campaigns.planning.plan import plan_campaign
from assay_server.campaigns.scheduling.fitting_slots import AWAY_AFTER_MS
from assay_server.campaigns.scheduling.schedule import Schedule
from assay_server.campaigns.scheduling.transitions import Effects
from assay_server.store.model import Agent, Campaign, Run
from assay_server.store.sqlite import SqliteStore
from tests.support.server.campaign_files import load_campaign
from tests.support.server.desk import HANG, Desk
from tests.support.server.server_support import HandClock
from tests.support.server.waiting import waiting_for

TEXT = """\
campaign: live
gpus: [V100, A100]
detailed: {first: 20, slice_launches: 10, sets: features}
workloads:
  - name: killer
    command: [killer]
  - name: harmless
    command: [harmless]
"""
LOST = Failure("gpu_lost", "the attempt", "XID 79", "reset it", True)
PROFILERS = ("nsight_compute", "nsight_systems")


def slot(gpu: str, reason: str = "") -> Slot:
    return Slot(f"GPU-{gpu}", PROFILERS, False, InstalledDevice(name=gpu.partition("-")[0]), reason)


class LiveDesk(Desk):
    """A lab with V100s 0 to 3 and an A100; of each workload a detailed run in two slices and a light run."""

    def __init__(self) -> None:
        self.clock, self.store, self.effects = HandClock(), SqliteStore(None), Effects()
        spec = load_campaign(TEXT, "campaign.yaml")
        plan = plan_campaign(spec, "live-1", "/data", "campaign.yaml")
        compiled = compile_campaign(spec)
        campaign = Campaign(
            "live-1", "live", 1, False, CampaignState.RUNNING, TEXT, "campaign.yaml", "/data", compiled, 0
        )
        self.do(lambda s: s.add_campaign(campaign, plan.runs, plan.slices))
        self.register_gpus()

    def register_gpus(self, **out: str) -> None:
        gpus = [
            slot(gpu, out.get(gpu.replace("-", "_"), "")) for gpu in ("V100-0", "V100-1", "V100-2", "A100-0")
        ]
        agent = Agent("a", "s", "box", Inventory(), tuple(gpus), 0)
        self.do(lambda s: s.register(agent, {}))

    def key(self, gpu: str) -> AttemptKey:
        lease = self.lease("a", f"GPU-{gpu}")
        assert lease is not None
        return lease.attempt.key

    def runs(self, workload: str) -> list[Run]:
        with self.store.snapshot() as read:
            return [run for run in read.runs("live-1") if run.workload == workload]


@pytest.fixture
def desk() -> Iterator[LiveDesk]:
    desk = LiveDesk()
    yield desk
    desk.store.close()


def test_a_lost_gpu_does_not_cost_a_try(desk: LiveDesk) -> None:
    first = desk.key("V100-0")
    desk.fail(first, LOST)
    # It waits for nothing, and all of its three tries are left.
    for number, gpu in enumerate(("V100-1", "V100-2", "V100-1"), 2):
        again = desk.key(gpu)
        assert (again.run_id, again.slice_index, again.attempt) == (first.run_id, first.slice_index, number)
        assert desk.runs("killer")[0].state is RunState.RUNNING
        desk.fail(again, HANG)
        desk.clock.ms += 10_000
    assert desk.runs("killer")[0].state is RunState.FAILED


def test_the_second_gpu_that_a_workload_loses_ends_all_of_its_runs_and_no_others(desk: LiveDesk) -> None:
    first, second, third = desk.key("V100-0"), desk.key("V100-1"), desk.key("V100-2")
    assert {first.slice_index, second.slice_index} == {0, 1}
    assert third.run_id != first.run_id  # the light run of the same workload
    desk.fail(first, LOST)
    assert all(run.state is not RunState.FAILED for run in desk.runs("killer"))
    desk.fail(second, LOST)
    killers = desk.runs("killer")
    assert [run.state for run in killers] == [RunState.FAILED] * 4, "on the A100 too"
    for run in killers:
        assert run.failure is not None
        assert run.failure.failure_class == "gpu_lost"
        assert "killer has lost 2 GPUs (GPU-V100-0, GPU-V100-1), so it gets no other" in run.failure.cause
        assert not run.failure.retryable
    assert not desk.do(lambda s: s.extend(third)), "what is under way is dropped"
    desk.register_gpus(V100_0="XID 79", V100_1="XID 79")
    assert {run.state for run in desk.runs("harmless")} == {RunState.WAITING}
    harmless = desk.runs("harmless")[0]
    assert desk.key("V100-2").run_id == harmless.run_id


def test_one_gpu_lost_twice_is_one_gpu(desk: LiveDesk) -> None:
    for _ in range(3):
        desk.fail(desk.key("V100-0"), LOST)
    assert all(run.state is not RunState.FAILED for run in desk.runs("killer"))


def test_a_slot_out_of_service_gets_no_work_and_its_runs_are_kept(desk: LiveDesk) -> None:
    going_on = desk.key("V100-1")
    desk.register_gpus(V100_0="XID 79")
    assert desk.lease("a", "GPU-V100-0") is None
    assert desk.do(lambda s: s.extend(going_on)), "the agent's other GPUs go on"
    desk.register_gpus()
    assert desk.lease("a", "GPU-V100-0") is not None


def test_repeats_of_a_workload_that_was_given_up_are_not_planned(desk: LiveDesk) -> None:
    for gpu in ("V100-0", "V100-1"):
        desk.fail(desk.key(gpu), LOST)

    def repeated(schedule: Schedule) -> bool:
        campaign = schedule.store.campaign("live-1")
        assert campaign is not None
        schedule.store.save_campaign(replace(campaign, state=CampaignState.ANALYSING))
        return schedule.repeat("live-1", {("killer", "V100"): 3})

    assert desk.do(repeated) is False


def test_a_run_says_which_gpus_are_out_of_service_why_and_what_to_do(desk: LiveDesk) -> None:
    run = desk.runs("killer")[0]
    agents = [
        Agent(
            "a", "s", "box", Inventory(), (slot("V100-0", "XID 79: it fell off the bus"), slot("A100-0")), 0
        )
    ]
    expected = (
        "every measured V100 with nsight_compute is out of service: V100 GPU-V100-0 of agent box (XID 79: it "
        "fell off the bus); reset or replace it, then, on its box: assay-agent quarantine clear UUID"
    )
    assert waiting_for([run], agents, 0) == {run.run_id: expected}
    # One that has begun waits too, and none waits where another GPU does the work.
    begun = replace(run, state=RunState.RUNNING)
    assert waiting_for([begun], agents, 0) == {run.run_id: expected}
    helped = [*agents, Agent("b", "s", "other", Inventory(), (slot("V100-9"),), 0)]
    assert waiting_for([run, begun], helped, 0) == {}
    assert waiting_for([begun], agents, AWAY_AFTER_MS + 1) == {}
