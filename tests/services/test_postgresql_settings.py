"""Databases, users and poolers as administrators set them: what fits works, the rest is refused by name."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from assay_sampling.errors import StorageError
from assay_server.database.opening import opened_alone
from assay_server.places import database_place
from assay_server.store.postgresql.store import PostgresqlStore
from assay_server.store.transactions import NothingKeptError
from tests.services.postgresql import OwnPostgresql
from tests.services.seaweedfs import free_ports
from tests.support.integration.harness import wait_until
from tests.support.server.stored_values import campaign, run

USER = "lab"
_POOLER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
MakeUser = Callable[..., str]


@pytest.fixture
def make_user(own_postgresql: OwnPostgresql) -> MakeUser:
    """Makes a user with settings of their own, and an empty database of theirs; returns its URL."""

    def make(*settings: str, database: str = "") -> str:
        own_postgresql.administrate("DROP DATABASE IF EXISTS of_user WITH (FORCE)", database="postgres")
        with suppress(psycopg.errors.UndefinedObject):
            own_postgresql.administrate(f"DROP ROLE {USER}")
        own_postgresql.administrate(
            f"CREATE ROLE {USER} LOGIN",
            *(f"ALTER ROLE {USER} {each}" for each in settings),
            f"CREATE DATABASE of_user OWNER {USER} {database}",
            database="postgres",
        )
        return own_postgresql.url("of_user", USER)

    return make


def refused(url: str, match: str) -> StorageError:
    with pytest.raises(StorageError, match=match) as caught:
        PostgresqlStore(database_place(url))
    assert caught.value.remedy
    return caught.value


def write_and_read(store: PostgresqlStore, number: int) -> None:
    with store.transaction() as write:
        write.add_campaign(campaign(f"made-{number}", number), [run(0, f"made-{number}")], [])
    with store.snapshot() as read:
        assert read.campaign(f"made-{number}") is not None


@pytest.mark.parametrize(
    ("database", "cause"),
    [
        ("ENCODING 'SQL_ASCII' TEMPLATE template0", "its encoding is SQL_ASCII"),
        ("LOCALE_PROVIDER icu ICU_LOCALE 'en-US' TEMPLATE template0", "by the rules of a language"),
    ],
)
def test_a_database_of_another_encoding_or_order_is_refused(
    make_user: MakeUser, database: str, cause: str
) -> None:
    assert "createdb" in refused(make_user(database=database), cause).remedy


def test_settings_of_the_user_that_would_end_sessions_or_statements_do_not_count(
    make_user: MakeUser, caplog: pytest.LogCaptureFixture
) -> None:
    url = make_user(
        "SET idle_session_timeout = '200ms'", "SET statement_timeout = '9s'",
        "SET idle_in_transaction_session_timeout = '9s'",
        "SET default_transaction_isolation = 'serializable'", "SET default_transaction_deferrable = on",
        "SET standard_conforming_strings = off", "SET timezone = 'Asia/Kathmandu'",
    )  # fmt: skip
    with closing(opened_alone(database_place(url))) as store:
        sessions = "SELECT array_agg(pid ORDER BY pid) FROM pg_stat_activity WHERE datname = 'of_user'"
        with closing(psycopg.connect(url.replace("of_user", "postgres").replace(USER, "assay"))) as watching:
            watching.autocommit = True
            write_and_read(store, 1)
            with store.snapshot() as read:
                for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
                    assert read.connection.exec_driver_sql(f"SHOW {name}").scalar() == "0"
            before = watching.execute(sessions).fetchone()
            time.sleep(0.6)  # for three times the timeout nobody asks anything
            assert watching.execute(sessions).fetchone() == before, "a session ended"
            write_and_read(store, 2)
        with pytest.raises(StorageError, match="another assay-server uses this database"):
            opened_alone(database_place(url))
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_a_search_path_names_the_schema_or_is_said_to_name_none(
    own_postgresql: OwnPostgresql, make_user: MakeUser
) -> None:
    url = make_user("SET search_path = 'assay_lab'")
    error = refused(url, "may use no schema of those that it looks in .search_path: assay_lab.")
    assert "CREATE SCHEMA" in error.remedy and "RESET search_path" in error.remedy
    own_postgresql.administrate(f"CREATE SCHEMA assay_lab AUTHORIZATION {USER}", database="of_user")
    with closing(opened_alone(database_place(url))) as store:
        write_and_read(store, 1)


def test_tables_of_another_user_are_refused_with_a_remedy_that_helps(
    own_postgresql: OwnPostgresql, make_user: MakeUser
) -> None:
    url = make_user()
    PostgresqlStore(
        database_place(own_postgresql.url("of_user"))
    ).close()  # as a dump that a superuser restored
    error = refused(url, "the database's user lacks a right")
    assert "owns its tables" in error.remedy and "--no-owner --role" in error.remedy


@pytest.mark.parametrize("limited", [f"ROLE {USER}", "DATABASE of_user"])
def test_a_database_without_a_connection_left_says_so_and_the_store_goes_on(
    own_postgresql: OwnPostgresql, make_user: MakeUser, limited: str
) -> None:
    url = make_user()
    with closing(PostgresqlStore(database_place(url))) as store:
        write_and_read(store, 1)
        own_postgresql.administrate(
            f"ALTER {limited} CONNECTION LIMIT 0",
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = 'of_user'",
            database="postgres",
        )
        for _ in range(2):
            with pytest.raises(NothingKeptError, match="the database has no connection left") as caught:
                write_and_read(store, 2)
            assert "CONNECTION LIMIT" in caught.value.remedy
        refused(url, "the database has no connection left")
        own_postgresql.administrate(f"ALTER {limited} CONNECTION LIMIT -1", database="postgres")
        write_and_read(store, 2)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the unprivileged user may enter."""
    with tempfile.TemporaryDirectory(prefix="assay-") as made:
        yield Path(made)


