"""Submitting a campaign: read, planned and stored in one step, or refused."""

from __future__ import annotations

from assay_core.records.campaign import CampaignState
from assay_server.access.audit import note_subject
from assay_server.access.caller import current_caller
from assay_server.access.sight import project_for
from assay_server.campaign_file.compiling import compile_campaign
from assay_server.campaign_file.reading import load_campaign
from assay_server.campaigns.planning.plan import next_number, plan_campaign
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.slicing.learned import RECENT_SLICES, SliceCosts
from assay_server.store.model import Campaign


def submit(
    coordinator: Coordinator, text: str | bytes, file_name: str, base_directory: str
) -> tuple[str, int]:
    """Plan and store a campaign of the caller's; returns its id and the number of its runs.

    Raises CampaignError naming line and field of each fault of the file, NotPermittedError if it names a
    project of others, and StorageError if there is no room for new work.
    """
    if coordinator.room is not None:
        coordinator.room.require()
    spec = load_campaign(text, file_name or "campaign file")
    caller = current_caller()
    project = project_for(caller, spec.project)
    with coordinator.schedule(alone=True) as schedule:
        number = next_number(schedule.store.campaign_numbers(spec.campaign))
        campaign_id = f"{spec.campaign}-{number}"
        times = schedule.store.slice_times(RECENT_SLICES) if spec.live_workloads else ()
        plan = plan_campaign(spec, campaign_id, base_directory, file_name, SliceCosts(times))
        note_subject(f"campaign {campaign_id}", f"{len(plan.runs)} runs")
        schedule.add_campaign(
            Campaign(
                campaign_id=campaign_id,
                name=spec.campaign,
                number=number,
                synthetic=spec.synthetic,
                state=CampaignState.RUNNING,
                text=text if isinstance(text, str) else text.decode(),
                file_name=file_name,
                base_directory=base_directory,
                compiled=compile_campaign(spec),
                created_at_ms=coordinator.clock.now_ms(),
                owner="" if caller is None else caller.identity_id,
                owner_name="" if caller is None else caller.name,
                project=project,
            ),
            plan.runs,
            plan.slices,
        )
    return campaign_id, len(plan.runs)
