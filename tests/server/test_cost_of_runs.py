"""The cost of a run in the database: how much is asked and written for it, and nothing is read stale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from assay_core.records.campaign import AttemptState, RunState, Submission, Submitted
from assay_core.records.machine import Inventory
from assay_sampling.launches.table import CacheCondition, Condition
from assay_server.campaigns import submit
from assay_server.campaigns.planning.plan import Plan
from assay_server.store.model import Agent, Hold, Slice, SliceState
from assay_server.store.parts import queue
from assay_server.store.sql import MetadataStore, SqlTransaction
from assay_server.store.sqlite import SqliteStore
from tests.support.server.ingest_box import TEXT, Box
from tests.support.server.made_segments import made_segments
from tests.support.server.metadata_stores import METADATA_STORES
from tests.support.server.stored_values import attempt, campaign, run

# From a leased run of one segment to its published file. The segment is held in the database meanwhile.
MOST_STATEMENTS, MOST_COMMITS = 22, 3


@pytest.fixture
def executed() -> Iterator[Counter[str]]:
    """Statements since the test began, and how many of them begin and commit."""
    seen: Counter[str] = Counter()

    def counted(_connection: object, _cursor: object, statement: str, *_others: object) -> None:
        seen[statement if statement.startswith(("BEGIN", "COMMIT")) else "others"] += 1

    sa.event.listen(sa.Engine, "before_cursor_execute", counted)
    yield seen
    sa.event.remove(sa.Engine, "before_cursor_execute", counted)


def test_a_finished_run_takes_few_statements_and_three_commits(tmp_path: Path, executed: Counter[str]):
    box = Box(tmp_path)
    [segment] = made_segments((50,))
    executed.clear()

    assert box.send(segment).refusal is None
    assert box.finish(1, 50)
    sent_and_finished = Counter(executed)
    box.close()

    assert 0 < sent_and_finished["others"] <= MOST_STATEMENTS
    assert 0 < sent_and_finished["BEGIN IMMEDIATE"] <= MOST_COMMITS


def test_held_workloads_are_found_without_a_look_at_every_run(tmp_path: Path):
    SqliteStore(tmp_path / "metadata.sqlite").close()
    engine = sa.create_engine(f"sqlite:///{tmp_path}/metadata.sqlite")
    query = str(queue.HELD_WORKLOADS.compile(dialect=sqlite.dialect()))
    with engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", ("made-1",)).all()
    engine.dispose()

    first, then, last = [step.detail for step in plan][:3]
    assert "lanes" in first
    assert "ix_slices_waiting" in then
    assert "runs" in last


def _hold(store: SqlTransaction) -> None:
    store.set_holds(["made-1.0000"], [Hold.AFTER])


def _retry(store: SqlTransaction) -> None:
    store.cancel_runs(["made-1.0000"])
    store.retry_runs(["made-1.0000"])


CHANGES: dict[str, Callable[[SqlTransaction], None]] = {
    "hold": _hold,
    "pause": lambda store: store.pause_runs(["made-1.0000"], True),
    "cancel": lambda store: store.cancel_runs(["made-1.0000"]),
    "retry": _retry,
    "new slices": lambda store: store.replace_slices("made-1.0000", 1, [Slice("made-1.0000", 1, 9, 9)]),
    "heartbeat": lambda store: store.extend_attempts([(attempt().key, 7)], 99),
    "seen": lambda store: store.saw_agents(["a"], 77),
    "agent": lambda store: store.put_agent(replace(AGENT, seen_at_ms=5)),
    "deleted": lambda store: store.delete_runs(["made-1.0001"]),
    "saved": lambda store: store.save_run(run(0, state=RunState.RUNNING, flags=())),
    "slice": lambda store: store.save_slice(Slice("made-1.0000", 0, state=SliceState.LEASED, launches=3)),
    "attempt": lambda store: store.save_attempt(attempt(state=AttemptState.PUBLISHING, launches=4)),
}
CACHES: tuple[CacheCondition, ...] = ("all", "none")
AGENT = Agent("a", "s", "a", Inventory(), (), 0)


@pytest.fixture(params=METADATA_STORES)
def metadata(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    store = METADATA_STORES[request.param](tmp_path)
    yield store
    store.close()


def everything(store: SqlTransaction) -> list[object]:
    runs = ("made-1.0000", "made-1.0001")
    return [
        [store.run(each) for each in runs],
        [store.slice(each, index) for each in runs for index in (0, 1)],
        store.attempt("made-1.0000", 0, 1),
        store.agent("a"),
        store.campaign_of("made-1.0000"),
        store.campaign("made-1"),
    ]


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_transaction_has_read_is_never_older_than_what_it_wrote(metadata: MetadataStore, change: str):
    with metadata.transaction() as store:
        planned = [run(n) for n in range(2)]
        slices = [Slice(each.run_id, index) for each in planned for index in (0, 1)]
        store.add_campaign(campaign(), planned, slices)
        store.add_attempt(attempt())
        store.put_agent(AGENT)
    with metadata.transaction() as store:
        before = everything(store)
        CHANGES[change](store)
        after = everything(store)
    with metadata.snapshot() as read:
        kept = everything(read)

    assert after == kept
    assert after != before


def test_a_saved_run_keeps_the_holds_that_it_has(metadata: MetadataStore):
    with metadata.transaction() as store:
        store.add_campaign(campaign(), [run(0)], [Slice("made-1.0000", 0)])
        store.set_holds(["made-1.0000"], [Hold.PAUSED])
        known = store.run("made-1.0000")
        assert known is not None
        store.save_run(replace(known, state=RunState.RUNNING, holds=()))
        found = store.run("made-1.0000")
    with metadata.snapshot() as read:
        kept = read.run("made-1.0000")

    assert found == kept == run(0, state=RunState.RUNNING, holds=(Hold.PAUSED,))


def test_a_campaign_that_another_of_its_name_overtakes_gets_the_next_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A campaign is planned before its transaction, so that others need not wait for that."""
    box = Box(tmp_path)  # has submitted made-1
    real = submit.plan_campaign
    submission = Submission(TEXT.format(synthetic="false"), "c.yaml", "/data")

    def overtaken(*arguments: Any, **keywords: Any) -> Plan:
        monkeypatch.setattr(submit, "plan_campaign", real)
        assert submit.submit(box.coordinator, submission) == Submitted("made-2", 2)
        return real(*arguments, **keywords)

    monkeypatch.setattr(submit, "plan_campaign", overtaken)
    assert submit.submit(box.coordinator, submission) == Submitted("made-3", 2)
    with box.coordinator.snapshot() as store:
        names = [[each.run_id for each in store.runs(f"made-{number}")] for number in (2, 3)]
    box.close()

    assert names == [["made-2.0000", "made-2.0001"], ["made-3.0000", "made-3.0001"]]


def test_runs_that_share_most_values_are_stored_each_with_its_own(metadata: MetadataStore):
    """The store converts what runs share once; here pairs share, and differ in each way that there is."""
    pairs = [
        replace(run(0), condition=Condition(cache, None, 50.0), flags=flags, holds=holds)
        for cache in CACHES
        for flags in ((), run(0).flags)
        for holds in ((), (Hold.AFTER,))
    ]
    planned = [
        replace(each, run_id=f"made-1.{n:04d}", ordinal=n, repeat=n % 3)
        for n, each in enumerate(each for pair in pairs for each in (pair, pair))
    ]
    slices = [Slice(each.run_id, index, 10 * index, 10) for each in planned for index in (0, 1)]
    with metadata.transaction() as store:
        store.add_campaign(campaign(), planned, slices)
    with metadata.snapshot() as read:
        assert read.runs("made-1") == planned
        assert [piece for each in planned for piece in read.slices(each.run_id)] == slices
        held = [each for each in planned if each.holds]
        assert read.held_workloads("made-1") == {each.workload for each in held}
