"""The statements behind heartbeats, of which a group is answered together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import sqlalchemy as sa

from assay_server.store import statements, tables

_MOST_PLACES = 256  # databases take some ten thousand


@cache
def sessions(places: int) -> sa.Select[Any]:
    """The current processes of agents, and when they were seen."""
    a = tables.agents.c
    return sa.select(a.agent_id, a.session_id, a.seen_at_ms).where(_is_any(a.agent_id, places))


@cache
def attempts_with_tokens(places: int) -> sa.Select[Any]:
    """The attempts with these fencing tokens."""
    return sa.select(tables.attempts).where(_is_any(tables.attempts.c.token, places))


def in_places(values: Iterable[object]) -> Iterator[dict[str, object]]:
    """The parameters of statements that each ask for any of some values, and together for all.

    The last value fills further places, up to a power of two: so statements that are kept prepared are few.
    """
    every = list(values)
    for first in range(0, len(every), _MOST_PLACES):
        some = every[first : first + _MOST_PLACES]
        some += some[-1:] * ((1 << (len(some) - 1).bit_length()) - len(some))
        yield {f"any_{place}": value for place, value in enumerate(some)}


def _is_any(column: sa.Column[Any], places: int) -> sa.ColumnElement[bool]:
    return column.in_([sa.bindparam(f"any_{place}", type_=column.type) for place in range(places)])


@cache
def saw_agent() -> sa.Update:
    """Note when an agent was seen."""
    agent = tables.agents.c.agent_id == sa.bindparam("agent")
    return sa.update(tables.agents).where(agent).values(seen_at_ms=sa.bindparam("now_ms"))


@cache
def extend_attempt() -> sa.Update:
    """Let a lease end later; launches that are spooled never become fewer."""
    a = tables.attempts.c
    spooled: sa.BindParameter[int] = sa.bindparam("spooled", type_=sa.BigInteger)
    return (
        sa.update(tables.attempts)
        .where(*(a[name] == sa.bindparam(statements.KEY + name) for name in ("run_id", "slice", "attempt")))
        .values(
            deadline_ms=sa.bindparam("ends_at_ms"),
            confirmed=True,
            launches_spooled=sa.case((a.launches_spooled < spooled, spooled), else_=a.launches_spooled),
        )
    )
