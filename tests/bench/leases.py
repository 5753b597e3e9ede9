"""What a lease costs the server, against campaigns, queued runs and agents; and what idle slots cost it.

python -m tests.bench.leases [--short]

The store is SQLite on disk, as in the server. A call is what the server does for one request: the check that
the agent is registered, the decision, the attempt, the commit. Slots hold their leases, as busy slots do.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import CampaignState
from assay_core.records.lease import LeaseRequest
from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_core.records.work import CommandSource
from assay_server.campaign_file.compiled import AnalysisSettings, CompiledCampaign, Placement
from assay_server.campaigns.heartbeats import Heartbeats
from assay_server.campaigns.ingest.publish import Publisher
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.clock import SteadyClock
from assay_server.rpc.handlers.agents import AgentHandler
from assay_server.store.model import Agent, Campaign, PublishedFile, Run, Segment, Slice
from assay_server.store.records import LocalRecordStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server.coordinators import coordinator_over

_COMPILED = CompiledCampaign(AnalysisSettings(0, (("pks", {}),), None, 1 << 30))
_OURS, _ABSENT = "V100", "B200"


@dataclass(frozen=True)
class Lab:
    """``unserved``: campaigns, of 10 runs each, for GPUs that no agent has; older than the others.

    ``gang``: over how many GPUs of a box each run goes; every box has so many.
    """

    campaigns: int
    queued: int
    unserved: int = 0
    agents: int = 500
    gang: int = 1


@contextmanager
def made(lab: Lab) -> Iterator[Coordinator]:
    """The lab's server, without its sockets."""
    with tempfile.TemporaryDirectory() as folder:
        metadata = SqliteStore(Path(folder) / "metadata.sqlite")
        coordinator = coordinator_over(
            metadata, LocalRecordStore(Path(folder)), SchedulePolicy(), SteadyClock()
        )
        for number in range(lab.unserved):
            submit(coordinator, f"absent-{number + 1}", 10, _ABSENT)
        for number in range(lab.campaigns):
            submit(coordinator, f"made-{number + 1}", lab.queued // lab.campaigns, _OURS, lab.gang)
        for number in range(lab.agents):
            with coordinator.schedule() as schedule:
                schedule.register(made_agent(number, lab.gang), {})
        yield coordinator
        metadata.close()


def submit(coordinator: Coordinator, campaign_id: str, runs: int, gpu: str = _OURS, gang: int = 1) -> None:
    """A campaign of light runs, five of each workload."""
    name, _, number = campaign_id.rpartition("-")
    campaign = Campaign(
        campaign_id, name, int(number), False, CampaignState.RUNNING, "", "c.yaml", "/", _COMPILED, 0
    )
    planned = [
        Run(
            run_id=f"{campaign_id}.{ordinal:05d}",
            ordinal=ordinal,
            campaign_id=campaign_id,
            workload=f"w{ordinal // 5}",
            device_kind=gpu,
            device_key=gpu.lower(),
            level="light",
            profiler="nsight_systems",
            command=CommandSource(("./a.out",)),
            placement=Placement(gang=gang),
        )
        for ordinal in range(runs)
    ]
    with coordinator.schedule() as schedule:
        schedule.add_campaign(campaign, planned, [Slice(run.run_id, 0) for run in planned])


def made_agent(number: int, gpus: int = 1) -> Agent:
    """An agent on a box with so many GPUs."""
    first = Slot(f"GPU-{number}", ("nsight_systems",), False, InstalledDevice(name=_OURS), gangs=True)
    others = [
        replace(first, slot_id=f"{first.slot_id}-{index}", device=InstalledDevice(index, _OURS))
        for index in range(1, gpus)
    ]
    return Agent(f"agent-{number}", "session", f"box-{number}", Inventory(), (first, *others), 0)


@contextmanager
def timed(taken: list[tuple[float, float]]) -> Iterator[None]:
    """Note the milliseconds of a block: of the clock, and of the processor in this thread."""
    clock, cpu = time.perf_counter(), time.thread_time()
    yield
    taken.append(((time.perf_counter() - clock) * 1e3, (time.thread_time() - cpu) * 1e3))


def lease_ms(coordinator: Coordinator, agents: int, rounds: int) -> np.ndarray:
    """Each lease that gave work; all slots hold one before any of them ends it."""
    taken: list[tuple[float, float]] = []
    for _ in range(rounds):
        held: list[AttemptKey] = []
        for number in range(agents):
            with timed(taken), coordinator.schedule() as schedule:
                assert schedule.is_registered(f"agent-{number}", "session")
                lease = schedule.lease(f"agent-{number}", f"GPU-{number}")
            assert lease is not None
            held.append(lease.attempt.key)
        for key in held:
            _end(coordinator, key)
    return np.array(taken)


def _end(coordinator: Coordinator, key: AttemptKey) -> None:
    with coordinator.schedule() as schedule:
        schedule.add_segments(
            [Segment(key.run_id, key.slice_index, key.attempt, 0, 0, 10, 0, 1, b"", b"h")], key
        )
        schedule.begin_publish(key, 1, 10, (), AttemptLog())
        schedule.end_publish(key, PublishedFile(f"{key.run_id}/{key.slice_index}", 5, 10, "hash"))


def lease_labs(queued: int) -> tuple[Lab, ...]:
    """Between these a lease must cost about the same: ten times the runs, 1,000 times the campaigns."""
    less = queued // 10
    return Lab(50, less), Lab(50, queued), Lab(1, less), Lab(max(1, less // 10), less)


def measured_leases(lab: Lab) -> np.ndarray:
    """Milliseconds of each lease in a lab, of the clock and of the processor; shape (leases, 2)."""
    with made(lab) as coordinator:
        return lease_ms(coordinator, lab.agents, 2)


def vain_ms(coordinator: Coordinator, agents: int) -> np.ndarray:
    """Each request of a slot for which there is no work."""
    handler = AgentHandler(coordinator, Publisher(coordinator), Heartbeats(coordinator), 5_000)
    taken: list[tuple[float, float]] = []
    for number in range(agents):
        with timed(taken):
            answer = handler.lease(LeaseRequest(f"agent-{number}", "session", f"GPU-{number}"))
        assert answer.work is None
    return np.array(taken)


def _told(title: str, taken: np.ndarray) -> None:
    (median, cpu), (high, high_cpu) = np.percentile(taken, [50, 99], axis=0)
    of_clock = f"median {median:6.2f} ms, 99th percentile {high:6.2f} ms"
    print(f"{title:64} {of_clock}; of processor {cpu:6.2f} and {high_cpu:6.2f} ms", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a tenth of everything")
    less = 10 if parser.parse_args().short else 1
    agents = 500 // less
    for title, lab in (
        ("50 campaigns, 10,000 queued runs", Lab(50, 10_000 // less, agents=agents)),
        ("50 campaigns, 100,000 queued runs", Lab(50, 100_000 // less, agents=agents)),
        ("1 campaign, 10,000 queued runs", Lab(1, 10_000 // less, agents=agents)),
        ("1,000 campaigns, 10,000 queued runs", Lab(1000 // less, 10_000 // less, agents=agents)),
        ("1 campaign and 1,000 that nobody serves", Lab(1, 10_000 // less, 1000 // less, agents)),
        ("50 campaigns, 10,000 runs over 8 GPUs", Lab(50, 10_000 // less, agents=agents, gang=8)),
    ):
        with made(lab) as coordinator:
            _told(f"lease: {title}, {agents} agents", lease_ms(coordinator, agents, 2))
    for unserved in (1, 1000 // less):
        with made(Lab(0, 0, unserved, agents)) as coordinator:
            _told(f"request in vain: {unserved:,} campaigns that nobody serves", vain_ms(coordinator, agents))


if __name__ == "__main__":
    main()
