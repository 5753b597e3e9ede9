"""A scheduler with its queue over a store, with agents of virtual GPUs and campaigns made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import AttemptState, CampaignState
from assay_core.records.failure import Failure
from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_core.records.work import CommandSource
from assay_server.campaign_file.compiled import (
    NOT_PLACED,
    AnalysisSettings,
    CompiledCampaign,
    Placement,
    SchedulingRules,
)
from assay_server.campaigns.scheduling.leases import Lease
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.store.model import Agent, Attempt, Campaign, Hold, PublishedFile, Run, Segment, Slice
from assay_server.store.records import LocalRecordStore
from assay_server.store.sql import MetadataStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server.coordinators import coordinator_over
from tests.support.server.server_support import HandClock

HANG = Failure("hang", "the workload", "no progress", "raise the limit", True)
_ANALYSIS = AnalysisSettings(0, (), None, 1 << 30)


def agent_of(kind: str, slots: int = 2, name: str = "") -> Agent:
    """An agent of virtual GPUs of a kind, whose slots are ``KIND-0``, ``KIND-1``, ..."""
    made = tuple(
        Slot(f"{name or kind}-{place}", ("ncu",), True, InstalledDevice(index=place, name=kind.upper()))
        for place in range(slots)
    )
    return Agent(name or kind, "session", name or kind, Inventory(), made, 0)


def live_campaign(
    number: int,
    kinds: Sequence[str],
    rules: SchedulingRules | None = None,
    *,
    placement: Placement = NOT_PLACED,
    owner: str = "",
    project: str = "",
    workloads: Sequence[str] = ("w",),
) -> tuple[Campaign, list[Run]]:
    """A campaign with a light run for each of ``kinds`` and workloads."""
    campaign_id = f"c-{number}"
    rules = rules or SchedulingRules()
    compiled = CompiledCampaign(_ANALYSIS, scheduling=rules)
    campaign = Campaign(
        campaign_id, "c", number, True, CampaignState.RUNNING, "", "c.yaml", "/", compiled, 0,
        owner=owner, project=project,
    )  # fmt: skip
    made = [(workload, kind) for workload in workloads for kind in kinds]
    runs = [
        Run(
            run_id=f"{campaign_id}.{ordinal:04d}", ordinal=ordinal, campaign_id=campaign_id,
            workload=workload, device_kind=kind, device_key=kind, level="light", profiler="ncu",
            synthetic=True, command=CommandSource(("w.toml",)), placement=placement,
            holds=(Hold.AFTER,) if rules.after.get(workload) else (),
        )
        for ordinal, (workload, kind) in enumerate(made)
    ]  # fmt: skip
    return campaign, runs


class QueueLab:
    """A scheduler on a store in memory, with a clock set by hand."""

    def __init__(
        self, *agents: Agent, policy: SchedulePolicy | None = None, store: MetadataStore | None = None
    ) -> None:
        self.clock, self.store = HandClock(), store or SqliteStore(None)
        self.agents = {agent.agent_id: agent for agent in agents}
        self.policy = policy or SchedulePolicy(10**12)
        self.restart()
        for agent in agents:
            self.register(agent)

    def restart(self) -> None:
        """A new process over the same store."""
        records = LocalRecordStore(Path("unused"), make_folders=False)
        self.coordinator = coordinator_over(self.store, records, self.policy, self.clock)

    def register(self, agent: Agent) -> None:
        with self.coordinator.schedule() as schedule:
            schedule.register(agent, {})
        self.coordinator.restarted(agent)

    def submit(self, campaign: Campaign, runs: Sequence[Run]) -> None:
        with self.coordinator.schedule() as schedule:
            schedule.add_campaign(campaign, runs, [Slice(run.run_id, 0) for run in runs])

    def lease(self, slot_id: str) -> Lease | None:
        agent_id = slot_id.rpartition("-")[0]
        with self.coordinator.schedule() as schedule:
            return schedule.lease(agent_id, slot_id)

    def got(self, slot_id: str) -> str:
        """The run that a slot is given; "" if none."""
        lease = self.lease(slot_id)
        return "" if lease is None else lease.run.run_id

    def leased(self) -> list[Attempt]:
        with self.store.snapshot() as read:
            return read.attempts_in((AttemptState.LEASED,))

    def key_at(self, slot_id: str) -> AttemptKey:
        return next(attempt.key for attempt in self.leased() if attempt.slot_id == slot_id)

    def finish(self, slot_id: str) -> None:
        """The run of a slot ends well."""
        key = self.key_at(slot_id)
        with self.coordinator.schedule() as schedule:
            segment = Segment(key.run_id, key.slice_index, key.attempt, 0, 0, 10, 0, 1, b"", b"h")
            schedule.add_segments([segment], key)
            schedule.begin_publish(key, 1, 10, (), AttemptLog())
            schedule.end_publish(key, PublishedFile(f"{key.run_id}/0", 5, 10, "hash"))

    def fail(self, slot_id: str, why: Failure = HANG) -> None:
        key = self.key_at(slot_id)
        with self.coordinator.schedule() as schedule:
            schedule.fail(key, why)
