"""Answers people's requests about campaigns from the store. Plain functions of a record; may block.

Statuses of campaigns are made once for all callers: counted by the database, kept until they change.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay_core.files.durable import storage_errors
from assay_core.records.campaign import (
    ENDED_CAMPAIGNS,
    AttemptState,
    CampaignsPage,
    CampaignState,
    CampaignStatus,
    Estimate,
    NamedCampaign,
    Overview,
    ReportChunk,
    ReportRequest,
    RunState,
    RunStatus,
    SetAside,
    SlotRest,
    StatusRequest,
    Submission,
    Submitted,
    WaitingRuns,
)
from assay_core.records.runs import AttemptDetail, NamedRun, RunDetail, RunsAction, RunsAnswer, RunsRequest
from assay_server.access.caller import current_caller, sight_of
from assay_server.campaigns.analysing.job import Pages
from assay_server.campaigns.carry_out import RequestRunner
from assay_server.campaigns.errors import NotYetError, known_campaign, unknown_run
from assay_server.campaigns.ingest.lost_records import changed_files
from assay_server.campaigns.planning.forecast import Analysed, Elsewhere, estimate, estimate_of_analysis
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.resting import Rest
from assay_server.campaigns.scheduling.waiting import Lab, slots_by_gpu, wait_reasons, waiting_alike
from assay_server.campaigns.submit import submit
from assay_server.limits import DEFAULT_LIMITS, QueryLimits
from assay_server.store.model import Attempt, Campaign, Hold, Need, Run, Sight, need_of
from assay_server.store.parts.campaigns import CampaignOverview
from assay_server.store.parts.overviews import EVERY_RUN, RunFilter, RunOverview, WorkloadCost
from assay_server.store.quarantine_files import MovedFiles
from assay_server.store.sql import SqlTransaction

_CHUNK_BYTES = 1 << 20
_MOST_NAMES = 20
# The reason for waiting also depends on time: agents go away, slots rest.
_KEPT_SECONDS = 5.0
# The status of a large campaign takes a good part of a second to make. For those who follow the campaign,
# however many, the server rests for ten times as long before it makes the next.
_REST_RATIO = 10.0
# What a large campaign costs is read from all of its attempts: not with every run that ends.
_LARGE_RUNS = 5_000
_COSTS_KEPT_SECONDS = 15.0
_EARLIER_CAMPAIGNS = 3
_MOST_KEPT = 256

_Kind = tuple[Need, str, bool, RunState, Collection[Hold]]


def campaign_status(
    campaign: Campaign | CampaignOverview,
    counts: Mapping[RunState, int],
    resting: tuple[SlotRest, ...] = (),
    runs_paused: int = 0,
    **more: Any,
) -> CampaignStatus:
    """The status of a campaign without its runs.

    ``resting``: the server's slots that rest; ``runs_paused``: runs that are paused themselves; ``more``: the
    other fields.
    """
    return CampaignStatus.like(
        campaign,
        runs_total=sum(counts.values()),
        runs_done=counts.get(RunState.DONE, 0),
        runs_failed=counts.get(RunState.FAILED, 0),
        runs_running=counts.get(RunState.RUNNING, 0),
        runs_cancelled=counts.get(RunState.CANCELLED, 0),
        runs_paused=runs_paused,
        resting=resting if campaign.state is CampaignState.RUNNING else (),
        **more,
    )


def slot_rests(rests: Iterable[Rest], now_ms: int) -> tuple[SlotRest, ...]:
    """Slots that rest, and for how much longer."""
    return tuple(
        SlotRest(each.agent_name, each.slot_id, each.failures, max(0, each.until_ms - now_ms), each.why)
        for each in rests
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


@dataclass
class _Summary:
    lock: threading.Lock = field(default_factory=threading.Lock)
    last_change: int = -1  # when it was made
    made_at: float = 0.0
    took_seconds: float = 0.0
    status: CampaignStatus | None = None
    costs_at: float = 0.0
    costs: list[WorkloadCost] | None = None
    earlier: Elsewhere | None = None


def _measured(store: SqlTransaction, campaign_id: str) -> Counter[_Kind]:
    """How many runs are measured now, by kind: a budget that is used up does not keep these from ending."""
    attempts = store.attempts_in((AttemptState.LEASED, AttemptState.PUBLISHING))
    run_ids = {attempt.key.run_id for attempt in attempts}
    runs = [run for run_id in run_ids if (run := store.run(run_id)) is not None]
    return Counter(_kind_of(run) for run in runs if run.campaign_id == campaign_id)


def _kind_of(run: Run) -> _Kind:
    """What runs that wait for one reason have in common."""
    return need_of(run), run.device_kind, run.synthetic, run.state, run.holds


class StatusBoard:
    """Statuses without runs. Thread-safe; only one thread makes each."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._lock = threading.Lock()
        self._summaries: dict[str, _Summary] = {}

    def status(self, campaign_id: str, *, following: bool = False) -> CampaignStatus:
        """The status now, or, for a caller that is ``following`` the campaign, of a moment ago.

        Raises UnknownThingError if there is no such campaign.
        """
        summary = self._summary(campaign_id)
        with summary.lock:
            last_change, now = self._coordinator.last_change(campaign_id), time.monotonic()
            lifetime_seconds = _KEPT_SECONDS
            if summary.last_change != last_change:
                lifetime_seconds = (
                    min(_REST_RATIO * summary.took_seconds, lifetime_seconds) if following else 0.0
                )
            fresh = now - summary.made_at < lifetime_seconds
            if summary.status is None or not fresh:
                try:
                    summary.status = self._made(campaign_id)
                except BaseException:
                    with self._lock:
                        self._summaries.pop(campaign_id, None)
                    raise
                summary.last_change, summary.made_at = last_change, time.monotonic()
                summary.took_seconds = summary.made_at - now
            return summary.status

    def _summary(self, campaign_id: str) -> _Summary:
        with self._lock:
            if campaign_id not in self._summaries and len(self._summaries) >= _MOST_KEPT:
                self._summaries.pop(next(iter(self._summaries)))
            return self._summaries.setdefault(campaign_id, _Summary())

    def _made(self, campaign_id: str) -> CampaignStatus:
        with self._coordinator.snapshot() as store:
            campaign = known_campaign(store.campaign(campaign_id), campaign_id)
            counts, progress = store.run_counts(campaign_id), store.progress(campaign_id)
            paused = store.paused_runs([campaign_id]).get(campaign_id, 0)
            lab = self._coordinator.lab(store)
            costs = self._costs(store, campaign, sum(counts.values()))
            runs = [run for run, _ in progress.needs]
            line = self._coordinator.line(store, campaign, runs)
            earlier = self._earlier(store, campaign)
            is_analysed = campaign.state is CampaignState.ANALYSING
            last_ended_ms, launches = store.measured(campaign_id) if is_analysed else (0, 0)
            measured = _measured(store, campaign_id) if line.budget_left_hours <= 0 else {}
        waiting: tuple[WaitingRuns, ...] = ()
        eta = Estimate()
        if campaign.state is CampaignState.RUNNING:
            reasons = wait_reasons(runs, lab, line, campaign.paused, progress.awaiting_light)
            eta = _eta(campaign, costs, lab, replace(earlier, runs=runs))
            waiting = tuple(
                WaitingRuns(reasons[run.run_id].text, run.run_id, count, reasons[run.run_id].kind)
                for run, runs_alike in waiting_alike(progress.needs, line)
                if run.run_id in reasons and (count := runs_alike - measured.get(_kind_of(run), 0)) > 0
            )
        elif campaign.state is CampaignState.ANALYSING:
            eta = estimate_of_analysis(launches, (lab.now_ms - last_ended_ms) / 1000, earlier.analysed)
        return campaign_status(
            campaign,
            counts,
            slot_rests(lab.resting.values(), lab.now_ms),
            paused,
            slices=progress.slices,
            slices_done=progress.slices_done,
            retries=progress.retries,
            waiting=waiting,
            gpu_seconds=sum(cost.gpu_seconds for cost in costs),
            eta=eta,
        )

    def _costs(self, store: SqlTransaction, campaign: Campaign, runs: int) -> list[WorkloadCost]:
        """What the campaign costs; of a large one that runs, as of a moment ago."""
        summary, now = self._summary(campaign.campaign_id), time.monotonic()
        recent = now - summary.costs_at < _COSTS_KEPT_SECONDS
        runs_on = campaign.state is CampaignState.RUNNING and runs > _LARGE_RUNS
        if summary.costs is None or not (recent and runs_on):
            now_ms = self._coordinator.clock.now_ms()
            summary.costs, summary.costs_at = store.workload_costs(campaign.campaign_id, now_ms), now
        return summary.costs

    def _earlier(self, store: SqlTransaction, campaign: Campaign) -> Elsewhere:
        """What earlier campaigns of the name tell of one that has not ended, read once."""
        if campaign.state not in (CampaignState.RUNNING, CampaignState.ANALYSING):
            return Elsewhere()
        summary = self._summary(campaign.campaign_id)
        if summary.earlier is None:
            summary.earlier = _earlier_of_name(store, campaign, self._coordinator.clock.now_ms())
        return summary.earlier


