"""What people ask about campaigns and runs: progress, costs, and how much the server has to do."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import sqlalchemy as sa

from assay_core.records.campaign import AttemptState, CampaignState, RunState
from assay_server.store import tables
from assay_server.store.column_values import Row, shallow
from assay_server.store.model import ACTIVE_ATTEMPTS, Campaign, Run, Slice, SliceState
from assay_server.store.parts.campaigns import CampaignRows
from assay_server.store.parts.runs import RunRows, run_of
from assay_server.store.statements import ATTEMPT_SECONDS, GPUS, IS_OPEN, IS_PAUSED, IS_THERE, OF_CAMPAIGN


@dataclass(frozen=True)
class StoreLoad:
    """How much a server has to do: campaigns by state, runs of running campaigns, and attempts under way.

    ``busy_slots``: those of leased attempts, all of a gang counted.
    """

    campaigns: Mapping[CampaignState, int] = field(default_factory=dict)
    runs: Mapping[RunState, int] = field(default_factory=dict)
    attempts: Mapping[AttemptState, int] = field(default_factory=dict)
    busy_slots: int = 0


@dataclass(frozen=True)
class CampaignProgress:
    """How far a campaign is. ``needs``: for each distinct need of open runs, one such run and how many
    have that need. ``retries``: attempts beyond the first of each slice. ``awaiting_light``: those of the
    ``needs`` whose runs get their slices when their light run has ended."""

    slices: int
    slices_done: int
    retries: int
    needs: tuple[tuple[Run, int], ...]
    awaiting_light: frozenset[str] = frozenset()


@dataclass(frozen=True)
class WorkloadCost:
    """What a workload has cost at one level on one kind of GPU, and how much of it is left.

    ``open_slices`` wait or run, of ``launches`` on average (0: to the end of the program); ``published``
    slices took ``published_seconds``; ``gpu_seconds``: for how long attempts have had GPUs, with any outcome
    (0 for recordings). ``gpus``: how many each attempt has.
    """

    workload: str
    device_key: str
    level: str
    open_slices: int = 0
    published: int = 0
    published_seconds: float = 0.0
    gpu_seconds: float = 0.0
    gpus: int = 1
    launches: float = 0.0


@dataclass(frozen=True)
class RunFilter:
    """Which runs of a campaign somebody wants to see; "" and None: any.

    ``search``: a part of the workload's or the run's name, in any case; ``flag``: the name of one.
    """

    search: str = ""
    device_kind: str = ""
    state: RunState | None = None
    flag: str = ""
    paused: bool = False


EVERY_RUN = RunFilter()


@dataclass(frozen=True)
class RunOverview:
    """A run with facts of its slices and attempts: their numbers, the newest's agent, launches so far.

    ``retries``: attempts beyond the first of each slice.
    """

    run: Run
    attempts: int
    agent: str
    launches: int
    slices: int = 0
    slices_done: int = 0
    retries: int = 0


_FRUITLESS = (AttemptState.FAILED, AttemptState.SUPERSEDED, AttemptState.CANCELLED)
_GIVEN_UP = "given up"  # no mark of anybody


_A, _C, _R, _S = tables.attempts.c, tables.campaigns.c, tables.runs.c, tables.slices.c
_NUMBER = sa.func.count().label("number")
_CAMPAIGNS = sa.select(_C.state, _NUMBER).where(IS_THERE).group_by(_C.state)
# Of running campaigns; ended runs and campaigns cost nothing.
_OPEN_RUNS = (
    sa.select(_R.state, _NUMBER)
    .join_from(tables.campaigns, tables.runs, _R.campaign_id == _C.campaign_id)
    .where(_C.state == CampaignState.RUNNING, IS_THERE, IS_OPEN)
    .group_by(_R.state)
)
# "gpus": with those of gangs.
_ACTIVE_ATTEMPTS = (
    sa.select(_A.state, _NUMBER, sa.func.sum(GPUS).label("gpus"))
    .where(_A.state.in_(ACTIVE_ATTEMPTS))
    .group_by(_A.state)
)


def _of_slices(*columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Of the slices of a campaign."""
    joined = sa.select(*columns).join_from(tables.runs, tables.slices, _S.run_id == _R.run_id)
    return joined.where(OF_CAMPAIGN)


