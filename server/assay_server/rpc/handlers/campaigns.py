"""Answers people's requests about campaigns from the store. Plain functions of a record; may block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from assay_core.files.durable import storage_errors
from assay_core.records.campaign import (
    ENDED_CAMPAIGNS,
    CampaignsPage,
    CampaignState,
    CampaignStatus,
    NamedCampaign,
    Overview,
    ReportChunk,
    ReportRequest,
    RunStatus,
    StatusRequest,
    Submission,
    Submitted,
)
from assay_core.records.runs import NamedRun, RunDetail, RunsAction, RunsAnswer, RunsRequest
from assay_server.access.caller import current_caller
from assay_server.access.rights import sight_of
from assay_server.campaigns.analysing.job import Pages
from assay_server.campaigns.carry_out import RequestRunner
from assay_server.campaigns.errors import NotYetError, known_campaign, unknown_run
from assay_server.campaigns.ingest.lost_records import changed_files
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.waiting import wait_reasons
from assay_server.campaigns.submit import submit
from assay_server.limits import DEFAULT_LIMITS, QueryLimits
from assay_server.rpc.handlers.statuses import (
    StatusBoard,
    attempt_detail,
    campaign_status,
    run_status,
    seen_runs,
    set_aside,
    slot_rests,
)
from assay_server.store.model import Campaign
from assay_server.store.overviews import EVERY_RUN, RunFilter

_CHUNK_BYTES = 1 << 20


class CampaignHandler:
    """Submit, list, status, pause, resume, cancel, retry, run and report.

    ``so_far`` makes the report of what a campaign has now, None while it has no data.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        limits: QueryLimits = DEFAULT_LIMITS.queries,
        requests: RequestRunner | None = None,
        so_far: Callable[[str], Pages | None] = lambda campaign_id: None,
    ) -> None:
        self._coordinator = coordinator
        self._requests = requests or RequestRunner(coordinator)
        self._limits = limits
        self._report_so_far = so_far
        self._board = StatusBoard(coordinator)

    def submit(self, submission: Submission) -> Submitted:
        """Plan a campaign, or tell the folders to send first; raises CampaignError naming line and field."""
        return submit(self._coordinator, submission)

    def list_campaigns(self, page: CampaignsPage) -> Overview:
        """A page of the campaigns, and news about the whole server."""
        longest = self._limits.status_page_campaigns
        most = max(1, min(page.most or longest, longest))
        sight = sight_of(current_caller())
        now_ms, rests = self._coordinator.clock.now_ms(), self._coordinator.resting().values()
        with self._coordinator.snapshot() as store:
            batch = store.campaigns(first=max(0, page.first), most=most + 1, sight=sight)
            this_page, next_page = batch[:most], batch[most:]
            counts = store.counts_of_runs([campaign.campaign_id for campaign in this_page])
            names = {agent.agent_id: agent.name for agent in store.agents()}
            paused = store.paused_runs([campaign.campaign_id for campaign in this_page])
            changed = self._coordinator.changed_records.all()
            seen = seen_runs(store, [each.run_id for each in changed], sight)
        moved = [set_aside(each) for each in self._coordinator.records.all_set_aside()]
        return Overview(
            campaigns=tuple(
                campaign_status(each, counts[each.campaign_id], runs_paused=paused.get(each.campaign_id, 0))
                for each in this_page
            ),
            resting=slot_rests(rests, now_ms),
            # Their names name runs.
            set_aside=tuple(moved if sight.everything else (replace(each, names=()) for each in moved)),
            changed=tuple(each for each in changed if each.run_id in seen),
            campaigns_next=next_page[0].ordinal if next_page else 0,
            shortage=self._coordinator.capacity.shortage,
            spools=self._coordinator.last_heard.noteworthy_spools(names, now_ms),
        )

    def status(self, request: StatusRequest) -> CampaignStatus:
        """The campaign with a page of its runs; raises CampaignError if no campaign has that name."""
        if request.without_runs:
            return self._board.status(request.campaign_id, following=request.following)
        status, runs = self._with_runs(request, EVERY_RUN)
        end = max(0, request.first) + len(runs)
        return replace(status, runs=tuple(runs), runs_next=end if end < status.runs_total else 0)

    def chosen_runs(self, request: StatusRequest, chosen: RunFilter) -> tuple[CampaignStatus, int]:
        """The campaign with a page of the runs that a filter chooses, and how many it chooses.

        The request's first run is the place among these. Raises CampaignError.
        """
        status, runs = self._with_runs(request, chosen)
        with self._coordinator.snapshot() as store:
            matching = store.runs_chosen(request.campaign_id, chosen)
        return replace(status, runs=tuple(runs)), matching

    def _with_runs(self, request: StatusRequest, chosen: RunFilter) -> tuple[CampaignStatus, list[RunStatus]]:
        most = min(request.most or self._limits.status_page_runs, self._limits.status_page_runs)
        with self._coordinator.snapshot() as store:
            campaign = known_campaign(store.campaign(request.campaign_id), request.campaign_id)
            overviews = store.run_overviews(
                campaign.campaign_id, first=max(0, request.first), most=max(1, most), chosen=chosen
            )
            runs = [overview.run for overview in overviews]
            lab, line = self._coordinator.lab(store), self._coordinator.line(store, campaign, runs)
        open_runs = runs if campaign.state is CampaignState.RUNNING else []
        # Only runs whose light run decides their slices have none.
        unsliced = {each.run.run_id for each in overviews if not each.slices}
        waiting = wait_reasons(open_runs, lab, line, campaign.paused, unsliced)
        status = self._board.status(request.campaign_id)
        return status, [run_status(each, waiting.get(each.run.run_id)) for each in overviews]

    def cancel(self, request: NamedCampaign) -> CampaignStatus:
        self._requests.ask(RunsAction.CANCEL, RunsRequest(request.campaign_id))
        return self.status(StatusRequest(request.campaign_id))

    def carry_out(self, action: RunsAction, runs_request: RunsRequest) -> RunsAnswer:
        """The answer to a request about runs, once it is carried out.

        They are paused, resumed, stopped for good, or failed and cancelled ones wait again. Raises
        RefusedError if there are none, to be paused and resumed also if their campaign is paused.
        """
        request = self._requests.ask(action, runs_request)
        return RunsAnswer(
            self._board.status(runs_request.campaign_id),
            request.runs_changed,
            request.attempts_ended,
            self._requests.running(runs_request),
        )

    def run(self, request: NamedRun) -> RunDetail:
        """A run with its attempts and published files; raises CampaignError if no run has that name."""
        with self._coordinator.snapshot() as store:
            run = store.run(request.run_id)
            if run is None:
                raise unknown_run(request.run_id)
            [overview] = store.run_overviews(run.campaign_id, run.run_id)
            attempts = store.attempts(run.run_id)
            slices = store.slices(run.run_id)
            campaign = known_campaign(store.campaign(run.campaign_id), run.campaign_id)
            lab, line = self._coordinator.lab(store), self._coordinator.line(store, campaign, [run])
        waiting = wait_reasons([run], lab, line, campaign.paused, [] if slices else [run.run_id])
        return RunDetail(
            run=run_status(overview, waiting.get(run.run_id)),
            attempts=tuple(attempt_detail(attempt) for attempt in attempts),
            files=tuple(f"records/{piece.file}" for piece in slices if piece.file),
        )

    def report(self, request: ReportRequest) -> Iterator[ReportChunk]:
        """The report in chunks, then which of its records changed; raises CampaignError without a report."""
        path = self._coordinator.records.report_path(request.campaign_id or "-", request.form)
        with self._coordinator.snapshot() as store:
            campaign = known_campaign(store.campaign(request.campaign_id), request.campaign_id)
        if not campaign.has_report:
            yield from self._so_far(campaign, request)
            return
        with storage_errors(path), path.open("rb") as file:
            while data := file.read(_CHUNK_BYTES):
                yield ReportChunk(data)
        changed = changed_files(self._coordinator, campaign.campaign_id)
        if changed:
            yield ReportChunk(changed=tuple(changed))

    def _so_far(self, campaign: Campaign, request: ReportRequest) -> Iterator[ReportChunk]:
        """The report of what is there, in chunks; raises CampaignError if the campaign has no data yet."""
        pages = self._report_so_far(campaign.campaign_id) if campaign.state in _UNFINISHED else None
        if pages is None:
            raise _no_report(campaign)
        document, page, _ = pages
        data = page if request.form == "html" else document
        for start in range(0, len(data), _CHUNK_BYTES):
            yield ReportChunk(data[start : start + _CHUNK_BYTES])


# An analysing campaign has its report in a moment, and a failed one says why it has none.
_UNFINISHED = (CampaignState.RUNNING, CampaignState.CANCELLED)


def _no_report(campaign: Campaign) -> NotYetError:
    subject = f"campaign {campaign.campaign_id}"
    if campaign.state not in ENDED_CAMPAIGNS:
        return NotYetError(
            subject,
            f"it is still {campaign.state}, so there is no report yet",
            f"wait for it: assay lab status {campaign.campaign_id} --follow",
        )
    if campaign.failure is None:
        return NotYetError(subject, f"it was {campaign.state}, so there is no report", "submit it again")
    why = campaign.failure
    return NotYetError(subject, f"it failed, so there is no report: {why.subject}: {why.cause}", why.remedy)