def _earlier_of_name(store: SqlTransaction, campaign: Campaign, now_ms: int) -> Elsewhere:
    """Of the newest campaigns of the name and project before this one."""
    costs: list[WorkloadCost] = []
    analysed: Analysed | None = None
    for number in range(campaign.number - 1, max(0, campaign.number - 1 - _EARLIER_CAMPAIGNS), -1):
        earlier = store.campaign(f"{campaign.name}-{number}")
        if earlier is not None and (earlier.owner, earlier.project) == (campaign.owner, campaign.project):
            costs += store.workload_costs(earlier.campaign_id, now_ms)
            ended_at_ms, launches = store.measured(earlier.campaign_id)
            if analysed is None and earlier.has_report and earlier.ended_at_ms > ended_at_ms > 0:
                analysed = Analysed((earlier.ended_at_ms - ended_at_ms) / 1000, launches)
    return Elsewhere(tuple(costs), analysed=analysed)


def _eta(campaign: Campaign, costs: list[WorkloadCost], lab: Lab, elsewhere: Elsewhere) -> Estimate:
    """Until the open slices of a campaign are done, if it has the lab for itself."""
    if campaign.paused:
        return Estimate(missing="it is paused")
    slicing = campaign.compiled.slicing
    return estimate(
        costs, slots_by_gpu(lab), at_least=slicing is not None and not slicing.is_fixed, elsewhere=elsewhere
    )


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
        self._coordinator, self._limits = coordinator, limits
        self._requests = requests or RequestRunner(coordinator)
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
            runs = self._run_statuses(store, campaign, overviews, campaign.state is CampaignState.RUNNING)
        return self._board.status(request.campaign_id), runs

    def _run_statuses(
        self, store: SqlTransaction, campaign: Campaign, overviews: Sequence[RunOverview], may_wait: bool
    ) -> list[RunStatus]:
        """Runs of a campaign; if it may have waiting ones, with what each waits for."""
        runs = [overview.run for overview in overviews]
        line = self._coordinator.line(store, campaign, runs)
        lab = self._coordinator.lab(store)
        # Only runs whose light run decides their slices have none.
        unsliced = {each.run.run_id for each in overviews if not each.slices}
        reasons = wait_reasons(runs if may_wait else [], lab, line, campaign.paused, unsliced)
        texts = {run_id: reason.text for run_id, reason in reasons.items()}
        return [
            RunStatus.like(each, each.run, waiting_for=texts.get(each.run.run_id, "")) for each in overviews
        ]

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
            campaign = known_campaign(store.campaign(run.campaign_id), run.campaign_id)
            overviews = store.run_overviews(run.campaign_id, run.run_id)
            [status] = self._run_statuses(store, campaign, overviews, may_wait=True)
            attempts, slices = store.attempts(run.run_id), store.slices(run.run_id)
        return RunDetail(
            run=status,
            attempts=tuple(attempt_detail(attempt) for attempt in attempts),
            files=tuple(f"records/{piece.file}" for piece in slices if piece.file),
        )

    def report(self, request: ReportRequest) -> Iterator[ReportChunk]:
        """The report in chunks, then which of its records changed; without one, the report of what is there.

        Raises CampaignError if the campaign has no data yet.
        """
        path = self._coordinator.records.report_path(request.campaign_id or "-", request.form)
        with self._coordinator.snapshot() as store:
            campaign = known_campaign(store.campaign(request.campaign_id), request.campaign_id)
        if not campaign.has_report:
            # An analysing campaign has its report in a moment, and a failed one says why it has none.
            unfinished = campaign.state in (CampaignState.RUNNING, CampaignState.CANCELLED)
            pages = self._report_so_far(campaign.campaign_id) if unfinished else None
            if pages is None:
                raise _no_report(campaign)
            document, page, _ = pages
            data = page if request.form == "html" else document
            for start in range(0, len(data), _CHUNK_BYTES):
                yield ReportChunk(data[start : start + _CHUNK_BYTES])
            return
        with storage_errors(path), path.open("rb") as file:
            while data := file.read(_CHUNK_BYTES):
                yield ReportChunk(data)
        changed = changed_files(self._coordinator, campaign.campaign_id)
        if changed:
            yield ReportChunk(changed=tuple(changed))


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