def _of_attempts(*columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Of the attempts of a campaign."""
    joined = sa.select(*columns).join_from(tables.runs, tables.attempts, _A.run_id == _R.run_id)
    return joined.where(OF_CAMPAIGN)


_SLICE_COUNTS = _of_slices(
    sa.func.count().label("slices"),
    sa.func.sum(sa.case((_S.state == SliceState.DONE, 1), else_=0)).label("slices_done"),
)
# Attempts that are not the first of their slice.
_RETRIES = _of_attempts(sa.func.count()).where(_A.attempt > 1)
_GROUP = (_R.workload, _R.device_key, _R.level)
# Slices that have not ended, with their launches on average: 0 where all go on to the end of their program.
_OPEN_SLICES = (
    _of_slices(*_GROUP, sa.func.count().label("slices"), sa.func.avg(_S.launch_count).label("launches"))
    .where(_S.state.in_([SliceState.WAITING, SliceState.LEASED]))
    .group_by(*_GROUP)
)
_PUBLISHED = _A.state == AttemptState.PUBLISHED
_UNTIL_MS = sa.case((_A.ended_at_ms > 0, _A.ended_at_ms), else_=sa.bindparam("now_ms", type_=sa.BigInteger))
# Published slices with their seconds, and how long all attempts had their slots. "held_ms" counts every GPU
# of a gang, "gpus" is their number.
_SPENT = _of_attempts(
    *_GROUP,
    sa.func.sum(sa.case((_PUBLISHED, 1), else_=0)).label("published"),
    sa.func.sum(sa.case((_PUBLISHED, ATTEMPT_SECONDS), else_=0.0)).label("published_seconds"),
    sa.func.sum((_UNTIL_MS - _A.leased_at_ms) * GPUS).label("held_ms"),
    sa.func.max(GPUS).label("gpus"),
).group_by(*_GROUP)
_MEASURED = _of_attempts(
    sa.func.max(_A.ended_at_ms).label("ended_at_ms"),
    sa.func.sum(sa.case((_PUBLISHED, _A.launches), else_=0)).label("launches"),
)


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
        """The runs of a campaign (or the one named), in its order, with facts of their attempts.

        ``first``: the place to begin at, in that order, or among the ``chosen`` ones; ``most``: how many
        (None: all).
        """
        within = _shown(campaign_id, chosen)
        if run_id is not None:
            within.append(_R.run_id == run_id)
        if chosen == EVERY_RUN:
            within.append(_R.ordinal >= first)
        query = sa.select(tables.runs).where(*within).order_by(_R.ordinal).limit(most)
        if chosen != EVERY_RUN:
            query = query.offset(first)
        runs = [run_of(row) for row in self.rows(query)]
        if not runs:
            return []
        these = sa.select(_R.run_id).where(*within, _R.ordinal.between(runs[0].ordinal, runs[-1].ordinal))
        columns = (_A.run_id, _A.slice, _A.token, _A.state, _A.agent_name, _A.launches, _A.launches_spooled)
        attempts: dict[str, list[Row]] = {}
        query = sa.select(*columns).where(_A.run_id.in_(these)).order_by(_A.token)
        for row in self.rows(query):
            attempts.setdefault(row["run_id"], []).append(row)
        slices: dict[str, dict[str, int]] = {}
        query = sa.select(_S.run_id, _S.state, sa.func.count().label("slices")).where(_S.run_id.in_(these))
        for row in self.rows(query.group_by(_S.run_id, _S.state)):
            slices.setdefault(row["run_id"], {})[row["state"]] = row["slices"]
        return [_overview_of(run, attempts.get(run.run_id, []), slices.get(run.run_id, {})) for run in runs]

    def runs_chosen(self, campaign_id: str, chosen: RunFilter) -> int:
        """How many runs of a campaign a filter chooses."""
        within = _shown(campaign_id, chosen)
        return int(self.connection.scalar(sa.select(sa.func.count()).where(*within)) or 0)

    def progress(self, campaign_id: str) -> CampaignProgress:
        """How far a campaign is, and what its open runs need, counted by the database."""
        values = {"campaign_id": campaign_id}
        [counted] = self.rows(_SLICE_COUNTS, values)
        campaign = self.campaign(campaign_id)
        slicing = None if campaign is None else campaign.compiled.slicing
        by_light = slicing is not None and slicing.by_light
        rows = self.rows(_needs_of_open_runs(by_light), values)
        needs = [(run, int(row["runs"])) for row in rows if (run := self.run(row["run_id"])) is not None]
        return CampaignProgress(
            int(counted["slices"]),
            int(counted["slices_done"] or 0),
            int(self.connection.scalar(_RETRIES, values) or 0),
            tuple(needs),
            frozenset(row["run_id"] for row in rows if row["awaits"]),
        )

    def workload_costs(self, campaign_id: str, now_ms: int) -> list[WorkloadCost]:
        """What each workload of a campaign has cost, and how much is left, by kind of GPU and level."""
        values = {"campaign_id": campaign_id}
        costs: dict[tuple[str, str, str], WorkloadCost] = {}
        for row in self.rows(_OPEN_SLICES, values):
            key = (row["workload"], row["device_key"], row["level"])
            costs[key] = WorkloadCost(*key, open_slices=int(row["slices"]), launches=float(row["launches"]))
        for row in self.rows(_SPENT, {**values, "now_ms": now_ms}):
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
        [row] = self.rows(_MEASURED, {"campaign_id": campaign_id})
        return int(row["ended_at_ms"] or 0), int(row["launches"] or 0)

    def load(self) -> StoreLoad:
        """How much there is to do; states without members are left out."""

        campaigns, runs, attempts = map(self.rows, (_CAMPAIGNS, _OPEN_RUNS, _ACTIVE_ATTEMPTS))

        def counted(rows: Sequence[Row]) -> dict[Any, int]:
            return {row["state"]: int(row["number"]) for row in rows}

        busy_slots = sum(int(row["gpus"]) for row in attempts if row["state"] is AttemptState.LEASED)
        return StoreLoad(counted(campaigns), counted(runs), counted(attempts), busy_slots)

    def add_campaign(
        self, campaign: Campaign, runs: Sequence[Run], slices: Sequence[Slice], arriving: str = ""
    ) -> None:
        """Add a campaign. ``arriving``: it is brought in piece by piece by whoever has this mark.

        Until :meth:`end_arrival` it takes its number, and nothing else: no list, count or search of
        campaigns shows it, and no slot is given its slices.
        """
        last = self.connection.scalar(sa.select(sa.func.max(_C.ordinal)))
        ordinal = 0 if last is None else last + 1
        values = {**shallow(campaign), "ordinal": ordinal, "arriving": arriving}
        self.write(sa.insert(tables.campaigns), [values])
        self.add_runs(runs, slices)

    def is_arriving(self, campaign_id: str, mark: str) -> bool:
        """Whether a campaign is being brought in by whoever has this mark."""
        query = sa.select(_C.arriving).where(_C.campaign_id == campaign_id)
        return bool(self.connection.scalar(query) == mark)

    def end_arrival(self, campaign_id: str) -> None:
        """All runs of a campaign are there: from now on everybody sees it."""
        self.write(sa.update(tables.campaigns).where(_C.campaign_id == campaign_id).values(arriving=""))

    def give_up_arrival(self, campaign_id: str, most: int) -> bool:
        """Delete at most ``most`` runs of a campaign that was never brought in whole, then itself.

        Returns whether it is gone. Its number may be given again, and nobody's mark is valid any more.
        """
        here = (_C.campaign_id == campaign_id, sa.not_(IS_THERE))
        # With another mark, so that whoever may still be bringing it in stops.
        if not self.write(sa.update(tables.campaigns).where(*here).values(arriving=_GIVEN_UP)):
            return True
        query = sa.select(_R.run_id).where(_R.campaign_id == campaign_id).order_by(_R.ordinal).limit(most)
        if runs := list(self.connection.scalars(query)):
            self.delete_runs(runs)
            return False
        self.write(sa.delete(tables.campaigns).where(*here))
        return True


def _shown(campaign_id: str, chosen: RunFilter) -> list[sa.ColumnElement[bool]]:
    """Conditions of the runs of a campaign that somebody wants to see."""
    within: list[sa.ColumnElement[bool]] = [_R.campaign_id == campaign_id]
    if chosen.search:
        search_text = chosen.search.lower()
        names = (_R.workload, _R.run_id)
        within.append(sa.or_(*(sa.func.lower(name).contains(search_text, autoescape=True) for name in names)))
    if chosen.device_kind:
        within.append(_R.device_kind == chosen.device_kind)
    if chosen.state is not None:
        within.append(_R.state == chosen.state)
    if chosen.flag:
        # Flags are JSON; a quote within a value has a backslash before it, so this is a whole value.
        within.append(sa.cast(_R.flags, sa.Text).contains(json.dumps(chosen.flag), autoescape=True))
    if chosen.paused:
        within.append(IS_PAUSED)
    return within


@cache
def _needs_of_open_runs(by_light: bool) -> sa.Select[Any]:
    """For each distinct need of a campaign's open runs: the first such run, and their number. Held runs are
    told apart by workload, since each may wait for others.

    ``by_light``: light runs decide slices, so that runs without any (``awaits``) have a need of their own.
    """
    awaits = ~sa.exists().where(_S.run_id == _R.run_id) if by_light else sa.false()
    # Whether a run's SM share is a partition; documents of other conditions have no kind.
    partitioned = (
        sa.func.coalesce(sa.type_coerce(_R.condition, sa.JSON)["sm_share"].as_string(), "") == "partition"
    )
    bundled = sa.type_coerce(_R.command, sa.JSON)["bundle"].as_string().is_not(None)
    held_workload = sa.case((sa.cast(_R.holds, sa.Text) == "[]", ""), else_=_R.workload)
    placing = (sa.cast(each, sa.Text) for each in (_R.placement, _R.holds))
    of_place = (_R.profiler, _R.device_key, _R.device_kind, _R.synthetic, _R.state, partitioned, bundled,
                *placing, held_workload)  # fmt: skip
    need = (*of_place, awaits) if by_light else of_place
    each = (
        sa.select(
            sa.func.min(_R.ordinal).label("ordinal"), sa.func.count().label("runs"), awaits.label("awaits")
        )
        .where(OF_CAMPAIGN, IS_OPEN)
        .group_by(*need)
        .subquery()
    )
    return (
        sa.select(_R.run_id, each.c.runs, each.c.awaits)
        .join_from(tables.runs, each, _R.ordinal == each.c.ordinal)
        .where(OF_CAMPAIGN)
        .order_by(_R.ordinal)
    )


def _overview_of(run: Run, attempts: Sequence[Row], slices: Mapping[str, int]) -> RunOverview:
    """``slices``: their number by state.

    Launches are those of each slice's newest attempt, if known.
    """
    newest = {row["slice"]: row for row in attempts}
    live = [row for row in newest.values() if row["state"] not in _FRUITLESS]
    launches = sum(max(row["launches"], row["launches_spooled"]) for row in live)
    agent = attempts[-1]["agent_name"] if attempts else ""
    return RunOverview(
        run,
        len(attempts),
        agent,
        launches,
        slices=sum(slices.values()),
        slices_done=slices.get(SliceState.DONE, 0),
        retries=len(attempts) - len(newest),
    )
