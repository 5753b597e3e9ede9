"""What leases and ends of attempts will ask for, read before in one message.

Where a database server answers, each question of its own costs a wait. Everything here is right only as long
as its transaction writes nothing that changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa

from assay_server.store import statements, tables
from assay_server.store.model import OPEN_RUNS, LikelyLeases, OpenEnds, Run, Slice
from assay_server.store.rows import queue

_FRESH_MS = 1_000
_MOST_LANES = 4  # a campaign with more kinds of runs is asked when it is its turn


@dataclass(frozen=True)
class WaitingSlices:
    """The first slices of a lane that were due at a moment, with their runs, in order.

    ``is_cut``: others may wait behind them.
    """

    now_ms: int
    found: tuple[tuple[Run, Slice], ...]
    is_cut: bool

    def is_fresh(self, now_ms: int) -> bool:
        """Whether it may still serve: what fell due since then comes after what is known for a moment."""
        return 0 <= now_ms - self.now_ms < _FRESH_MS

    def covers(self, number: int, now_ms: int, waits: Callable[[Run, Slice], bool]) -> bool:
        """Whether so many leases need no other look. Raises LookupError if it is not known."""
        if not self.is_fresh(now_ms):
            return False
        left = sum(waits(run, piece) for run, piece in self.found)
        return left >= number or (not self.is_cut and self.now_ms == now_ms)

    def first(
        self, passed: Container[tuple[str, int]], waits: Callable[[Run, Slice], bool]
    ) -> tuple[Run, Slice] | None:
        """The first that still waits and is not among ``passed``. Raises LookupError if it is not known."""
        for run, piece in self.found:
            if (piece.run_id, piece.index) not in passed and waits(run, piece):
                return run, piece
        if self.is_cut:
            raise LookupError
        return None


@dataclass(frozen=True)
class EndsOfCampaign:
    """What was open of a campaign: some of its open runs, and the rest of :class:`OpenEnds`.

    ``is_cut``: others may be open, too.
    """

    open_runs: tuple[str, ...]
    is_cut: bool
    requests: bool
    held_workloads: frozenset[str]

    def covers(self, number: int, ended: Callable[[str], bool]) -> bool:
        """Whether it will still be known what is open when so many more runs have ended."""
        return not self.is_cut or sum(not ended(run_id) for run_id in self.open_runs) > number

    def now(self, ended: Callable[[str], bool]) -> OpenEnds:
        """What is open, given which of the runs have ended since. Raises LookupError if it is not known."""
        are_open = not all(ended(run_id) for run_id in self.open_runs)
        if self.is_cut and not are_open:
            raise LookupError
        return OpenEnds(are_open, self.requests, self.held_workloads)


def worth_reading(likely: Sequence[LikelyLeases]) -> list[LikelyLeases]:
    """Those leases whose lanes are few enough to be read for all of them."""
    return [each for each in likely if len(each.lane_ids) <= _MOST_LANES]


@cache
def some_open_runs() -> sa.Select[Any]:
    """Open runs of the campaign of a run, ``most`` of them."""
    r = tables.runs.c
    query = sa.select(r.run_id).where(
        r.campaign_id == _campaign_of_run(), statements.one_of(r.state, OPEN_RUNS)
    )
    return query.limit(sa.bindparam("most", type_=sa.BigInteger))


@cache
def a_request() -> sa.Select[Any]:
    """Any pending request about the campaign of a run."""
    q = tables.requests.c
    one: sa.ColumnElement[int] = sa.literal_column("1")
    return sa.select(q.request_id).where(q.campaign_id == _campaign_of_run()).limit(one)


@cache
def held_workloads() -> sa.Select[Any]:
    """As :func:`assay_server.store.rows.queue.held_workloads`, of the campaign of a run."""
    return queue.held_of(_campaign_of_run())


def _campaign_of_run() -> Any:
    r = tables.runs.alias("of_run").c
    return sa.select(r.campaign_id).where(r.run_id == sa.bindparam("run_id")).scalar_subquery()
