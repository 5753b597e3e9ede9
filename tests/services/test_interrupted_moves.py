"""Moves between SQLite and PostgreSQL that die in the middle leave the old database in force."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from assay_sampling.errors import StorageError
from assay_server.database.moving import Moved, move_to_postgresql, move_to_sqlite
from assay_server.database.opening import AskedDatabase, open_database
from assay_server.database.state_notes import noted_database
from assay_server.places import database_place
from assay_server.store.model import Slice
from assay_server.store.sqlite import SqliteStore
from tests.services.postgresql import OwnPostgresql
from tests.support.server.stored_values import campaign, run

RUNS = 250
DIES = """
import os, signal, sys
from pathlib import Path
from assay_server.database.moving import move_to_postgresql, move_to_sqlite
from assay_server.database.opening import AskedDatabase
from assay_server.places import database_place

def die(table, rows):
    if rows == 200:
        os.kill(os.getpid(), signal.SIGKILL)

state, url = Path(sys.argv[1]), sys.argv[2]
if url == "sqlite":
    move_to_sqlite(state, AskedDatabase(), die)
else:
    move_to_postgresql(state, AskedDatabase(database_place(url)), die)
"""
Told = Callable[[str, int], None]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    with closing(SqliteStore(tmp_path / "metadata.sqlite")) as store, store.transaction() as write:
        write.begin_epoch(1)
        runs = [run(number) for number in range(RUNS)]
        write.add_campaign(campaign(), runs, [Slice(each.run_id, 0) for each in runs])
    return tmp_path


def move(state: Path, url: str, told: Told = lambda table, rows: None) -> Moved:
    if url == "sqlite":
        return move_to_sqlite(state, AskedDatabase(), told)
    return move_to_postgresql(state, AskedDatabase(database_place(url)), told)


def kept(state: Path) -> int:
    """The number of runs in the database that is in force."""
    with closing(open_database(state)) as store, store.snapshot() as read:
        return len(read.runs("made-1"))


def test_a_connection_that_the_database_ends_in_the_middle_moves_nothing(
    own_postgresql: OwnPostgresql, fresh_database: str, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def end_the_connection(table: str, rows: int) -> None:
        if rows == 200:
            ours = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = 'fresh'"
            own_postgresql.administrate(ours, database="postgres")

    for url in (fresh_database, "sqlite"):
        before = noted_database(state)
        with pytest.raises(StorageError, match=r"lost|shut down") as caught:
            move(state, url, end_the_connection)
        assert caught.value.subject == fresh_database, "whichever of the two went away is named"
        assert "nothing was moved" in caught.value.remedy
        assert noted_database(state) == before and kept(state) == RUNS
        move(state, url)
        assert noted_database(state) != before and kept(state) == RUNS
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_move_that_is_killed_is_done_again(fresh_database: str, state: Path) -> None:
    for url in (fresh_database, "sqlite"):
        before = noted_database(state)
        program = [sys.executable, "-c", DIES, str(state), url]
        killed = subprocess.run(program, env={**os.environ}, capture_output=True, check=False, timeout=120)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert noted_database(state) == before and kept(state) == RUNS
        move(state, url)
        assert noted_database(state) != before and kept(state) == RUNS
        assert not list(state.glob("*.moving*"))
