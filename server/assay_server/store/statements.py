"""The scheduler's statements. Built once, because building one costs more than running it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.dml import ReturningUpdate

from assay_core.records.campaign import AttemptState, CampaignState
from assay_server.store import tables
from assay_server.store.model import ACTIVE_ATTEMPTS, OPEN_RUNS, Slice, SliceState

SLICE = tuple(tables.slices.c[item.name] for item in dataclasses.fields(Slice))
KEY = "key_"  # the column's plain name would clash with the value that an update sets


@cache
def select_of(table: sa.Table) -> sa.Select[Any]:
    """The record of a table by its key, whose parameters have the columns' names."""
    return sa.select(table).where(*(k == sa.bindparam(k.name) for k in table.primary_key))


@cache
def insert_into(table: sa.Table) -> sa.Insert:
    """One record with all its columns, whose parameters have their names."""
    return sa.insert(table)


@cache
def last_token() -> sa.Select[Any]:
    """The last fencing token."""
    return sa.select(tables.tokens.c.value).where(_of_leases())


@cache
def advance_token() -> ReturningUpdate[Any]:
    """Replace the last fencing token by the next one, and return that."""
    value = tables.tokens.c.value
    return sa.update(tables.tokens).where(_of_leases()).values(value=value + 1).returning(value)


@cache
def keep_token() -> sa.Update:
    """Replace the last fencing token."""
    return sa.update(tables.tokens).where(_of_leases()).values(value=sa.bindparam("value"))


def _of_leases() -> sa.ColumnElement[bool]:
    return tables.tokens.c.name == "lease"


@cache
def running_campaign() -> sa.Select[Any]:
    """A campaign, if slots may have slices of it."""
    c = tables.campaigns.c
    return sa.select(c.campaign_id).where(c.campaign_id == sa.bindparam("campaign_id"), runs_now())


def runs_now() -> sa.ColumnElement[bool]:
    """Whether slots may have slices of a campaign: it runs and is not paused."""
    c = tables.campaigns.c
    return sa.and_(one_of(c.state, (CampaignState.RUNNING,)), sa.not_(c.paused), is_there())


def is_there() -> sa.ColumnElement[bool]:
    """Whether a campaign is there; others are being brought in, and nobody knows of them."""
    return tables.campaigns.c.arriving == sa.literal_column("''")


def one_of(column: sa.ColumnElement[str], states: Sequence[str]) -> sa.ColumnElement[bool]:
    """Whether a state is one of these, which are written into the statement itself."""
    return column.in_([sa.literal_column(f"'{state}'") for state in states])


@cache
def update_of(table: sa.Table, names: tuple[str, ...]) -> sa.Update:
    """An update of these columns of one record, whose key's parameters begin with KEY."""
    changed: dict[str, Any] = {n: sa.bindparam(n) for n in names if not table.c[n].primary_key}
    keys = (k == sa.bindparam(KEY + k.name) for k in table.primary_key)
    return sa.update(table).where(*keys).values(changed)


@cache
def campaigns_by_state() -> sa.Select[Any]:
    """How many campaigns are in each state."""
    c = tables.campaigns.c
    return sa.select(c.state, sa.func.count().label("number")).where(is_there()).group_by(c.state)


@cache
def open_runs_by_state() -> sa.Select[Any]:
    """How many runs of running campaigns wait or run; ended runs and campaigns cost nothing."""
    c, r = tables.campaigns.c, tables.runs.c
    return (
        sa.select(r.state, sa.func.count().label("number"))
        .join_from(tables.campaigns, tables.runs, r.campaign_id == c.campaign_id)
        .where(c.state == str(CampaignState.RUNNING), is_there(), r.state.in_([str(s) for s in OPEN_RUNS]))
        .group_by(r.state)
    )


@cache
def active_attempts_by_state() -> sa.Select[Any]:
    """How many attempts are leased, or being published, and how many slots of gangs they have besides."""
    a = tables.attempts.c
    active = a.state.in_([str(s) for s in ACTIVE_ATTEMPTS])
    others = sa.func.sum(sa.func.json_array_length(a.gang)).label("others")
    return sa.select(a.state, sa.func.count().label("number"), others).where(active).group_by(a.state)


