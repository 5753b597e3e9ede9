"""Answers to people and agents, made from the store's records.

Statuses of campaigns are made once for all callers: counted by the database, kept until they change.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from assay_core.records.campaign import (
    AttemptState,
    CampaignState,
    CampaignStatus,
    Estimate,
    RunState,
    RunStatus,
    SetAside,
    SlotRest,
    WaitingRuns,
)
from assay_core.records.runs import AttemptDetail
from assay_server.campaigns.errors import known_campaign
from assay_server.campaigns.planning.forecast import Analysed, Elsewhere, estimate, estimate_of_analysis
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.resting import Rest
from assay_server.campaigns.scheduling.waiting import Lab, Reason, slots_by_gpu, wait_reasons, waiting_alike
from assay_server.store.model import Attempt, Campaign, Hold, Need, Run, Sight, need_of
from assay_server.store.overviews import CampaignOverview, RunOverview, WorkloadCost
from assay_server.store.quarantine_files import MovedFiles
from assay_server.store.sql import SqlTransaction

_MOST_NAMES = 20
# The reason for waiting also depends on time: agents go away, slots rest.
_KEPT_SECONDS = 5.0
# The status of a large campaign takes a good part of a second to make. For those who follow the campaign,
# however many, the server rests for ten times as long before it makes the next.
_REST_RATIO = 10.0
# What a large campaign costs is read from all of its attempts: not with every run that ends.
_LARGE_RUNS = 5_000
_COSTS_KEPT_SECONDS = 15.0
_EARLIER_CAMPAIGNS = 3
_MOST_KEPT = 256

_Kind = tuple[Need, str, bool, RunState, Collection[Hold]]


def run_status(overview: RunOverview, why: Reason | None = None) -> RunStatus:
    """The status of a run; ``why`` it waits, where there is more to say than that others are ahead."""
    return RunStatus.like(overview, overview.run, waiting_for="" if why is None else why.text)


def campaign_status(
    campaign: Campaign | CampaignOverview,
    counts: Mapping[RunState, int],
    resting: tuple[SlotRest, ...] = (),
    runs_paused: int = 0,
) -> CampaignStatus:
    """The status of a campaign without its runs.

    ``resting``: the server's slots that rest; ``runs_paused``: runs that are paused themselves.
    """
    return CampaignStatus.like(
        campaign,
        runs_total=sum(counts.values()),
        runs_done=counts.get(RunState.DONE, 0),
        runs_failed=counts.get(RunState.FAILED, 0),
        runs_running=counts.get(RunState.RUNNING, 0),
        runs_cancelled=counts.get(RunState.CANCELLED, 0),
        runs_paused=runs_paused,
        resting=resting if campaign.state is CampaignState.RUNNING else (),
    )


def slot_rests(rests: Iterable[Rest], now_ms: int) -> tuple[SlotRest, ...]:
    """Slots that rest, and for how much longer."""
    return tuple(
        SlotRest(
            rest.agent_name,
            rest.slot_id,
            rest.failures,
            max(0, rest.until_ms - now_ms),
            rest.why,
        )
        for rest in rests
    )


def set_aside(moved: MovedFiles) -> SetAside:
    """The files that were set aside, for people, with the first names."""
    names = moved.names[:_MOST_NAMES]
    return SetAside.like(moved, files=len(moved.names), bytes=moved.file_bytes, names=names)


def attempt_detail(attempt: Attempt) -> AttemptDetail:
    """An attempt, for people."""
    # For people, an attempt that is being published is still running.
    state = AttemptState.LEASED if attempt.state is AttemptState.PUBLISHING else attempt.state
    return AttemptDetail.like(attempt, state=state, agent=attempt.agent_name, slot=attempt.slot_id)


def seen_runs(store: SqlTransaction, run_ids: Iterable[str], sight: Sight) -> frozenset[str]:
    """Those of the runs that somebody may know of."""
    runs = frozenset(run_ids)
    if sight.everything:
        return runs
    whose = {run_id: store.belongs_to(store.campaign_of(run_id) or "") for run_id in runs}
    return frozenset(run_id for run_id, of in whose.items() if of is not None and sight.sees(of))


@dataclass
class _Summary:
    lock: threading.Lock = field(default_factory=threading.Lock)
    last_change: int = -1  # when it was made
    made_at: float = 0.0
    took_seconds: float = 0.0
    status: CampaignStatus | None = None
    costs_at: float = 0.0
    costs: list[WorkloadCost] | None = None
    earlier: Elsewhere | None = None


def _measured(store: SqlTransaction, campaign_id: str) -> Counter[_Kind]:
    """How many runs are measured now, by kind: a budget that is used up does not keep these from ending."""
    attempts = store.attempts_in((AttemptState.LEASED, AttemptState.PUBLISHING))
    run_ids = {attempt.key.run_id for attempt in attempts}
    runs = [run for run_id in run_ids if (run := store.run(run_id)) is not None]
    return Counter(_kind_of(run) for run in runs if run.campaign_id == campaign_id)


def _kind_of(run: Run) -> _Kind:
    """What runs that wait for one reason have in common."""
    return need_of(run), run.device_kind, run.synthetic, run.state, run.holds


class StatusBoard:
    """Statuses without runs. Thread-safe; only one thread makes each."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._lock = threading.Lock()
        self._summaries: dict[str, _Summary] = {}

    def status(self, campaign_id: str, *, following: bool = False) -> CampaignStatus:
        """The status now, or, for a caller that is ``following`` the campaign, of a moment ago.

        Raises UnknownThingError if there is no such campaign.
        """
        summary = self._summary(campaign_id)
        with summary.lock:
            last_change, now = self._coordinator.last_change(campaign_id), time.monotonic()
            lifetime_seconds = _KEPT_SECONDS
            if summary.last_change != last_change:
                lifetime_seconds = (
                    min(_REST_RATIO * summary.took_seconds, lifetime_seconds) if following else 0.0
                )
            fresh = now - summary.made_at < lifetime_seconds
            if summary.status is None or not fresh:
                try:
                    summary.status = self._made(campaign_id)
                except BaseException:
                    with self._lock:
                        self._summaries.pop(campaign_id, None)
                    raise
                summary.last_change, summary.made_at = last_change, time.monotonic()
                summary.took_seconds = summary.made_at - now
            return summary.status

    def _summary(self, campaign_id: str) -> _Summary:
        with self._lock:
            if campaign_id not in self._summaries and len(self._summaries) >= _MOST_KEPT:
                self._summaries.pop(next(iter(self._summaries)))
            return self._summaries.setdefault(campaign_id, _Summary())

    def _made(self, campaign_id: str) -> CampaignStatus:
        with self._coordinator.snapshot() as store:
            campaign = known_campaign(store.campaign(campaign_id), campaign_id)
            counts, progress = store.run_counts(campaign_id), store.progress(campaign_id)
            paused = store.paused_runs([campaign_id]).get(campaign_id, 0)
            lab = self._coordinator.lab(store)
            costs = self._costs(store, campaign, sum(counts.values()))
            runs = [run for run, _ in progress.needs]
            line = self._coordinator.line(store, campaign, runs)
            earlier = self._earlier(store, campaign)
            is_analysed = campaign.state is CampaignState.ANALYSING
            last_ended_ms, launches = store.measured(campaign_id) if is_analysed else (0, 0)
            measured = _measured(store, campaign_id) if line.budget_left_hours <= 0 else {}
        status = campaign_status(campaign, counts, slot_rests(lab.resting.values(), lab.now_ms), paused)
        waiting: tuple[WaitingRuns, ...] = ()
        eta = Estimate()
        if campaign.state is CampaignState.RUNNING:
            reasons = wait_reasons(runs, lab, line, campaign.paused, progress.awaiting_light)
            eta = _eta(campaign, costs, lab, replace(earlier, runs=runs))
            waiting = tuple(
                WaitingRuns(reasons[run.run_id].text, run.run_id, count, reasons[run.run_id].kind)
                for run, runs_alike in waiting_alike(progress.needs, line)
                if run.run_id in reasons and (count := runs_alike - measured.get(_kind_of(run), 0)) > 0
            )
        elif campaign.state is CampaignState.ANALYSING:
            eta = estimate_of_analysis(launches, (lab.now_ms - last_ended_ms) / 1000, earlier.analysed)
        return replace(
            status,
            slices=progress.slices,
            slices_done=progress.slices_done,
            retries=progress.retries,
            waiting=waiting,
            gpu_seconds=sum(cost.gpu_seconds for cost in costs),
            eta=eta,
        )

    def _costs(self, store: SqlTransaction, campaign: Campaign, runs: int) -> list[WorkloadCost]:
        """What the campaign costs; of a large one that runs, as of a moment ago."""
        summary, now = self._summary(campaign.campaign_id), time.monotonic()
        recent = now - summary.costs_at < _COSTS_KEPT_SECONDS
        runs_on = campaign.state is CampaignState.RUNNING and runs > _LARGE_RUNS
        if summary.costs is None or not (recent and runs_on):
            now_ms = self._coordinator.clock.now_ms()
            summary.costs, summary.costs_at = store.workload_costs(campaign.campaign_id, now_ms), now
        return summary.costs

    def _earlier(self, store: SqlTransaction, campaign: Campaign) -> Elsewhere:
        """What earlier campaigns of the name tell of one that has not ended, read once."""
        if campaign.state not in (CampaignState.RUNNING, CampaignState.ANALYSING):
            return Elsewhere()
        summary = self._summary(campaign.campaign_id)
        if summary.earlier is None:
            summary.earlier = _earlier_of_name(store, campaign, self._coordinator.clock.now_ms())
        return summary.earlier


