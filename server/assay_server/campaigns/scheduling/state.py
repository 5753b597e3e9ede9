"""A run's state from those of its slices, and a campaign's from those of its runs: pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from assay_core.records.campaign import CampaignState, RunState
from assay_core.records.failure import Failure
from assay_server.store.model import ENDED_RUNS, Run, SliceState


def run_state(slices: Collection[SliceState]) -> RunState:
    """Failed or cancelled as soon as one slice is; done once all are; running once one has begun."""
    if SliceState.FAILED in slices:
        return RunState.FAILED
    if SliceState.CANCELLED in slices:
        return RunState.CANCELLED
    if all(state is SliceState.DONE for state in slices):
        return RunState.DONE
    begun = any(state is not SliceState.WAITING for state in slices)
    return RunState.RUNNING if begun else RunState.WAITING


def campaign_state(runs: Collection[RunState]) -> CampaignState:
    """Running until every run has ended; then analysing if any run has data, else failed.

    Cancelled if a person cancelled every run.
    """
    if any(state not in ENDED_RUNS for state in runs):
        return CampaignState.RUNNING
    if RunState.DONE in runs:
        return CampaignState.ANALYSING
    return CampaignState.FAILED if RunState.FAILED in runs else CampaignState.CANCELLED


def failure_of_runs(runs: Sequence[Run]) -> Failure | None:
    """Why a campaign with these runs failed: the number of failed runs and the first; None if none failed."""
    failed = [run for run in runs if run.state is RunState.FAILED]
    if not failed:
        return None
    first = failed[0].failure
    cause = f"{len(failed)} of {len(runs)} runs failed"
    if first is None:
        return Failure("internal", failed[0].run_id, cause)
    return Failure(
        first.failure_class,
        failed[0].run_id,
        f"{cause}; the first: {first.subject}: {first.cause}",
        first.remedy,
        False,
    )
