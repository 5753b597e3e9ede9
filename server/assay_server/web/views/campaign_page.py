"""The page of a campaign: what it does now, what is wrong, and its results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

from assay_core.records.campaign import (
    AttemptState,
    CampaignState,
    ReportRequest,
    RunState,
    StatusRequest,
)
from assay_core.records.runs import RunsRequest
from assay_sampling.verdicts.rules import GOAL_ERROR_PERCENT
from assay_server.campaigns.errors import NotYetError, UnknownThingError, known_campaign, unknown_run
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.rpc.handlers.campaigns import CampaignHandler
from assay_server.store.model import ACTIVE_ATTEMPTS, Attempt, Campaign, Run, Slice
from assay_server.store.sql import SqlTransaction
from assay_server.web.activity import Pulse
from assay_server.web.report_processes import Source, Studio
from assay_server.web.views.attention import MOST_REASONS, Reason, reasons
from assay_server.web.views.cells import (
    BY_ERROR,
    BY_NAME,
    EVERY_METHOD,
    STANDINGS,
    Cell,
    GpuSummary,
    Standing,
    by_gpu,
    cells_of,
    matching,
    method_of,
)
from assay_server.web.views.filters import NO_FILTER, Choice, Filter, choice, page_of
from assay_server.web.views.region import Drawing, Region
from assay_server.web.views.results import Results, stored_results
from assay_server.web.views.so_far import ResultsSoFar, SoFar
from assay_server.web.views.templating import part, rows

PAUSED = "paused"
_MOST_RUNNING = 200
_CELLS_OF_A_PAGE = 100
_ORDER = (RunState.RUNNING, RunState.WAITING, RunState.DONE, RunState.FAILED, RunState.CANCELLED)


@dataclass(frozen=True)
class Past:
    """A campaign in the history of its name: when it was submitted (Unix time), and its results by GPU."""

    created_at_ms: int
    gpus: tuple[GpuSummary, ...]


class CampaignPage:
    """Draws the page of a campaign. Thread-safe; may block."""

    def __init__(
        self,
        coordinator: Coordinator,
        campaigns: CampaignHandler,
        pulse: Pulse,
        so_far: ResultsSoFar,
        studio: Studio,
    ) -> None:
        self._coordinator = coordinator
        self._campaigns = campaigns
        self._pulse = pulse
        self._so_far = so_far
        self._studio = studio

    def past(self, campaign_id: str) -> Past:
        """What the history of a name shows of a campaign; raises UnknownThingError."""
        campaign = self._campaign(campaign_id)
        results = stored_results(self._coordinator.records, campaign)
        return Past(campaign.created_at_ms, tuple(by_gpu(cells_of((), results, ended=True))))

    def run_choices(self, campaign_id: str) -> tuple[Choice, ...]:
        """What the runs of a campaign can be filtered by."""
        with self._coordinator.snapshot() as store:
            alike, noted = store.runs_alike(campaign_id), store.noted_runs(campaign_id)
        states = {each.state for each in alike}
        return (
            choice("gpu", "GPU", list(dict.fromkeys(each.device_kind for each in alike))),
            choice("state", "State", [*(str(each) for each in _ORDER if each in states), PAUSED]),
            choice("flag", "Flag", sorted({flag.name for each in noted for flag in each.flags})),
        )

    def _campaign(self, campaign_id: str) -> Campaign:
        with self._coordinator.snapshot() as store:
            return known_campaign(store.campaign(campaign_id), campaign_id)

    def of_run(self, run_id: str) -> str:
        """The campaign of a run; raises UnknownThingError."""
        with self._coordinator.snapshot() as store:
            campaign_id = store.campaign_of(run_id)
        if campaign_id is None:
            raise unknown_run(run_id)
        return campaign_id

    def files_of(self, run_id: str) -> list[Slice]:
        """The slices of a run that have published files."""
        with self._coordinator.snapshot() as store:
            return [each for each in store.slices(run_id) if each.file]

    def record_file(
        self, campaign_id: str, run_id: str, index: int
    ) -> tuple[Path, Slice, Callable[[], None]]:
        """A published file, its slice, and what to call once it was read.

        Raises UnknownThingError if the campaign has no such file.
        """
        if self.of_run(run_id) != campaign_id:
            raise unknown_run(run_id)
        piece = next((each for each in self.files_of(run_id) if each.index == index), None)
        if piece is None:
            raise UnknownThingError(
                f"records of run {run_id[:100]!r}",
                "the server has published no such file",
                "see the files of the campaign",
            )
        with contextlib.ExitStack() as files:
            path = files.enter_context(self._coordinator.records.reading(piece.file))
            return path, piece, files.pop_all().close

    def report(self, request: ReportRequest) -> Path | bytes:
        """The file of a stored report, or the content of one of what is there so far.

        Raises NotYetError if there is neither.
        """
        chunks = self._campaigns.report(request)
        first = next(chunks, None)  # raises what is wrong
        if self._campaign(request.campaign_id).has_report:
            return self._coordinator.records.report_path(request.campaign_id, request.form)
        return b"".join(chunk.data for chunk in (first, *chunks) if chunk is not None)

    def report_rows(self, campaign_id: str) -> Path | None:
        """The Parquet file of a stored report; None before there is one. Raises UnknownThingError."""
        if not self._campaign(campaign_id).has_report:
            return None
        return self._coordinator.records.report_path(campaign_id, "parquet")

    def figure_source(self, campaign_id: str) -> Source:
        """The report whose figures the campaign's page shows; raises NotYetError, UnknownThingError."""
        campaign = self._campaign(campaign_id)
        so_far = self._so_far.of(campaign_id) if _has_more_to_come(campaign) else None
        source = self._figure_source(campaign, so_far)
        if source is None:
            raise NotYetError(f"campaign {campaign_id}", "it has no figures yet", "see its page")
        return source

    def _figure_source(self, campaign: Campaign, so_far: SoFar | None) -> Source | None:
        """None without a report."""
        if so_far is not None:
            return Source(campaign.campaign_id, so_far.key, so_far.document) if so_far.document else None
        if not campaign.has_report:
            return None
        path = self._coordinator.records.report_path(campaign.campaign_id, "json")
        try:
            state = path.stat()
        except OSError:
            return None
        return Source(campaign.campaign_id, f"{state.st_mtime_ns:x}-{state.st_size:x}", path)

    def drawn(self, campaign_id: str, acts: bool, first: int = 0, page_filter: Filter = NO_FILTER) -> Drawing:
        """The page with the workloads that a filter asks for, from the place ``first`` on.

        Raises UnknownThingError if there is no such campaign.
        """
        status = self._campaigns.status(StatusRequest(campaign_id, without_runs=True))
        with self._coordinator.snapshot() as store:
            campaign = known_campaign(store.campaign(campaign_id), campaign_id)
            alike = store.runs_alike(campaign_id)
            noted = store.noted_runs(campaign_id)
            active = [] if status.ended else _active(store, campaign_id)
        so_far = self._so_far.of(campaign_id) if _has_more_to_come(campaign) else None
        records = self._coordinator.records
        results = stored_results(records, campaign) if so_far is None else so_far.results
        lacking = None if so_far is None else so_far.open_cells
        cells_by = partial(cells_of, alike, results, ended=status.ended, so_far=lacking)
        method = method_of(page_filter, results, so_far=so_far is not None)
        summary = cells_by()
        cells = cells_by(method=method) if method else summary
        shown = page_of(matching(cells, page_filter), first, _CELLS_OF_A_PAGE, len(cells))
        shared = {"c": status, "campaign": campaign, "acts": acts, "so_far": so_far, "results": results}
        regions = {
            "state": part("state", **shared, ingest=self._pulse.ingest(campaign_id)),
            "actions": part("actions", **shared),
            "verdict": part(
                "verdict",
                **shared,
                gpus=by_gpu(summary),
                words=STANDINGS,
                early=sum(each.standing is Standing.TO_COME for each in summary),  # lack runs
                of=len(summary),
            ),
            "now": part("now", active=active, most=_MOST_RUNNING),
            "waiting": part("waiting", c=status),
            "noted": _attention(campaign_id, reasons(noted)),
            "figures": self._figures(campaign, so_far, {each.workload for each in shown.entries}),
            "shown": part("shown", shown=shown, filter=page_filter, path=f"/campaigns/{quote(campaign_id)}"),
            "workloads": _workloads(shown.entries, **shared),
        }
        facts = {
            **shared,
            "filter": page_filter,
            "choices": _choices(cells, results),
            "some": bool(shown.total),
        }
        return Drawing(status.campaign_id, "campaign.html.j2", regions, facts)

    def _figures(self, campaign: Campaign, so_far: SoFar | None, workloads: Set[str]) -> Region:
        """The figures of the campaign, and of these workloads."""
        source = self._figure_source(campaign, so_far)
        all_figures = None if source is None else self._studio.figures(source)
        figures = all_figures and [
            each for each in all_figures if not each.workload or each.workload in workloads
        ]
        return part(
            "figures",
            campaign_id=campaign.campaign_id,
            source=source,
            figures=figures,
            so_far=so_far is not None,
        )