def _earlier_of_name(store: SqlTransaction, campaign: Campaign, now_ms: int) -> Elsewhere:
    """Of the newest campaigns of the name and project before this one."""
    costs: list[WorkloadCost] = []
    analysed: Analysed | None = None
    for number in range(campaign.number - 1, max(0, campaign.number - 1 - _EARLIER_CAMPAIGNS), -1):
        earlier = store.campaign(f"{campaign.name}-{number}")
        if earlier is not None and (earlier.owner, earlier.project) == (campaign.owner, campaign.project):
            costs += store.workload_costs(earlier.campaign_id, now_ms)
            ended_at_ms, launches = store.measured(earlier.campaign_id)
            if analysed is None and earlier.has_report and earlier.ended_at_ms > ended_at_ms > 0:
                analysed = Analysed((earlier.ended_at_ms - ended_at_ms) / 1000, launches)
    return Elsewhere(tuple(costs), analysed=analysed)


def _eta(campaign: Campaign, costs: list[WorkloadCost], lab: Lab, elsewhere: Elsewhere) -> Estimate:
    """Until the open slices of a campaign are done, if it has the lab for itself."""
    if campaign.paused:
        return Estimate(missing="it is paused")
    slicing = campaign.compiled.slicing
    return estimate(
        costs, slots_by_gpu(lab), at_least=slicing is not None and not slicing.is_fixed, elsewhere=elsewhere
    )
