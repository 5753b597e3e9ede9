"""What people ask of campaigns, answered from the store. Plain functions of a message; they may block."""

from __future__ import annotations

from collections.abc import Iterator

from assay_protos import campaign_pb2
from assay_server.campaigns.coordinator import Coordinator
from assay_server.campaigns.errors import NotYetError, UnknownThingError, known_campaign
from assay_server.campaigns.lost_records import changed_files
from assay_server.campaigns.submit import submit
from assay_server.campaigns.waiting import waiting_for
from assay_server.limits import DEFAULT_LIMITS, QueryLimits
from assay_server.rpc import convert
from assay_server.rpc.status_board import StatusBoard
from assay_server.store.files import storage_errors
from assay_server.store.model import ENDED_CAMPAIGNS, Campaign, CampaignState

_CHUNK_BYTES = 1 << 20


class CampaignHandler:
    """Submit, list, status, cancel, run and report."""

    def __init__(self, coordinator: Coordinator, limits: QueryLimits = DEFAULT_LIMITS.queries) -> None:
        self._coordinator = coordinator
        self._limits = limits
        self._board = StatusBoard(coordinator)

    def submit(self, request: campaign_pb2.SubmitRequest) -> campaign_pb2.SubmitResponse:
        """Plan a campaign; raises CampaignError naming line and field."""
        campaign_id, runs = submit(
            self._coordinator, request.campaign_yaml, request.file_name, request.base_directory
        )
        return campaign_pb2.SubmitResponse(campaign_id=campaign_id, runs=runs)

    def list_campaigns(
        self, request: campaign_pb2.ListCampaignsRequest
    ) -> campaign_pb2.ListCampaignsResponse:
        """A page of the campaigns, and what concerns no single one of them."""
        page = self._limits.status_page_campaigns
        most = max(1, min(request.campaigns_most or page, page))
        resting = convert.rest_messages(self._coordinator.resting())
        with self._coordinator.snapshot() as store:
            found = store.campaigns(first=max(0, request.campaigns_from), most=most + 1)
            told, next_page = found[:most], found[most:]
            counts = store.counts_of_runs([campaign.campaign_id for campaign in told])
        campaigns = [convert.status_message(each, counts[each.campaign_id]) for each in told]
        set_aside = self._coordinator.records.all_set_aside()
        return campaign_pb2.ListCampaignsResponse(
            resting=resting,
            campaigns=campaigns,
            set_aside=[convert.set_aside_message(each) for each in set_aside],
            changed=convert.changed_messages(self._coordinator.changed_records.all()),
            campaigns_next=next_page[0].ordinal if next_page else 0,
        )

    def status(self, request: campaign_pb2.GetStatusRequest) -> campaign_pb2.CampaignStatus:
        """The campaign with a page of its runs; raises CampaignError where there is none of that name."""
        if request.without_runs:
            return self._board.status(request.campaign_id)
        most = min(request.runs_most or self._limits.status_page_runs, self._limits.status_page_runs)
        with self._coordinator.snapshot() as store:
            campaign = known_campaign(store.campaign(request.campaign_id), request.campaign_id)
            overviews = store.run_overviews(
                campaign.campaign_id, first=max(0, request.runs_from), most=max(1, most)
            )
            agents = store.agents()
        runs = [overview.run for overview in overviews]
        open_runs = runs if campaign.state is CampaignState.RUNNING else []
        now_ms, resting = self._coordinator.clock.now_ms(), self._coordinator.resting()
        waiting = waiting_for(open_runs, agents, now_ms, resting)
        status = self._board.status(request.campaign_id)
        status.runs.extend(
            convert.run_message(overview, waiting.get(overview.run.run_id, "")) for overview in overviews
        )
        end = runs[-1].ordinal + 1 if runs else 0
        status.runs_next = end if end < status.runs_total else 0
        return status

    def cancel(self, request: campaign_pb2.CancelRequest) -> campaign_pb2.CampaignStatus:
        with self._coordinator.schedule() as schedule:
            schedule.cancel(request.campaign_id)
        return self.status(campaign_pb2.GetStatusRequest(campaign_id=request.campaign_id))

    def run(self, request: campaign_pb2.GetRunRequest) -> campaign_pb2.RunDetail:
        """A run with its attempts and published files; raises CampaignError where there is none."""
        with self._coordinator.snapshot() as store:
            run = store.run(request.run_id)
            if run is None:
                raise UnknownThingError(
                    f"run {request.run_id!r}",
                    "the server knows no such run",
                    "see the runs of a campaign: assay status CAMPAIGN",
                )
            [overview] = store.run_overviews(run.campaign_id, run.run_id)
            attempts = store.attempts(run.run_id)
            slices = store.slices(run.run_id)
            agents = store.agents()
        resting = self._coordinator.resting()
        waiting = waiting_for([run], agents, self._coordinator.clock.now_ms(), resting)
        return campaign_pb2.RunDetail(
            run=convert.run_message(overview, waiting.get(run.run_id, "")),
            attempts=[convert.attempt_message(attempt) for attempt in attempts],
            files=[f"records/{piece.file}" for piece in slices if piece.file],
        )

    def report(self, request: campaign_pb2.GetReportRequest) -> Iterator[campaign_pb2.ReportChunk]:
        """The report in chunks, then which of its records changed; raises CampaignError where none is."""
        path = self._coordinator.records.report_path(request.campaign_id or "-", request.format)
        with self._coordinator.snapshot() as store:
            campaign = known_campaign(store.campaign(request.campaign_id), request.campaign_id)
        if not campaign.has_report:
            raise _no_report(campaign)
        with storage_errors(path), path.open("rb") as file:
            while data := file.read(_CHUNK_BYTES):
                yield campaign_pb2.ReportChunk(data=data)
        changed = convert.changed_messages(changed_files(self._coordinator, campaign.campaign_id))
        if changed:
            yield campaign_pb2.ReportChunk(changed=changed)


def _no_report(campaign: Campaign) -> NotYetError:
    subject = f"campaign {campaign.campaign_id}"
    if campaign.state not in ENDED_CAMPAIGNS:
        return NotYetError(
            subject,
            f"it is still {campaign.state}, so there is no report yet",
            f"wait for it: assay watch {campaign.campaign_id}",
        )
    if campaign.failure is None:
        return NotYetError(subject, f"it was {campaign.state}, so there is no report", "submit it again")
    why = campaign.failure
    return NotYetError(subject, f"it failed, so there is no report: {why.subject}: {why.cause}", why.remedy)