def _has_more_to_come(campaign: Campaign) -> bool:
    """Whether the campaign has what it has so far, instead of a report of all."""
    cancelled = campaign.state is CampaignState.CANCELLED and not campaign.has_report
    return cancelled or campaign.state is CampaignState.RUNNING


def _active(store: SqlTransaction, campaign_id: str) -> list[tuple[Attempt, Run]]:
    """What is measured now, with its run."""
    states: tuple[AttemptState, ...] = ACTIVE_ATTEMPTS
    attempts = store.requested_attempts(RunsRequest(campaign_id), states)[: _MOST_RUNNING + 1]
    return [(each, run) for each in attempts if (run := store.run(each.key.run_id)) is not None]


def _attention(campaign_id: str, run_reasons: Sequence[Reason]) -> Region:
    unlisted = {run_id for each in run_reasons[MOST_REASONS:] for run_id in each.run_ids}
    return part(
        "noted",
        campaign_id=campaign_id,
        reasons=run_reasons,
        most=MOST_REASONS,
        unlisted_runs=len(unlisted),
    )


def _workloads(cells: Sequence[Cell], **facts: object) -> Region:
    """A row for each cell; the first of each workload has its buttons."""
    firsts = {each.workload: each for each in reversed(cells)}
    values = {
        each.key: {
            "cell": each,
            "total": sum(each.runs.values()),
            "ended": each.runs.get(RunState.DONE, 0),
            "states": [(state, each.runs[state]) for state in _ORDER if each.runs.get(state)],
            "has_buttons": firsts[each.workload] is each,
        }
        for each in cells
    }
    return rows("cell", values, words=STANDINGS, goal=GOAL_ERROR_PERCENT, **facts)


def _choices(cells: Sequence[Cell], results: Results) -> tuple[Choice, ...]:
    """What the workloads of a campaign can be filtered by."""
    standings = {each.standing for each in cells}
    states = {str(each): STANDINGS[each] for each in STANDINGS if each in standings}
    runs = {state for each in cells for state in each.runs}
    states |= {str(each): f"runs {each}" for each in _ORDER if each in runs and str(each) not in states}
    methods = dict.fromkeys(each.method for each in results.every)
    return (
        choice("gpu", "GPU", list(dict.fromkeys(each.device for each in cells))),
        choice("state", "State", states),
        choice("flag", "Flag", sorted({flag for each in results.every for flag in each.flags})),
        choice("method", "Method", {EVERY_METHOD: "every method", **{each: each for each in methods}}),
        choice("sort", "Order", {BY_ERROR: "largest error first", BY_NAME: "by name"}),
    )
