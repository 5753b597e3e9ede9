"""Answers to people and agents, made from the store's records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from assay_core.records.campaign import (
    AttemptState,
    CampaignState,
    CampaignStatus,
    RunState,
    RunStatus,
    SetAside,
    SlotRest,
)
from assay_core.records.runs import AttemptDetail
from assay_server.campaigns.scheduling.resting import NO_RESTS, Row
from assay_server.store.model import Attempt, Campaign, Sight
from assay_server.store.overviews import CampaignOverview, RunOverview
from assay_server.store.quarantine_files import MovedFiles
from assay_server.store.sql import SqlTransaction

_MOST_NAMES = 20


def run_status(overview: RunOverview, waiting_for: str = "") -> RunStatus:
    """The status of a run; ``waiting_for``: what it needs and no agent offers."""
    return RunStatus.like(overview, overview.run, waiting_for=waiting_for)


def campaign_status(
    campaign: Campaign | CampaignOverview,
    counts: Mapping[RunState, int],
    resting: Row = NO_RESTS,
    runs_paused: int = 0,
) -> CampaignStatus:
    """The status of a campaign without its runs.

    ``resting``: the server's resting slots; ``runs_paused``: runs that are paused themselves.
    """
    return CampaignStatus.like(
        campaign,
        runs_total=sum(counts.values()),
        runs_done=counts.get(RunState.DONE, 0),
        runs_failed=counts.get(RunState.FAILED, 0),
        runs_running=counts.get(RunState.RUNNING, 0),
        runs_cancelled=counts.get(RunState.CANCELLED, 0),
        runs_paused=runs_paused,
        resting=slot_rests(resting) if campaign.state is CampaignState.RUNNING else (),
    )


def slot_rests(resting: Row) -> tuple[SlotRest, ...]:
    """Slots that rest, and for how much longer."""
    return tuple(
        SlotRest(
            rest.agent_name,
            rest.slot_id,
            rest.failures,
            max(0, rest.until_ms - resting.now_ms),
            rest.why,
        )
        for rest in resting.rests
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
