"""Holds what a PostgreSQL store remembers against its database, at the beginning of every transaction.

While it is installed, a store that knows anything first reads all of it anew, with the writer's lock in hand:
nobody can have changed it since. So does each of those that share a commit, which know what those before them
have written. What differs is an error, and is noted for the test's end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import sqlalchemy as sa

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_server.store import statements, tables
from assay_server.store.connections.noted import NotedRows
from assay_server.store.connections.prepared import Driver
from assay_server.store.parts.attempts import OF_SLICE, OF_SLOT
from assay_server.store.parts.known import COURSE, ENDS, STATES_BESIDE, WAITING
from assay_server.store.parts.tokens import RESERVED
from assay_server.store.postgresql.store import PostgresqlStore
from assay_server.store.sql import SqlTransaction

_NO_CONNECTION = cast(sa.Connection, None)  # everything compared here is read by the driver

Reader = Callable[..., tuple[Any, Any]]

_MOST_COMPARED = 100  # at one beginning, by chance

differences: list[str] = []


def install() -> None:
    """Compare from now on, in every store of this process."""
    transaction = PostgresqlStore.transaction
    if hasattr(transaction, "compares"):
        return

    @contextmanager
    def compared(store: PostgresqlStore, *, alone: bool = False) -> Iterator[SqlTransaction]:
        with transaction(store, alone=alone) as write:
            found = list(_differences(write.known, write.driver)) if write.known else []
            differences.extend(found)
            assert not found, found
            yield write

    compared.compares = transaction  # type: ignore[attr-defined]
    PostgresqlStore.transaction = compared  # type: ignore[method-assign]


def uninstall() -> None:
    """Compare nothing any more."""
    compared = PostgresqlStore.transaction
    PostgresqlStore.transaction = getattr(compared, "compares", compared)  # type: ignore[method-assign]


def take_differences() -> list[str]:
    """What differed since the last call."""
    taken = differences.copy()
    differences.clear()
    return taken


def _differences(rows: NotedRows, driver: Driver) -> Iterator[str]:
    truth = SqlTransaction(_NO_CONNECTION, driver)
    known = SqlTransaction(_NO_CONNECTION, driver, NotedRows(rows.items()))
    read = _readers(truth) | _readers_of_lists(truth, known)
    some = rows if len(rows) <= _MOST_COMPARED else random.sample(list(rows), _MOST_COMPARED)
    for name, *rest in some:
        value = rows[(name, *rest)]
        if name in read:
            remembered, there = read[name](value, *rest)
            if remembered != there:
                yield f"{name} {rest}: remembered {remembered}, in the database {there}"


def _readers(truth: SqlTransaction) -> dict[str, Reader]:
    """By table: what is remembered of a record, and what the database has."""
    return {
        tables.attempts.name: lambda value, *key: (value, truth.attempt(*key)),
        tables.slices.name: lambda value, *key: (value, truth.slice(*key)),
        tables.runs.name: lambda value, *key: (value, truth.run(*key)),
        tables.campaigns.name: lambda value, *key: (value, truth.campaign(*key)),
        tables.agents.name: lambda value, *key: (value, truth.agent(*key)),
        tables.segments.name: lambda value, *key: (
            value,
            truth.segment(AttemptKey(*key[:3], 0), key[3]),
        ),
        RESERVED[0]: lambda value: (bool(value) and not _unused(value, truth), False),
    }


def _unused(tokens: list[int], truth: SqlTransaction) -> bool:
    """Whether nobody else can have these tokens, nor have given a later one."""
    last = truth.driver.scalar(statements.last_token(), {})
    given = truth.driver.first(sa.select(sa.func.max(tables.attempts.c.token).label("token")), {})
    assert given is not None
    return (given["token"] or 0) < tokens[0] and tokens == sorted(set(tokens)) and tokens[-1] == last


def _readers_of_lists(truth: SqlTransaction, known: SqlTransaction) -> dict[str, Reader]:
    """By kind of list: what follows from what is remembered, and from the database."""
    leased = (AttemptState.LEASED,)
    return {
        OF_SLICE: lambda value, *key: (value, truth.attempts(*key)),
        OF_SLOT: lambda value, agent, slot: (
            value,
            truth.attempts_in(leased, agent_id=agent, slot_id=slot),
        ),
        COURSE: lambda value, campaign: (
            value,
            truth.driver.first(statements.course_of_campaign(), {"campaign_id": campaign}),
        ),
        STATES_BESIDE: lambda value, run: (
            value,
            {index: truth.states_beside(run, index) for index in value},
        ),
        ENDS: lambda _value, campaign: (known.open_ends(campaign), truth.open_ends(campaign)),
        WAITING: lambda value, lane: (
            known.first_waiting((lane,), value.now_ms),
            truth.first_waiting((lane,), value.now_ms),
        ),
    }