@contextmanager
def pooler(folder: Path, database: str, mode: str) -> Iterator[str]:
    """PgBouncer before a database; its URL."""
    assert _POOLER is not None
    [port] = free_ports(1)
    server = psycopg.conninfo.conninfo_to_dict(database)
    (folder / "users").write_text(f'"{server["user"]}" ""\n')
    (folder / "pooler.ini").write_text(
        f"[databases]\n* = host={server['host']} port={server['port']}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {folder}/users\npool_mode = {mode}\n"
    )
    command = [_POOLER, "-q", str(folder / "pooler.ini")]
    if os.geteuid() == 0:  # which PgBouncer refuses
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, "postgres")
        command[1:1] = ["-u", "postgres"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"postgresql://{server['user']}@127.0.0.1:{port}/{server['dbname']}"

    def answers() -> bool:
        with suppress(psycopg.OperationalError):
            psycopg.connect(url, connect_timeout=2).close()
            return True
        return False

    try:
        wait_until(answers, "the start of PgBouncer")
        yield url
    finally:
        process.kill()
        process.wait(60)


@pytest.mark.skipif(_POOLER is None, reason="Debian's package pgbouncer is not installed")
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_pooler_that_keeps_no_sessions_is_refused_and_one_that_does_serves(
    fresh_database: str, folder: Path, mode: str
) -> None:
    with pooler(folder, fresh_database, mode) as url:
        if mode == "transaction":
            for _ in range(3):
                assert "pool_mode = session" in refused(url, "keeps no sessions").remedy
            # What was refused left no lock in the pooler's own connections.
            opened_alone(database_place(fresh_database)).close()
            return
        with closing(opened_alone(database_place(url))) as store:
            write_and_read(store, 1)
            with pytest.raises(StorageError, match="another assay-server uses this database"):
                opened_alone(database_place(url))
