"""How the states of slices make the state of a run, and those of runs the state of a campaign: pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from assay_server.store.model import (
    ENDED_RUNS,
    CampaignState,
    FailureRecord,
    Run,
    RunState,
    SliceState,
)


def run_state(slices: Collection[SliceState]) -> RunState:
    """Failed or cancelled as soon as one slice is; done when all are; running when one has begun."""
    if SliceState.FAILED in slices:
        return RunState.FAILED
    if SliceState.CANCELLED in slices:
        return RunState.CANCELLED
    if all(state is SliceState.DONE for state in slices):
        return RunState.DONE
    begun = any(state is not SliceState.WAITING for state in slices)
    return RunState.RUNNING if begun else RunState.WAITING


def campaign_state(runs: Collection[RunState]) -> CampaignState:
    """Running until every run has ended; then analysing what there is, or failed where there is nothing."""
    if any(state not in ENDED_RUNS for state in runs):
        return CampaignState.RUNNING
    return CampaignState.ANALYSING if RunState.DONE in runs else CampaignState.FAILED


def failure_of_runs(runs: Sequence[Run]) -> FailureRecord | None:
    """Why a campaign with these runs failed: its first failed run, and how many more; None: none failed."""
    failed = [run for run in runs if run.state is RunState.FAILED]
    if not failed:
        return None
    first = failed[0].failure
    cause = f"{len(failed)} of {len(runs)} runs failed"
    if first is None:
        return FailureRecord("internal", failed[0].run_id, cause)
    return FailureRecord(
        first.failure_class,
        failed[0].run_id,
        f"{cause}; the first: {first.subject}: {first.cause}",
        first.remedy,
        False,
    )
