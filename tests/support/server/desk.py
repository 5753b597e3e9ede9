"""A scheduler on a store in memory, driven verb by verb."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import CampaignState
from assay_core.records.failure import Failure
from assay_core.records.machine import Inventory, Slot
from assay_server.campaign_file.compiled import CompiledCampaign
from assay_server.campaign_file.reading import compile_campaign
from assay_server.campaigns.planning.plan import Plan, plan_campaign
from assay_server.campaigns.scheduling.attempt_results import FinishOutcome, SegmentOutcome
from assay_server.campaigns.scheduling.leases import Lease
from assay_server.campaigns.scheduling.queue import Queue
from assay_server.campaigns.scheduling.resting import RestingSlots
from assay_server.campaigns.scheduling.retry import RetryPolicy
from assay_server.campaigns.scheduling.schedule import Schedule
from assay_server.campaigns.scheduling.transitions import Effects, SchedulePolicy
from assay_server.store.model import Agent, Attempt, Campaign, PublishedFile, Segment
from assay_server.store.sqlite import SqliteStore
from tests.support.server.campaign_files import load_campaign
from tests.support.server.server_support import CAMPAIGN, HandClock

POLICY = SchedulePolicy(lease_ms=1000, retry=RetryPolicy(most_failures=3, most_losses=5, delay_ms=100))
HANG = Failure("hang", "the workload", "no progress", "raise the limit", True)


@cache
def _planned(campaign_id: str) -> tuple[CompiledCampaign, Plan]:
    spec = load_campaign(CAMPAIGN, "campaign.yaml")
    return compile_campaign(spec), plan_campaign(spec, campaign_id, "/data", "campaign.yaml")


class Desk:
    """A schedule over a store in memory, with a clock set by hand."""

    def __init__(self, campaigns: int = 1) -> None:
        self.clock = HandClock()
        self.store = SqliteStore(None)
        self.effects = Effects()
        for number in range(1, campaigns + 1):
            compiled, plan = _planned(f"made-{number}")
            campaign = Campaign(
                f"made-{number}",
                "made",
                number,
                False,
                CampaignState.RUNNING,
                CAMPAIGN,
                "campaign.yaml",
                "/data",
                compiled,
                0,
            )
            with self.schedule() as schedule:
                schedule.add_campaign(campaign, plan.runs, plan.slices)

    @contextmanager
    def schedule(self) -> Iterator[Schedule]:
        with self.store.transaction() as transaction:
            schedule = Schedule(transaction, POLICY, self.clock.ms, RestingSlots(), Queue())
            yield schedule
        self.effects = schedule.effects

    def do(self, verb: Callable[[Schedule], Any]) -> Any:
        with self.schedule() as schedule:
            return verb(schedule)

    def register(
        self, agent: str = "a", session: str = "s", slots: tuple[str, ...] = ("0", "1"), sealed: Any = ()
    ) -> tuple[list[AttemptKey], list[AttemptKey]]:
        registered = Agent(
            agent, session, agent, Inventory(), tuple(Slot(s, ("recorded",)) for s in slots), 0
        )
        with self.store.snapshot() as read:
            known = [read.attempt(key.run_id, key.slice_index, key.attempt) for key in sealed]
        held = {k: b"" if a is None else a.write_secret for k, a in zip(sealed, known, strict=True)}
        return self.do(lambda s: s.register(registered, held))

    def lease(self, agent: str = "a", slot: str = "0") -> Lease | None:
        return self.do(lambda s: s.lease(agent, slot))

    def must_lease(self, agent: str = "a", slot: str = "0") -> AttemptKey:
        lease = self.lease(agent, slot)
        assert lease is not None
        return lease.attempt.key

    def segment(self, key: AttemptKey, index: int = 0, launches: int = 10) -> SegmentOutcome:
        made = Segment(key.run_id, key.slice_index, key.attempt, index, 0, launches, 0, 1, b"", b"h")
        return self.do(lambda s: s.add_segments([made], key))

    def fail(self, key: AttemptKey, why: Failure) -> None:
        self.do(lambda s: s.fail(key, why))

    def begin(self, key: AttemptKey, segments: int = 1, launches: int = 10, flags: Any = ()) -> FinishOutcome:
        return self.do(lambda s: s.begin_publish(key, segments, launches, flags, AttemptLog(text="done")))

    def end(self, key: AttemptKey, launches: int = 10) -> bool:
        file = PublishedFile(f"{key.run_id}/slice-00000.parquet", 5, launches, f"hash by {key.token}")
        return self.do(lambda s: s.end_publish(key, file))

    def publish(self, key: AttemptKey) -> None:
        assert self.segment(key) is SegmentOutcome.ADDED
        assert self.begin(key) is FinishOutcome.PUBLISH
        assert self.end(key)

    def attempt(self, key: AttemptKey) -> Attempt:
        with self.store.snapshot() as read:
            found = read.attempt(key.run_id, key.slice_index, key.attempt)
        assert found is not None
        return found

    def campaign(self, campaign_id: str = "made-1") -> Campaign:
        with self.store.snapshot() as read:
            found = read.campaign(campaign_id)
        assert found is not None
        return found

    def run_states(self, campaign_id: str = "made-1") -> list[str]:
        with self.store.snapshot() as read:
            return [str(r.state) for r in read.runs(campaign_id)]
