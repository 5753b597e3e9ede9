"""Campaigns cancelled within one transaction, as a person's request does it piece by piece."""

from __future__ import annotations

from assay_core.records.runs import RunsAction, RunsRequest
from assay_server.campaigns.scheduling.schedule import Schedule


def cancel(schedule: Schedule, campaign_id: str) -> None:
    """Cancel a campaign; raises UnknownThingError."""
    request = schedule.ask(RunsAction.CANCEL, RunsRequest(campaign_id))
    schedule.carry_on(request, 1_000_000)