@cache
def slice_counts() -> Any:
    """The numbers of a campaign's slices and of those that are done."""
    s, r = tables.slices.c, tables.runs.c
    done = sa.func.sum(sa.case((s.state == str(SliceState.DONE), 1), else_=0))
    return (
        sa.select(sa.func.count().label("slices"), done.label("slices_done"))
        .join_from(tables.runs, tables.slices, s.run_id == r.run_id)
        .where(r.campaign_id == sa.bindparam("campaign_id"))
    )


@cache
def retries() -> Any:
    """The number of a campaign's attempts that are not the first of their slice."""
    a, r = tables.attempts.c, tables.runs.c
    return (
        sa.select(sa.func.count())
        .join_from(tables.runs, tables.attempts, a.run_id == r.run_id)
        .where(r.campaign_id == sa.bindparam("campaign_id"), a.attempt > 1)
    )


@cache
def needs_of_open_runs(by_light: bool) -> sa.Select[Any]:
    """For each distinct need of a campaign's open runs: the first such run, and their number. Held runs are
    told apart by workload, since each may wait for others.

    ``by_light``: light runs decide slices, so that runs without any (``awaits``) have a need of their own.
    """
    r, s = tables.runs.c, tables.slices.c
    awaits = ~sa.exists().where(s.run_id == r.run_id) if by_light else sa.false()
    placing = (sa.cast(each, sa.Text) for each in (r.placement, r.holds))
    of_place = (r.profiler, r.device_key, r.device_kind, r.synthetic, r.state, _partitioned(), _bundled(),
                *placing, _held_workload())  # fmt: skip
    need = (*of_place, awaits) if by_light else of_place
    each = (
        sa.select(
            sa.func.min(r.ordinal).label("ordinal"), sa.func.count().label("runs"), awaits.label("awaits")
        )
        .where(r.campaign_id == sa.bindparam("campaign_id"), r.state.in_([str(s) for s in OPEN_RUNS]))
        .group_by(*need)
        .subquery()
    )
    return (
        sa.select(r.run_id, each.c.runs, each.c.awaits)
        .join_from(tables.runs, each, r.ordinal == each.c.ordinal)
        .where(r.campaign_id == sa.bindparam("campaign_id"))
        .order_by(r.ordinal)
    )


def _held_workload() -> sa.ColumnElement[str]:
    """The workload of a held run, "" for others."""
    r = tables.runs.c
    return sa.case((sa.cast(r.holds, sa.Text) == "[]", ""), else_=r.workload)


def _partitioned() -> sa.ColumnElement[bool]:
    """Whether a run's SM share is a partition; documents of other conditions have no kind."""
    kind = tables.runs.c.condition["sm_share"].as_string()
    return sa.func.coalesce(kind, "") == "partition"


def _bundled() -> sa.ColumnElement[bool]:
    """Whether a run brings its submitter's files."""
    bundled: sa.ColumnElement[bool] = tables.runs.c.command["bundle"].as_string().is_not(None)
    return bundled


@cache
def agents_with_labels() -> sa.Select[Any]:
    """Agents, each with the labels of its identity; null for an agent without one."""
    g, i = tables.agents, tables.identities
    return sa.select(g, i.c.labels).join_from(g, i, g.c.agent_id == i.c.identity_id, isouter=True)


@cache
def agent_with_labels() -> sa.Select[Any]:
    """One agent as :func:`agents_with_labels` has it."""
    return agents_with_labels().where(tables.agents.c.agent_id == sa.bindparam("agent_id"))


@cache
def attempts_in(given: tuple[str, ...]) -> sa.Select[Any]:
    """Attempts in ``states``, narrowed by the given parameters, in the order of their tokens."""
    a = tables.attempts.c
    query = sa.select(tables.attempts).where(a.state.in_(sa.bindparam("states", expanding=True)))
    return query.where(*_narrowed(given)).order_by(a.token)


@cache
def leases_of(given: tuple[str, ...]) -> sa.Select[Any]:
    """The leased attempts of an agent, found by the index of leased slots, however many others there are."""
    a = tables.attempts.c
    leased = a.state == sa.literal_column("'leased'")  # literal: only then is the partial index used
    return sa.select(tables.attempts).where(leased, *_narrowed(given)).order_by(a.token)


def _narrowed(given: tuple[str, ...]) -> Iterator[sa.ColumnElement[bool]]:
    a = tables.attempts.c
    conditions: dict[str, sa.ColumnElement[bool]] = {
        "agent_id": a.agent_id == sa.bindparam("agent_id"),
        "slot_id": a.slot_id == sa.bindparam("slot_id"),
        "lease_ended_before_ms": a.deadline_ms < sa.bindparam("lease_ended_before_ms"),
    }
    return (conditions[name] for name in given)


