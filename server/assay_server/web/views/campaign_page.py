"""The page of a campaign: what it does now, what is wrong, and its results."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from assay_core.records.archive import RecordFile
from assay_core.records.campaign import (
    AttemptState,
    CampaignState,
    CampaignStatus,
    ReportRequest,
    RunState,
    StatusRequest,
)
from assay_core.records.runs import RunsRequest
from assay_sampling.verdicts.rules import GOAL_ERROR_PERCENT
from assay_server.campaigns.errors import NotYetError, UnknownThingError, known_campaign, unknown_run
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.rpc.campaign_handler import CampaignHandler
from assay_server.store.model import ACTIVE_ATTEMPTS, OPEN_RUNS, Attempt, Campaign, Run
from assay_server.store.sql import SqlTransaction
from assay_server.store.values.overviews import RunsAlike
from assay_server.web.activity import Pulse
from assay_server.web.figures.figure_worker import Source, Studio
from assay_server.web.views.attention import MOST_REASONS, Reason, reasons
from assay_server.web.views.region import Drawing, Region
from assay_server.web.views.results import Result, Results, ResultsCache
from assay_server.web.views.so_far import ResultsSoFar, SoFar
from assay_server.web.views.templating import element_id, rendered

_MOST_RUNNING = 200
_ORDER = (RunState.RUNNING, RunState.WAITING, RunState.DONE, RunState.FAILED, RunState.CANCELLED)


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
        self._results = ResultsCache(coordinator.records)

    def of_run(self, run_id: str) -> str:
        """The campaign of a run; raises UnknownThingError."""
        with self._coordinator.snapshot() as store:
            found = store.campaign_of(run_id)
        if found is None:
            raise unknown_run(run_id)
        return found

    def files_of(self, run_id: str) -> list[RecordFile]:
        """The published files of a run."""
        with self._coordinator.snapshot() as store:
            run = store.run(run_id)
            pieces = store.slices(run_id)
        workload = "" if run is None else run.workload
        return [
            RecordFile(
                run_id, workload, each.index, each.file, each.file_bytes, each.content_hash, each.launches
            )
            for each in pieces
            if each.file
        ]

    def record_file(
        self, campaign_id: str, run_id: str, index: int
    ) -> tuple[Path, RecordFile, Callable[[], None]]:
        """A published file, and what to call once it was read.

        Raises UnknownThingError if the campaign has no such file.
        """
        if self.of_run(run_id) != campaign_id:
            raise unknown_run(run_id)
        found = next((each for each in self.files_of(run_id) if each.slice == index), None)
        if found is None:
            raise UnknownThingError(
                f"records of run {run_id[:100]!r}",
                "the server has published no such file",
                "see the files of the campaign",
            )
        with contextlib.ExitStack() as held:
            path = held.enter_context(self._coordinator.records.reading(found.file))
            return path, found, held.pop_all().close

    def report(self, asked: ReportRequest) -> Path | bytes:
        """The file of a stored report, or the content of one of what is there so far.

        Raises NotYetError if there is neither.
        """
        chunks = self._campaigns.report(asked)
        first = next(chunks, None)  # raises what is wrong
        with self._coordinator.snapshot() as store:
            campaign = known_campaign(store.campaign(asked.campaign_id), asked.campaign_id)
        if campaign.has_report:
            return self._coordinator.records.report_path(asked.campaign_id, asked.form)
        return b"".join(chunk.data for chunk in (first, *chunks) if chunk is not None)

    def report_rows(self, campaign_id: str) -> Path | None:
        """The Parquet file of a stored report; None before there is one. Raises UnknownThingError."""
        with self._coordinator.snapshot() as store:
            campaign = known_campaign(store.campaign(campaign_id), campaign_id)
        if not campaign.has_report:
            return None
        return self._coordinator.records.report_path(campaign_id, "parquet")

    def figure_source(self, campaign_id: str) -> Source:
        """The report whose figures the campaign's page shows; raises NotYetError, UnknownThingError."""
        with self._coordinator.snapshot() as store:
            campaign = known_campaign(store.campaign(campaign_id), campaign_id)
        so_far = self._so_far.of(campaign_id) if _has_more_to_come(campaign) else None
        found = self._figure_source(campaign, so_far)
        if found is None:
            raise NotYetError(f"campaign {campaign_id}", "it has no figures yet", "see its page")
        return found

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

    def drawn(self, campaign_id: str, acts: bool) -> Drawing:
        """Raises UnknownThingError if there is no such campaign."""
        status = self._campaigns.status(StatusRequest(campaign_id, without_runs=True))
        with self._coordinator.snapshot() as store:
            campaign = known_campaign(store.campaign(campaign_id), campaign_id)
            alike = store.runs_alike(campaign_id)
            noted = store.noted_runs(campaign_id)
            active = [] if status.ended else _active(store, campaign_id)
        shown = self._results.of(campaign) if campaign.has_report else Results()
        so_far = self._so_far.of(campaign_id) if _has_more_to_come(campaign) else None
        results = so_far.results if so_far is not None else shown
        source = self._figure_source(campaign, so_far)
        figures = None if source is None else self._studio.figures(source)
        ingest = self._pulse.ingest(campaign_id)
        # What is refused for want of runs that are still to come is not wrong yet.
        open_cells = {(each.workload, each.device_kind) for each in alike if each.state in OPEN_RUNS}
        given = {"c": status, "campaign": campaign, "acts": acts}
        judged = {"open_cells": open_cells if so_far is not None else set(), "goal": GOAL_ERROR_PERCENT}
        regions = {
            "state": Region({"": rendered("part_state.html.j2", **given, ingest=ingest)}),
            "actions": Region({"": rendered("part_actions.html.j2", **given)}),
            "now": Region({"": rendered("part_now.html.j2", active=active, most=_MOST_RUNNING)}),
            "waiting": Region({"": rendered("part_waiting.html.j2", c=status)}),
            "noted": Region({"": _attention(campaign_id, reasons(noted))}),
            "results": Region(
                {"": rendered("part_results.html.j2", **given, **judged, results=results, so_far=so_far)}
            ),
            "figures": Region(
                {
                    "": rendered(
                        "part_figures.html.j2",
                        c=status,
                        source=source,
                        figures=figures,
                        so_far=so_far is not None,
                    )
                }
            ),
            "workloads": Region(_workload_rows(status, alike, results.rows, acts, judged)),
        }
        return Drawing(status.campaign_id, "campaign.html.j2", regions, given)


