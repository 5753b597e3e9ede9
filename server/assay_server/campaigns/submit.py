"""Submitting a campaign: read, planned and stored in one step, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay_core.records.campaign import CampaignState, Submission, Submitted
from assay_core.records.upload import Bundle
from assay_server.access.audit import note_nothing_new, note_subject
from assay_server.access.caller import current_caller
from assay_server.access.priorities import require_priority
from assay_server.access.sight import project_for
from assay_server.campaign_file.compiling import compile_campaign
from assay_server.campaign_file.reading import read_campaign_file
from assay_server.campaign_file.spec import Campaign as CampaignSpec
from assay_server.campaigns.bundles.named import folders_named, sent_bundles
from assay_server.campaigns.planning.plan import Plan, next_number, plan_campaign
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.slicing.learned import RECENT_SLICES, SliceCosts
from assay_server.store.connections.ended import repeated
from assay_server.store.model import Campaign
from assay_server.store.protocols import MetadataReader


@repeated
def submit(coordinator: Coordinator, submission: Submission) -> Submitted:
    """Plan and store a campaign of the caller's, or tell which folders' files must be sent first.

    Raises CampaignError naming line and field of each fault of the file, NotPermittedError if it names a
    project of others or a priority that the caller may not give, and StorageError if there is no room for
    new work.
    """
    if coordinator.room is not None:
        coordinator.room.require()
    file_name, base_directory = submission.file_name, submission.base_directory
    file = read_campaign_file(submission.text, file_name or "campaign file")
    spec = file.campaign
    caller = current_caller()
    project = project_for(caller, spec.project)
    require_priority(caller, spec.priority)
    folders = folders_named(file, coordinator.bundles)
    if folders and submission.asks_for_folders:
        note_nothing_new()
        return Submitted("", 0, folders)
    sent = sent_bundles(folders, submission.bundles, coordinator.bundles, file_name)
    with coordinator.snapshot() as store:
        planned = _planned(store, spec, base_directory, file_name, sent)
    # Others wait while it is stored, so it was planned before.
    with coordinator.schedule(alone=True) as schedule:
        if planned.number != next_number(schedule.store.campaign_numbers(spec.campaign)):
            # Another one came first.
            planned = _planned(schedule.store, spec, base_directory, file_name, sent)
        runs = planned.plan.runs
        note_subject(f"campaign {planned.campaign_id}", f"{len(runs)} runs")
        schedule.add_campaign(
            Campaign(
                campaign_id=planned.campaign_id,
                name=spec.campaign,
                number=planned.number,
                synthetic=spec.synthetic,
                state=CampaignState.RUNNING,
                text=submission.text,
                file_name=file_name,
                base_directory=base_directory,
                compiled=compile_campaign(spec, sent.values()),
                created_at_ms=coordinator.clock.now_ms(),
                owner="" if caller is None else caller.identity_id,
                owner_name="" if caller is None else caller.name,
                project=project,
            ),
            runs,
            planned.plan.slices,
        )
    return Submitted(planned.campaign_id, len(runs))


@dataclass(frozen=True)
class _Planned:
    """A plan under the number that the campaign gets if no other of its name comes first."""

    number: int
    campaign_id: str
    plan: Plan


def _planned(
    store: MetadataReader,
    spec: CampaignSpec,
    base_directory: str,
    file_name: str,
    bundles: Mapping[str, Bundle],
) -> _Planned:
    number = next_number(store.campaign_numbers(spec.campaign))
    campaign_id = f"{spec.campaign}-{number}"
    times = store.slice_times(RECENT_SLICES) if spec.live_workloads else ()
    plan = plan_campaign(spec, campaign_id, base_directory, file_name, SliceCosts(times), bundles=bundles)
    return _Planned(number, campaign_id, plan)