def attempt_seconds() -> sa.ColumnElement[float]:
    """How long an attempt's tools ran; if its agent did not report it, how long it had its lease."""
    a = tables.attempts.c
    return sa.case((a.wall_seconds > 0, a.wall_seconds), else_=(a.ended_at_ms - a.leased_at_ms) / 1000.0)


@cache
def slice_times() -> sa.Select[Any]:
    """The ``most`` newest published slices of detailed live runs, with the runs' identity and seconds."""
    a, r, s = tables.attempts.c, tables.runs.c, tables.slices.c
    named = (r.run_id, r.workload, r.device_key, r.command, r.counters, s.launch_skip, s.launches)
    return (
        sa.select(*named, attempt_seconds().label("seconds"))
        .join_from(tables.attempts, tables.runs, a.run_id == r.run_id)
        .join(tables.slices, sa.and_(s.run_id == a.run_id, s.index == a.slice))
        .where(a.state == str(AttemptState.PUBLISHED), r.level == "detailed", r.device_key != "")
        .order_by(a.token.desc())
        .limit(sa.bindparam("most"))
    )


@cache
def seconds_spent() -> sa.Select[Any]:
    """Seconds of all attempts of a run that have ended."""
    a = tables.attempts.c
    return sa.select(sa.func.sum(attempt_seconds())).where(
        a.run_id == sa.bindparam("run_id"), a.ended_at_ms > 0
    )


@cache
def workload_failures() -> sa.Select[Any]:
    """Slots and failure of a workload's failed attempts in a campaign, without their logs, which are long."""
    a, r = tables.attempts.c, tables.runs.c
    of_workload = (r.campaign_id == sa.bindparam("campaign_id"), r.workload == sa.bindparam("workload"))
    return (
        sa.select(a.slot_id, a.gang, a.failure)
        .join_from(tables.attempts, tables.runs, a.run_id == r.run_id)
        .where(*of_workload, a.state == str(AttemptState.FAILED))
        .order_by(a.token)
    )


@cache
def published_facts() -> sa.Select[Any]:
    """Lease time and facts of a run's published attempts, without their logs, which are long."""
    a = tables.attempts.c
    of_run = (a.run_id == sa.bindparam("run_id"), a.state == str(AttemptState.PUBLISHED))
    return sa.select(a.leased_at_ms, a.facts).where(*of_run).order_by(a.slice)


@cache
def segments_of() -> sa.Select[Any]:
    """The segments of one attempt, in order."""
    c = tables.segments.c
    of_attempt = (k == sa.bindparam(k.name) for k in (c.run_id, c.slice, c.attempt))
    return sa.select(tables.segments).where(*of_attempt).order_by(c.index)


@cache
def attempts_of(given: tuple[str, ...]) -> sa.Select[Any]:
    """The attempts of a run, or of a slice, by slice and number."""
    a = tables.attempts.c
    query = sa.select(tables.attempts).where(*(a[name] == sa.bindparam(name) for name in given))
    return query.order_by(a.slice, a.attempt)


@cache
def runs_of() -> sa.Select[Any]:
    """The runs of a campaign, in its order."""
    r = tables.runs.c
    of_campaign = r.campaign_id == sa.bindparam("campaign_id")
    return sa.select(tables.runs).where(of_campaign).order_by(r.ordinal)


@cache
def open_runs_of() -> sa.Select[Any]:
    """How many runs of a campaign have not ended."""
    r = tables.runs.c
    of_campaign = r.campaign_id == sa.bindparam("campaign_id")
    return sa.select(sa.func.count()).where(of_campaign, one_of(r.state, OPEN_RUNS))


@cache
def slices_of() -> sa.Select[Any]:
    """The slices of a run, in order."""
    s = tables.slices.c
    return sa.select(*SLICE).where(s.run_id == sa.bindparam("run_id")).order_by(s.index)


@cache
def states_beside() -> sa.Select[Any]:
    """Each state that another slice of a run has, once."""
    s = tables.slices.c
    others = (s.run_id == sa.bindparam("run_id"), s.index != sa.bindparam("slice", type_=sa.BigInteger))
    return sa.select(s.state).where(*others).distinct()


@cache
def campaign_of() -> sa.Select[Any]:
    """The campaign of a run."""
    r = tables.runs.c
    return sa.select(r.campaign_id).where(r.run_id == sa.bindparam("run_id"))
