"""A real PostgreSQL: killed and started again, refused where it is not fit, moved to and back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier, get_ident
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from assay_core.files import durable
from assay_core.records.campaign import RunState
from assay_sampling.errors import ParameterError, StorageError
from assay_server.database import moving, opening
from assay_server.database.moving import move_to_postgresql, move_to_sqlite
from assay_server.database.opening import AskedDatabase, open_database, open_leading, opened_alone
from assay_server.database.state_notes import DatabaseInForce, noted_database
from assay_server.maintenance.database_copy import copy_database
from assay_server.places import database_place
from assay_server.store.model import Slice
from assay_server.store.postgresql.connections import require_fit
from assay_server.store.postgresql.store import PostgresqlStore
from assay_server.store.sql import MetadataStore
from assay_server.store.sqlite import SqliteStore
from assay_server.store.tables import STATE_NUMBER
from tests.services.postgresql import OwnPostgresql, programs
from tests.support.server.stored_values import attempt, campaign, run

AWAY = r"lost|does not answer|shut down"
pytestmark = pytest.mark.skipif(
    not os.environ.get("ASSAY_SERVICES") or programs() is None, reason="make test-services has a PostgreSQL"
)


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgresql]:
    with OwnPostgresql() as own:
        yield own


@pytest.fixture
def url(server: OwnPostgresql) -> str:
    server.administrate("DROP DATABASE IF EXISTS one WITH (FORCE)", "CREATE DATABASE one")
    return server.url("one")


def asked(url: str) -> AskedDatabase:
    return AskedDatabase(database_place(url))


def nothing(_table: str, _rows: int) -> None:
    pass


def fill(store: MetadataStore) -> None:
    with store.transaction() as write:
        write.begin_epoch(1)
        write.add_campaign(campaign(paused=True), [run(0), run(1)], [Slice(run(i).run_id, 0) for i in (0, 1)])
        write.add_attempt(attempt(1))


def test_a_killed_database_is_a_typed_error_and_the_store_goes_on_by_itself(
    server: OwnPostgresql, url: str
) -> None:
    store = opened_alone(database_place(url))
    fill(store)
    with store.snapshot() as read:
        before = read.runs("made-1")
    server.kill()
    for _ in range(2):
        with (
            pytest.raises(StorageError, match=AWAY),
            store.transaction() as write,
        ):
            write.next_token()
        with pytest.raises(StorageError, match=AWAY), store.snapshot() as read:
            read.campaigns()
    server.start()
    with store.snapshot() as read:
        assert read.runs("made-1") == before
    with store.transaction() as write:
        write.save_run(run(0, state=RunState.DONE))
    with pytest.raises(StorageError, match="another assay-server uses this database"):
        opened_alone(database_place(url))  # the lock was taken again
    store.close()


def test_a_paused_campaign_moves_there_and_back_and_goes_on(url: str, tmp_path: Path) -> None:
    old = SqliteStore(tmp_path / "metadata.sqlite")
    fill(old)
    old.close()
    moved = move_to_postgresql(tmp_path, asked(url), nothing)
    assert moved.kept is not None and moved.kept.exists() and not (tmp_path / "metadata.sqlite").exists()
    with pytest.raises(ParameterError, match="in PostgreSQL already"):
        move_to_postgresql(tmp_path, asked(url), nothing)
    store = open_leading(tmp_path)
    with store.transaction() as write:
        assert write.attempts("made-1.0000") == [attempt(1)]
        last = write.next_token()
        write.save_campaign(campaign(paused=False))
        write.add_campaign(campaign("made-2", 2), [run(0, "made-2")], [Slice("made-2.0000", 0)])  # a new lane
    with pytest.raises(StorageError, match="another assay-server uses this database"):
        move_to_sqlite(tmp_path, AskedDatabase(), nothing)
    store.close()
    assert move_to_sqlite(tmp_path, AskedDatabase(), nothing).rows == moved.rows + 4
    assert noted_database(tmp_path) is None
    back = open_database(tmp_path)
    with back.transaction() as write:
        assert write.next_token() == last + 1
        assert [(each.campaign_id, each.paused) for each in write.campaigns()] == [
            ("made-1", False), ("made-2", False),
        ]  # fmt: skip
        assert [each.campaign_id for each in write.entrants()] == ["made-1", "made-2"]
    back.close()
    move_to_postgresql(tmp_path, asked(url), nothing)  # over our own rows of the first time


def test_an_interrupted_move_leaves_the_old_database_in_force(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = SqliteStore(tmp_path / "metadata.sqlite")
    fill(old)
    old.close()

    def stop(*_given: object) -> None:
        raise KeyboardInterrupt

    for step in ("copy_rows", "note_database"):
        with monkeypatch.context() as patch:
            patch.setattr(moving, step, stop)
            with pytest.raises(KeyboardInterrupt):
                move_to_postgresql(tmp_path, asked(url), nothing)
        assert noted_database(tmp_path) is None and (tmp_path / "metadata.sqlite").exists()
    move_to_postgresql(tmp_path, asked(url), nothing)
    for step in ("copy_rows", "remove_note"):
        with monkeypatch.context() as patch:
            patch.setattr(moving, step, stop)
            with pytest.raises(KeyboardInterrupt):
                move_to_sqlite(tmp_path, AskedDatabase(), nothing)
        assert noted_database(tmp_path) is not None
    move_to_sqlite(tmp_path, AskedDatabase(), nothing)
    assert noted_database(tmp_path) is None


def test_a_copy_of_postgresql_is_a_sqlite_file_with_the_same_rows(url: str, tmp_path: Path) -> None:
    store = open_leading(tmp_path, asked(url))
    fill(store)
    copy_database(tmp_path, tmp_path / "copy.sqlite")
    store.close()
    copy = SqliteStore(tmp_path / "copy.sqlite")
    with copy.snapshot() as read:
        assert read.attempts("made-1.0000") == [attempt(1)]
    copy.close()


def test_a_database_with_the_campaigns_of_another_folder_is_refused(url: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    store = open_leading(first, asked(url))
    fill(store)
    store.close()
    with pytest.raises(StorageError, match="it has the campaigns of another state folder"):
        open_database(second, asked(url))
    joining = replace(asked(url), shared=True, records="s3://lab/typo")
    with pytest.raises(StorageError, match="whose records are not in s3://lab/typo") as told:
        open_database(second, joining)
    assert "name their bucket and prefix, or folder, with --records" in told.value.remedy
    SqliteStore(second / "metadata.sqlite").close()
    with pytest.raises(StorageError, match="it has the campaigns of another state folder"):
        move_to_postgresql(second, asked(url), nothing)
    open_database(first).close()  # by its note


def test_programs_that_open_an_empty_database_at_one_moment_give_it_one_number(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PostgresqlStore(database_place(url)).close()  # the tables are there
    both, has_rows = Barrier(2), opening.has_rows

    def both_found_it_empty(connection: sa.Connection, **told: bool) -> bool:
        found = has_rows(connection, **told)
        both.wait(60)
        return found

    def of_its_own(path: Path) -> Path:  # two programs are two processes
        return path.with_name(f"{path.name}{durable.TEMPORARY}{get_ident()}")

    monkeypatch.setattr(opening, "has_rows", both_found_it_empty)
    monkeypatch.setattr(durable, "temporary_of", of_its_own)
    with ThreadPoolExecutor(2) as pool:
        server_and_token = pool.map(
            lambda opened: opened(tmp_path, asked(url)), (open_leading, open_database)
        )
        numbers = {number_and_close(store) for store in server_and_token}
    noted = noted_database(tmp_path)
    assert noted is not None
    assert numbers == {noted.state}


def number_and_close(store: MetadataStore) -> int | None:
    assert isinstance(store, PostgresqlStore)
    with store.snapshot() as read:
        number = read.number(STATE_NUMBER)
    store.close()
    return number


def test_a_database_that_a_server_takes_while_another_program_looks_at_it_is_that_folders(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def server_is_quicker(state: Path) -> DatabaseInForce | None:
        nonlocal looks
        found, looks = noted_database(state), looks + 1
        if looks == 2:  # of the token's program: after it has connected, before it looks for rows
            server = open_leading(tmp_path, asked(url))
            fill(server)
            server.close()
        return found

    monkeypatch.setattr(opening, "noted_database", server_is_quicker)
    store = open_database(tmp_path, asked(url))
    with store.transaction() as write:
        assert write.next_token() > 1
    store.close()


def test_databases_that_are_not_fit_are_refused_each_with_its_remedy(
    server: OwnPostgresql, url: str, tmp_path: Path
) -> None:
    server.administrate(
        "DROP DATABASE IF EXISTS latin", "DROP DATABASE IF EXISTS bare", "DROP ROLE IF EXISTS guest",
        "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0", "CREATE ROLE guest LOGIN",
        "CREATE DATABASE bare",
    )  # fmt: skip

    def refused(place: str, match: str) -> None:
        with pytest.raises(StorageError, match=match) as caught:
            PostgresqlStore(database_place(place))
        assert caught.value.remedy

    refused(server.url("latin"), "its encoding is LATIN1")
    refused(server.url("bare", "guest"), "its user may not make tables in the schema 'public'")
    refused(server.url("missing"), "the server has no such database")
    refused(server.url("one", "nobody"), "the database has no such user")
    server.administrate("CREATE TABLE photos (id integer)", database="bare")
    refused(server.url("bare"), "it is another program's database")
    PostgresqlStore(database_place(url)).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    refused(url, "another version of Assay wrote it")


def refused(place: str, match: str) -> StorageError:
    with pytest.raises(StorageError, match=match) as caught:
        PostgresqlStore(database_place(place, with_secret=True))
    assert caught.value.remedy
    return caught.value


def test_a_wrong_password_is_refused_and_never_shown(
    server: OwnPostgresql, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.administrate("DROP ROLE IF EXISTS guarded", "CREATE ROLE guarded LOGIN PASSWORD 'right'")
    server.administrate("GRANT ALL ON SCHEMA public TO guarded", database="one")
    server.ask_for_password("guarded")
    place = server.url("one", "guarded")
    for with_password in (place, place.replace("guarded@", "guarded:mistaken@")):
        error = refused(with_password, "the database refused the user or the password")
        assert "mistaken" not in str(error) and "PGPASSFILE" in error.remedy
    monkeypatch.setenv("PGPASSWORD", "right")
    PostgresqlStore(database_place(place)).close()


def test_a_database_that_is_only_read_is_refused(server: OwnPostgresql, url: str) -> None:
    server.administrate("ALTER DATABASE one SET default_transaction_read_only = on")
    error = refused(url, "somebody set it to be only read")
    assert "RESET default_transaction_read_only" in error.remedy
    server.administrate("ALTER DATABASE one RESET default_transaction_read_only")
    PostgresqlStore(database_place(url)).close()
    with server.as_standby():
        assert refused(url, "it is a standby").remedy == "name the primary server"
    PostgresqlStore(database_place(url)).close()


def test_a_store_whose_database_becomes_only_read_tells_so(server: OwnPostgresql, url: str) -> None:
    store = opened_alone(database_place(url))
    fill(store)
    with server.as_standby():
        with (
            pytest.raises(StorageError, match="the database is read-only") as caught,
            store.transaction() as write,
        ):
            write.next_token()
        assert caught.value.remedy == "name the primary server"
        with store.snapshot() as read:
            assert len(read.runs("made-1")) == 2
    with store.transaction() as write:
        write.next_token()
    store.close()


def test_a_server_that_is_too_old_is_refused_by_what_it_reports(url: str) -> None:
    """No server of PostgreSQL 14 is at hand: the number that a newer one reports is replaced."""
    engine = sa.create_engine(database_place(url).url, isolation_level="AUTOCOMMIT")

    @sa.event.listens_for(engine, "before_cursor_execute", retval=True)
    def older(_c: Any, _cursor: Any, statement: str, parameters: Any, *_others: Any) -> tuple[str, Any]:
        said = statement.replace("current_setting('server_version_num')::integer", "140011")
        return said.replace("current_setting('server_version')", "'14.11'"), parameters

    with engine.connect() as connection, pytest.raises(StorageError, match=r"PostgreSQL 14\.11") as caught:
        require_fit(connection, "postgresql://db/assay")
    assert caught.value.remedy == "use PostgreSQL 15 or newer"
    engine.dispose()