def _has_more_to_come(campaign: Campaign) -> bool:
    """Whether the campaign has what it has so far, instead of a report of all."""
    cancelled = campaign.state is CampaignState.CANCELLED and not campaign.has_report
    return cancelled or campaign.state is CampaignState.RUNNING


def _active(store: SqlTransaction, campaign_id: str) -> list[tuple[Attempt, Run]]:
    """What is measured now, with its run."""
    states: tuple[AttemptState, ...] = ACTIVE_ATTEMPTS
    attempts = store.requested_attempts(RunsRequest(campaign_id), states)[: _MOST_RUNNING + 1]
    return [(each, run) for each in attempts if (run := store.run(each.key.run_id)) is not None]


def _attention(campaign_id: str, found: Sequence[Reason]) -> str:
    unlisted = {run_id for each in found[MOST_REASONS:] for run_id in each.run_ids}
    return rendered(
        "part_noted.html.j2",
        campaign_id=campaign_id,
        reasons=found,
        most=MOST_REASONS,
        unlisted_runs=len(unlisted),
    )


def _workload_rows(
    status: CampaignStatus,
    alike: list[RunsAlike],
    results: Sequence[Result],
    acts: bool,
    judged: dict[str, object],
) -> dict[str, str]:
    """One row for each workload, in the campaign's order."""
    counts: dict[str, Counter[RunState]] = {}
    devices: dict[str, dict[str, None]] = {}
    for each in alike:
        counts.setdefault(each.workload, Counter())[each.state] += each.runs
        devices.setdefault(each.workload, {})[each.device_kind] = None
    by_workload: dict[str, list[Result]] = {}
    for result in results:
        by_workload.setdefault(result.workload, []).append(result)
    return {
        row: rendered(
            "row_workload.html.j2",
            row=row,
            name=name,
            total=sum(counted.values()),
            ended=counted[RunState.DONE],
            states=[(state, counted[state]) for state in _ORDER if counted[state]],
            devices=list(devices[name]),
            results=by_workload.get(name, []),
            c=status,
            acts=acts,
            **judged,
        )
        for name, counted in counts.items()
        if (row := element_id("w", name))
    }
