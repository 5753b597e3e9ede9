"""Answers to people and agents, made from the store's records."""

from __future__ import annotations

from collections.abc import Mapping

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
from assay_server.store.model import Attempt, Campaign
from assay_server.store.overviews import CampaignOverview, RunOverview
from assay_server.store.quarantine_files import MovedFiles

_MOST_NAMES = 20


def run_status(overview: RunOverview, waiting_for: str = "") -> RunStatus:
    """The status of a run; ``waiting_for``: what it needs and no agent offers."""
    run = overview.run
    return RunStatus(
        run_id=run.run_id,
        workload=run.workload,
        device_kind=run.device_kind,
        level=run.level,
        condition=run.condition,
        repeat=run.repeat,
        state=run.state,
        launches=overview.launches,
        attempts=overview.attempts,
        flags=run.flags,
        failure=run.failure,
        agent=overview.agent,
        waiting_for=waiting_for,
        slices=overview.slices,
        slices_done=overview.slices_done,
        retries=overview.retries,
        paused=run.paused,
    )


def campaign_status(
    campaign: Campaign | CampaignOverview,
    counts: Mapping[RunState, int],
    resting: Row = NO_RESTS,
    runs_paused: int = 0,
) -> CampaignStatus:
    """The status of a campaign without its runs.

    ``resting``: the server's resting slots; ``runs_paused``: runs that are paused themselves.
    """
    return CampaignStatus(
        campaign_id=campaign.campaign_id,
        name=campaign.name,
        state=campaign.state,
        synthetic=campaign.synthetic,
        owner=campaign.owner,
        owner_name=campaign.owner_name,
        project=campaign.project,
        failure=campaign.failure,
        runs_total=sum(counts.values()),
        runs_done=counts.get(RunState.DONE, 0),
        runs_failed=counts.get(RunState.FAILED, 0),
        runs_running=counts.get(RunState.RUNNING, 0),
        runs_cancelled=counts.get(RunState.CANCELLED, 0),
        runs_paused=runs_paused,
        paused=campaign.paused,
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
    return SetAside(
        moved.folder, moved.reason, moved.set_aside_at_ms, len(moved.names), moved.file_bytes, names
    )


def attempt_detail(attempt: Attempt) -> AttemptDetail:
    """An attempt, for people."""
    # For people, an attempt that is being published is still running.
    state = AttemptState.LEASED if attempt.state is AttemptState.PUBLISHING else attempt.state
    return AttemptDetail(
        key=attempt.key,
        state=state,
        agent=attempt.agent_name,
        slot=attempt.slot_id,
        leased_at_ms=attempt.leased_at_ms,
        ended_at_ms=attempt.ended_at_ms,
        launches=attempt.launches,
        failure=attempt.failure,
        log=attempt.log,
        gang=attempt.gang,
    )
