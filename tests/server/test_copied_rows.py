"""Rows that are copied from one database to another: odd ones as they are, unreadable ones named."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from assay_sampling.errors import StorageError
from assay_server.database.copying import copy_rows
from assay_server.store.model import Slice
from assay_server.store.sqlite import SqliteStore
from tests.support.server.stored_values import attempt, campaign, run

RUN = run(0).run_id


@contextmanager
def stores(tmp_path: Path) -> Iterator[tuple[SqliteStore, SqliteStore]]:
    """One with a campaign of 150 runs and an attempt, and an empty one."""
    with (
        closing(SqliteStore(tmp_path / "source.sqlite")) as source,
        closing(SqliteStore(tmp_path / "target.sqlite")) as target,
    ):
        with source.transaction() as write:
            write.begin_epoch(1)
            runs = [run(number) for number in range(150)]
            write.add_campaign(campaign(), runs, [Slice(each.run_id, 0) for each in runs])
            write.add_attempt(attempt(1, ordinal=120))
        yield source, target


def copy(source: SqliteStore, target: SqliteStore) -> int:
    with source.snapshot() as read, target.transaction() as write:
        return copy_rows(read.connection, write.connection)


def damage(tmp_path: Path, change: str, value: object) -> None:
    """Change a row behind the store's back, as a bit that flips on the disk or another program does."""
    with closing(sqlite3.connect(tmp_path / "source.sqlite")) as connection, connection:
        assert connection.execute(change, (value,)).rowcount == 1


@pytest.mark.parametrize(
    ("change", "value", "table", "cause"),
    [
        ("UPDATE attempts SET log = CAST(? AS TEXT)", b"\xff\x80", "attempts", "decode"),
        ("UPDATE attempts SET environment = ?", '{"a": ', "attempts", "Expecting value"),
        ("UPDATE attempts SET environment = ?", '{"a": [1, Infinity]}', "attempts", "environment.a is inf"),
        ("UPDATE attempts SET wall_seconds = ?", float("inf"), "attempts", "wall_seconds is inf"),
        (f"UPDATE runs SET flags = ? WHERE run_id = '{RUN[:-4]}0120'", "[", "runs", "Expecting value"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_and_nothing_is_copied(
    tmp_path: Path, change: str, value: object, table: str, cause: str
) -> None:
    with stores(tmp_path) as (source, target):
        damage(tmp_path, change, value)
        with pytest.raises(StorageError, match=cause) as caught:
            copy(source, target)
        assert caught.value.subject.startswith(f"the row run_id={RUN[:-4]}0120")
        assert caught.value.subject.endswith(f" of {table}")
        assert "nothing was copied" in caught.value.remedy
        with target.snapshot() as read:
            assert list(read.campaigns()) == []


def test_odd_texts_are_copied_as_they_are(tmp_path: Path) -> None:
    log = "Привет 🚀 \x01\x7f\u202e\n" * 40_000
    with stores(tmp_path) as (source, target):
        with source.transaction() as write:
            write.save_campaign(replace(campaign(), name="Прогон 🚀"))
        damage(tmp_path, "UPDATE attempts SET log = ?", log)
        damage(tmp_path, "UPDATE attempts SET environment = ?", '{"a": "x\\ud800y"}')
        copy(source, target)
        with target.snapshot() as read:
            assert [each.name for each in read.campaigns()] == ["Прогон 🚀"]
        with closing(sqlite3.connect(tmp_path / "target.sqlite")) as connection:
            found = connection.execute("SELECT log, environment FROM attempts").fetchall()
        assert found == [(log, '{"a": "x\\ud800y"}')]
