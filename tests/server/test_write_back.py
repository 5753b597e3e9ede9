"""What was committed is written back into SQLite's file in a thread of its own, which nobody waits for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_server.store.sqlite import SqliteStore, written_back
from tests.support.server.server_support import eventually
from tests.support.server.stored_values import campaign, run


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "metadata.sqlite")
    yield made
    made.close()


def add(store: SqliteStore, first: int, runs: int) -> None:
    with store.transaction() as write:
        if not first:
            write.add_campaign(campaign(), (), ())
        write.add_runs([run(ordinal) for ordinal in range(first, first + runs)], ())


def runs_without_the_log(folder: Path) -> int:
    """How many runs are in the database's file alone."""
    copied = folder / "copied"
    copied.mkdir(exist_ok=True)
    shutil.copy(folder / "metadata.sqlite", copied / "metadata.sqlite")
    beside = SqliteStore(copied / "metadata.sqlite")
    try:
        with beside.snapshot() as read:
            return len(read.runs("made-1"))
    finally:
        beside.close()
        shutil.rmtree(copied)


def test_a_thread_writes_back_what_was_committed(store: SqliteStore, tmp_path: Path) -> None:
    assert store.write_back() == 0
    add(store, 0, 20)
    assert runs_without_the_log(tmp_path) == 0
    with written_back(store.write_back, 0.01):
        eventually(lambda: store.write_back() == 0 and runs_without_the_log(tmp_path) == 20, "20 runs")
    add(store, 20, 5)
    assert runs_without_the_log(tmp_path) == 20  # the thread has ended


def test_it_waits_neither_for_a_writer_nor_for_a_reader(store: SqliteStore, tmp_path: Path) -> None:
    add(store, 0, 20)
    with store.transaction() as write:
        write.add_runs([run(20)], ())
        assert store.write_back() == 0
    assert runs_without_the_log(tmp_path) == 20
    with store.snapshot() as read:
        assert len(read.runs("made-1")) == 21
        add(store, 21, 5)
        assert store.write_back() > 0  # the reader's moment stays as it is
        assert len(read.runs("made-1")) == 21
    assert store.write_back() == 0
    assert runs_without_the_log(tmp_path) == 26


def test_in_memory_there_is_nothing_to_do() -> None:
    store = SqliteStore(None)
    add(store, 0, 1)
    assert store.write_back() == 0
    store.close()
