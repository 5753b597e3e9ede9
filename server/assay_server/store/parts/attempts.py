"""Attempts at slices, the fencing tokens of their leases, and their durable segments, in SQL."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import ENDED_CAMPAIGNS, AttemptState
from assay_core.records.failure import Failure
from assay_server.store import tables
from assay_server.store.column_values import Row, shallow
from assay_server.store.model import Attempt, Segment
from assay_server.store.parts.record_cache import CachedRecords
from assay_server.store.statements import ATTEMPT_SECONDS, OF_CAMPAIGN

# A token is an epoch, then a count of this many bits: milliseconds fit until the year 2109.
EPOCH_SHIFT = 21
# A clock that shows a later time (2107) is wrong: its value would leave no room for later starts.
_LATEST_EPOCH = (1 << 42) - (1 << 36)
_FRUITLESS = (AttemptState.FAILED, AttemptState.SUPERSEDED, AttemptState.CANCELLED, AttemptState.EXPIRED)

_A, _C, _G, _R, _T = (
    each.c for each in (tables.attempts, tables.campaigns, tables.segments, tables.runs, tables.tokens)
)
_OF_LOG = ("command", "environment", "log", "telemetry", "wall_seconds", "facts")
_LEASES = "lease"  # under this name the last token is kept
_ADVANCE_TOKEN = (
    sa.update(tables.tokens).where(_T.name == _LEASES).values(value=_T.value + 1).returning(_T.value)
)
_SEGMENTS_OF = (
    sa.select(tables.segments)
    .where(*(key == sa.bindparam(f"of_{key.name}") for key in (_G.run_id, _G.slice, _G.attempt)))
    .order_by(_G.index)
)
_SPOOLED: sa.BindParameter[int] = sa.bindparam("spooled", type_=sa.BigInteger)
# Lets a lease end later; launches that are spooled never become fewer.
_EXTEND = (
    sa.update(tables.attempts)
    .where(*(key == sa.bindparam(f"of_{key.name}") for key in (_A.run_id, _A.slice, _A.attempt)))
    .values(
        deadline_ms=sa.bindparam("ends_at_ms"),
        confirmed=True,
        launches_spooled=sa.case((_A.launches_spooled < _SPOOLED, _SPOOLED), else_=_A.launches_spooled),
    )
)

WORKLOAD_FAILURES = (
    sa.select(_A.slot_id, _A.gang, _A.failure)  # without their logs, which are long
    .join_from(tables.attempts, tables.runs, _A.run_id == _R.run_id)
    .where(OF_CAMPAIGN, _R.workload == sa.bindparam("workload"), _A.state == AttemptState.FAILED)
    .order_by(_A.token)
)
_MOST_VALUES = 10_000  # in one statement; databases take some 30,000
_WITH_TOKENS = sa.select(tables.attempts).where(_A.token.in_(sa.bindparam("tokens", expanding=True)))
_ALL = sa.select(tables.attempts)
# Literal, because only then does the database use the index of leased slots.
_LEASED = _ALL.where(_A.state == sa.literal_column("'leased'"))


class AttemptRows(CachedRecords):
    """Attempts at slices, the fencing tokens of their leases, and their durable segments, in SQL."""

    def attempt(self, run_id: str, slice_index: int, attempt: int) -> Attempt | None:
        return self.by_key(tables.attempts, (run_id, slice_index, attempt), attempt_of)

    def attempts(self, run_id: str, slice_index: int | None = None) -> list[Attempt]:
        """The attempts of a run or of one of its slices, in the order of slice and attempt."""
        query = _ALL.where(_A.run_id == run_id).order_by(_A.slice, _A.attempt)
        return self._attempts(query if slice_index is None else query.where(_A.slice == slice_index))

    def attempts_in(
        self,
        states: Sequence[AttemptState],
        *,
        run_ids: Sequence[str] | None = None,
        agent_id: str | None = None,
        slot_id: str | None = None,
        lease_ended_before_ms: int | None = None,
    ) -> list[Attempt]:
        """Attempts in one of these states, in the order of their tokens; None: of any."""
        leased = tuple(states) == (AttemptState.LEASED,)
        query = (_LEASED if leased else _ALL.where(_A.state.in_(states))).order_by(_A.token)
        if run_ids is not None:
            query = query.where(_A.run_id.in_(run_ids))
        if agent_id is not None:
            query = query.where(_A.agent_id == agent_id)
        if slot_id is not None:
            query = query.where(_A.slot_id == slot_id)
        if lease_ended_before_ms is not None:
            query = query.where(_A.deadline_ms < lease_ended_before_ms)
        return self._attempts(query)

    def attempts_with(self, keys: Iterable[AttemptKey]) -> dict[AttemptKey, Attempt]:
        """The attempts with these keys; keys without an attempt are left out."""
        key_set = set(keys)  # some may name the token of another's attempt
        tokens = [key.token for key in key_set]
        return {
            attempt.key: attempt
            for first in range(0, len(tokens), _MOST_VALUES)
            for attempt in self._attempts(_WITH_TOKENS, {"tokens": tokens[first : first + _MOST_VALUES]})
            if attempt.key in key_set
        }

    def untried_from(self, run_id: str) -> int:
        """The index from which on no slice of a run was ever leased."""
        last = self.connection.scalar(sa.select(sa.func.max(_A.slice)).where(_A.run_id == run_id))
        return 0 if last is None else int(last) + 1

    def seconds_spent(self, run_id: str) -> float:
        """How long all ended attempts of a run ran, with any outcome."""
        query = sa.select(sa.func.sum(ATTEMPT_SECONDS)).where(_A.run_id == run_id, _A.ended_at_ms > 0)
        return float(self.connection.scalar(query) or 0.0)

    def workload_failures(
        self, campaign_id: str, workload: str
    ) -> list[tuple[tuple[str, ...], Failure | None]]:
        """Slots and failure of all failed attempts of a workload, in the order of their tokens."""
        rows = self.rows(WORKLOAD_FAILURES, {"campaign_id": campaign_id, "workload": workload})
        return [((row["slot_id"], *row["gang"]), row["failure"]) for row in rows]

    def published_facts(self, run_id: str) -> list[tuple[int, str]]:
        """When the published attempts of a run were leased (Unix time, ms), and their facts, by slice."""
        of_run = (_A.run_id == run_id, _A.state == AttemptState.PUBLISHED)
        query = sa.select(_A.leased_at_ms, _A.facts).where(*of_run).order_by(_A.slice)
        return [(int(row["leased_at_ms"]), row["facts"]) for row in self.rows(query)]

    def add_attempt(self, attempt: Attempt) -> None:
        self.connection.execute(sa.insert(tables.attempts), attempt_values(attempt))
        self._keep(attempt)

    def save_attempt(self, attempt: Attempt) -> None:
        self.save(tables.attempts, _place_of(attempt.key), attempt, attempt_values)

    def extend_attempts(self, progress: Sequence[tuple[AttemptKey, int]], lease_ends_at_ms: int) -> None:
        """Note that leased attempts live: their leases end later, and they are confirmed.

        ``progress``: with each, how many launches its agent has spooled; the number never falls.
        """
        for key, spooled in progress:
            extended = {"spooled": spooled, "ends_at_ms": lease_ends_at_ms}
            self.connection.execute(_EXTEND, _key_of(key) | extended)
            if (attempt := self.cached(tables.attempts, _place_of(key))) is not None:
                most = max(spooled, attempt.launches_spooled)
                alive = replace(attempt, confirmed=True, launches_spooled=most)
                self._keep(replace(alive, lease_ends_at_ms=lease_ends_at_ms))

    def segment(self, key: AttemptKey, index: int) -> Segment | None:
        return self.by_key(tables.segments, (*_place_of(key), index), lambda row: Segment(**row))

    def segments(self, key: AttemptKey) -> list[Segment]:
        return [Segment(**row) for row in self.rows(_SEGMENTS_OF, _key_of(key))]

    def add_segments(self, segments: Sequence[Segment]) -> None:
        self.connection.execute(sa.insert(tables.segments), [shallow(segment) for segment in segments])

    def forget_logs(self, before_ms: int, most: int, notice: str) -> int:
        """Replace by ``notice`` the logs of attempts without a result of campaigns that ended before then.

        At most ``most`` of them; returns how many it was.
        """
        old = (
            sa.select(_A.run_id, _A.slice, _A.attempt)
            .join(tables.runs, _R.run_id == _A.run_id)
            .join(tables.campaigns, _C.campaign_id == _R.campaign_id)
            .where(_C.state.in_(ENDED_CAMPAIGNS), _C.ended_at_ms < before_ms)
            .where(_A.state.in_(_FRUITLESS), _A.log.not_in(["", notice]))
            .limit(most)
        )
        these = sa.tuple_(_A.run_id, _A.slice, _A.attempt).in_(old)
        return self.write(sa.update(tables.attempts).where(these).values(log=notice, telemetry=""))

    def next_token(self) -> int:
        """A fencing token larger than all earlier ones, including those before a restart."""
        token = self.connection.scalar(_ADVANCE_TOKEN)
        if token is not None:
            return int(token)
        self.keep_number(_LEASES, 1)
        return 1

    def begin_epoch(self, now_ms: int) -> int:
        """Begin a later epoch for all further tokens; returns it. ``now_ms``: by the wall clock.

        Tokens of a state that a restored backup replaced never come again: the epoch is at least the
        millisecond of the start, and its first token is chosen at random.
        """
        epoch, token = first_of_epoch(self.number(_LEASES) or 0, now_ms)
        self.keep_number(_LEASES, token)
        return epoch

    def _attempts(self, query: sa.Select[Any], values: Mapping[str, Any] | None = None) -> list[Attempt]:
        """The attempts of a query, which need not be read again."""
        return [self._keep(attempt_of(row)) for row in self.rows(query, values)]

    def _keep(self, attempt: Attempt) -> Attempt:
        return self.keep(tables.attempts, _place_of(attempt.key), attempt)


def _place_of(key: AttemptKey) -> tuple[str, int, int]:
    return key.run_id, key.slice_index, key.attempt


def attempt_of(row: Row) -> Attempt:
    """The attempt of a row."""
    values = dict(row)
    key = AttemptKey(*(values.pop(name) for name in ("run_id", "slice", "attempt", "token")))
    log = AttemptLog(*(values.pop(name) for name in _OF_LOG))
    values["write_secret"] = bytes.fromhex(values["write_secret"])
    return Attempt(key=key, log=log, lease_ends_at_ms=values.pop("deadline_ms"), **values)


def attempt_values(attempt: Attempt) -> dict[str, Any]:
    """The row of an attempt."""
    values, key = shallow(attempt), attempt.key
    log, ends_at_ms = shallow(values.pop("log")).values(), values.pop("lease_ends_at_ms")
    del values["key"]
    return {
        **values,
        **dict(zip(_OF_LOG, log, strict=True)),
        "deadline_ms": ends_at_ms,
        "run_id": key.run_id,
        "slice": key.slice_index,
        "attempt": key.attempt,
        "token": key.token,
        "write_secret": attempt.write_secret.hex(),
    }


def _key_of(key: AttemptKey) -> dict[str, Any]:
    """The parameters that name an attempt."""
    return {"of_run_id": key.run_id, "of_slice": key.slice_index, "of_attempt": key.attempt}


def first_of_epoch(last_token: int, now_ms: int) -> tuple[int, int]:
    """The epoch after ``last_token``, and its first token.

    The epoch is at least ``now_ms`` (Unix time by the wall clock) if that clock can be right. The count
    begins at random, so that tokens of a state that a backup replaced never come again.
    """
    epoch = (last_token >> EPOCH_SHIFT) + 1
    if now_ms <= _LATEST_EPOCH:
        epoch = max(epoch, now_ms)
    # The upper half is left for counting; a start that issues more leases moves on to the next epoch.
    return epoch, (epoch << EPOCH_SHIFT) + secrets.randbelow(1 << (EPOCH_SHIFT - 1))
