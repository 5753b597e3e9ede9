"""Deleting a campaign that has ended: its rows in pieces, each followed by its files, and the campaign last.

Between two pieces leases and heartbeats have their turn. A crash in between leaves the campaign in the list
with the runs that are left: deleting it again goes on. Files whose rows are gone are set aside at the next
start.
"""

from __future__ import annotations

import logging

from assay_core.records.archive import DeletedCampaign, DeleteRequest
from assay_sampling.errors import ParameterError
from assay_server.campaigns.errors import known_campaign
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.maintenance.archives import require_ended

_RUNS_AT_A_TIME = 200

_log = logging.getLogger(__name__)


def delete_campaign(coordinator: Coordinator, request: DeleteRequest) -> DeletedCampaign:
    """Delete a campaign with its records and report. Raises ParameterError, CampaignError, StorageError."""
    if not request.confirmed:
        raise ParameterError(
            f"campaign {request.campaign_id}",
            "its records and its report would be gone for good",
            "confirm that with --yes; keep them in a file with: assay lab campaigns archive",
        )
    runs = files = size = 0
    while True:
        with coordinator.schedule() as schedule:
            campaign = known_campaign(schedule.store.campaign(request.campaign_id), request.campaign_id)
            require_ended(campaign, "deleted")
            piece = schedule.store.runs(request.campaign_id)[:_RUNS_AT_A_TIME]
            slices = [each for run in piece for each in schedule.store.slices(run.run_id) if each.file]
            if piece:
                schedule.store.delete_runs([run.run_id for run in piece])
            else:
                schedule.store.delete_campaign(campaign)
            schedule.effects.campaigns.add(request.campaign_id)
        for run in piece:
            coordinator.records.delete_run(run.run_id)
        for each in slices:
            coordinator.changed_records.forget(f"records/{each.file}")
        runs, files = runs + len(piece), files + len(slices)
        size += sum(each.file_bytes for each in slices)
        if not piece:
            coordinator.records.delete_report(request.campaign_id)
            _log.warning("campaign %s is deleted: %d runs, %d files", request.campaign_id, runs, files)
            return DeletedCampaign(request.campaign_id, runs, files, size)
