"""Campaigns with what belongs to them, counted by the database."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from assay_core.records.campaign import AttemptState, CampaignState, RunState
from assay_server.store import statements, tables
from assay_server.store.column_values import Row
from assay_server.store.model import Campaign, Run, Slice
from assay_server.store.overviews import (
    EVERY_RUN,
    CampaignProgress,
    RunFilter,
    RunOverview,
    StoreLoad,
    WorkloadCost,
    overview_of,
)
from assay_server.store.parts.campaigns import CampaignRows, campaign_values
from assay_server.store.parts.runs import RunRows, run_of
from assay_server.store.rows import costing, selected_runs

_GIVEN_UP = "given up"  # no mark of anybody


class OverviewRows(CampaignRows, RunRows):
    """Campaigns with what belongs to them, counted by the database."""

    def run_overviews(
        self,
        campaign_id: str,
        run_id: str | None = None,
        *,
        first: int = 0,
        most: int | None = None,
        chosen: RunFilter = EVERY_RUN,
    ) -> list[RunOverview]:
        """The runs of a campaign (or the given one), in its order, with facts of their attempts.

        ``first``: the place to begin at, in that order, or among the ``chosen`` ones; ``most``: how many
        (None: all).
        """
        r = tables.runs.c
        within = selected_runs.shown(campaign_id, chosen)
        if run_id is not None:
            within.append(r.run_id == run_id)
        if chosen == EVERY_RUN:
            within.append(r.ordinal >= first)
        query = sa.select(tables.runs).where(*within).order_by(r.ordinal).limit(most)
        if chosen != EVERY_RUN:
            query = query.offset(first)
        runs = [run_of(row) for row in self.rows(query)]
        if not runs:
            return []
        these = sa.select(r.run_id).where(*within, r.ordinal.between(runs[0].ordinal, runs[-1].ordinal))
        a = tables.attempts.c
        columns = (a.run_id, a.slice, a.token, a.state, a.agent_name, a.launches, a.launches_spooled)
        attempts: dict[str, list[Row]] = {}
        query = sa.select(*columns).where(a.run_id.in_(these)).order_by(a.token)
        for row in self.rows(query):
            attempts.setdefault(row["run_id"], []).append(row)
        s, slices = tables.slices.c, dict[str, dict[str, int]]()
        query = sa.select(s.run_id, s.state, sa.func.count().label("slices")).where(s.run_id.in_(these))
        for row in self.rows(query.group_by(s.run_id, s.state)):
            slices.setdefault(row["run_id"], {})[row["state"]] = row["slices"]
        return [overview_of(run, attempts.get(run.run_id, []), slices.get(run.run_id, {})) for run in runs]

    def runs_chosen(self, campaign_id: str, chosen: RunFilter) -> int:
        """How many runs of a campaign a filter chooses."""
        within = selected_runs.shown(campaign_id, chosen)
        return int(self.connection.scalar(sa.select(sa.func.count()).where(*within)) or 0)

    def progress(self, campaign_id: str) -> CampaignProgress:
        """How far a campaign is, and what its open runs need, counted by the database."""
        given = {"campaign_id": campaign_id}
        [counted] = self.rows(statements.slice_counts(), given)
        campaign = self.campaign(campaign_id)
        slicing = None if campaign is None else campaign.compiled.slicing
        by_light = slicing is not None and slicing.by_light
        rows = self.rows(statements.needs_of_open_runs(by_light), given)
        needs = [(run, int(row["runs"])) for row in rows if (run := self.run(row["run_id"])) is not None]
        return CampaignProgress(
            int(counted["slices"]),
            int(counted["slices_done"] or 0),
            int(self.connection.scalar(statements.retries(), given) or 0),
            tuple(needs),
            frozenset(row["run_id"] for row in rows if row["awaits"]),
        )

    def workload_costs(self, campaign_id: str, now_ms: int) -> list[WorkloadCost]:
        """What each workload of a campaign has cost, and how much is left, by kind of GPU and level."""
        given = {"campaign_id": campaign_id}
        costs: dict[tuple[str, str, str], WorkloadCost] = {}
        for row in self.rows(costing.open_slices(), given):
            key = (row["workload"], row["device_key"], row["level"])
            costs[key] = WorkloadCost(*key, open_slices=int(row["slices"]), launches=float(row["launches"]))
        for row in self.rows(costing.spent(), {**given, "now_ms": now_ms}):
            key = (row["workload"], row["device_key"], row["level"])
            costs[key] = dataclasses.replace(
                costs.get(key, WorkloadCost(*key)),
                published=int(row["published"]),
                published_seconds=float(row["published_seconds"]),
                gpu_seconds=float(row["held_ms"]) / 1000 if row["device_key"] else 0.0,
                gpus=int(row["gpus"]),
            )
        return [costs[key] for key in sorted(costs)]

    def measured(self, campaign_id: str) -> tuple[int, int]:
        """When a campaign's last attempt ended (Unix time in ms; 0: none has), and its published launches."""
        [row] = self.rows(costing.measured(), {"campaign_id": campaign_id})
        return int(row["ended_at_ms"] or 0), int(row["launches"] or 0)

    def load(self) -> StoreLoad:
        """How much there is to do; states without members are left out."""

        def counted(query: sa.Select[Any]) -> dict[str, int]:
            return {row["state"]: int(row["number"]) for row in self.rows(query)}

        active = {AttemptState(row["state"]): row for row in self.rows(statements.active_attempts_by_state())}
        leased = active.get(AttemptState.LEASED)
        return StoreLoad(
            {CampaignState(s): n for s, n in counted(statements.campaigns_by_state()).items()},
            {RunState(s): n for s, n in counted(statements.open_runs_by_state()).items()},
            {state: int(row["number"]) for state, row in active.items()},
            0 if leased is None else int(leased["number"]) + int(leased["others"]),
        )

    def add_campaign(self, campaign: Campaign, runs: Sequence[Run], slices: Sequence[Slice]) -> None:
        self._add(campaign)
        self.add_runs(runs, slices)

    def begin_arrival(self, campaign: Campaign, mark: str) -> None:
        """Add a campaign that is brought in piece by piece by whoever has this mark.

        Until :meth:`end_arrival` it takes its number, and nothing else: no list, count or search of
        campaigns shows it, and no slot is given its slices.
        """
        self._add(campaign, mark)

    def is_arriving(self, campaign_id: str, mark: str) -> bool:
        """Whether a campaign is being brought in by whoever has this mark."""
        c = tables.campaigns.c
        query = sa.select(c.arriving).where(c.campaign_id == campaign_id)
        return bool(self.connection.scalar(query) == mark)

    def end_arrival(self, campaign_id: str) -> None:
        """All runs of a campaign are there: from now on everybody sees it."""
        c = tables.campaigns.c
        self.write(sa.update(tables.campaigns).where(c.campaign_id == campaign_id).values(arriving=""))

    def give_up_arrival(self, campaign_id: str, most: int) -> bool:
        """Delete at most ``most`` runs of a campaign that was never brought in whole, then itself.

        Returns whether it is gone. Its number may be given again, and nobody's mark is valid any more.
        """
        c, r = tables.campaigns.c, tables.runs.c
        here = (c.campaign_id == campaign_id, sa.not_(statements.is_there()))
        # With another mark, so that whoever may still be bringing it in stops.
        if not self.write(sa.update(tables.campaigns).where(*here).values(arriving=_GIVEN_UP)):
            return True
        query = sa.select(r.run_id).where(r.campaign_id == campaign_id).order_by(r.ordinal).limit(most)
        if runs := list(self.connection.scalars(query)):
            self.delete_runs(runs)
            return False
        self.write(sa.delete(tables.campaigns).where(*here))
        return True

    def _add(self, campaign: Campaign, arriving: str = "") -> None:
        self.known.clear()
        last = self.connection.scalar(sa.select(sa.func.max(tables.campaigns.c.ordinal)))
        ordinal = 0 if last is None else last + 1
        values = {**campaign_values(campaign), "ordinal": ordinal, "arriving": arriving}
        self.write(sa.insert(tables.campaigns), [values])
