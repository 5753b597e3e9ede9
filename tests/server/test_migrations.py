"""The metadata database: made from nothing, brought forward, and refused where it is not ours or too new."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from assay_sampling.errors import StorageError
from assay_server.store import migrate, sqlite, tables
from assay_server.store.sqlite import SqliteStore
from tests.support.server import made_once
from tests.support.server.stored_values import campaign


@pytest.fixture(autouse=True)
def by_migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the migrations themselves are tested, and not what other tests keep of them."""
    monkeypatch.setattr(sqlite, "upgrade", made_once.by_migrations)


def schema(path: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
        ).fetchall()
    connection.close()
    return rows


def test_the_migrations_make_exactly_the_tables_that_the_program_uses(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "m.sqlite").close()
    engine = sa.create_engine(f"sqlite:///{tmp_path}/m.sqlite")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []
        made = {i["name"]: i["dialect_options"] for i in sa.inspect(connection).get_indexes("attempts")}
    engine.dispose()
    for index in tables.attempts.indexes:
        where = index.dialect_options["sqlite"]["where"]
        if where is not None:
            assert str(made[index.name]["sqlite_where"]) == str(where)


def test_the_schema_that_other_tests_keep_is_what_the_migrations_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteStore(tmp_path / "migrated.sqlite").close()
    monkeypatch.setattr(sqlite, "upgrade", made_once.as_kept)
    SqliteStore(None).close()  # the first, if no other test has made one
    monkeypatch.setattr(made_once, "by_migrations", None)
    SqliteStore(tmp_path / "kept.sqlite").close()
    dumps = [dump(tmp_path / f"{name}.sqlite") for name in ("migrated", "kept")]
    assert dumps[0] == dumps[1]
    assert f"INSERT INTO \"alembic_version\" VALUES('{migrate.HEAD}');" in dumps[0]


def dump(path: Path) -> list[str]:
    with sqlite3.connect(path) as connection:
        lines = list(connection.iterdump())
    connection.close()
    return lines


def test_the_head_that_the_program_names_is_the_newest_migration() -> None:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        script = ScriptDirectory.from_config(migrate.migration_config(connection))
        assert script.get_current_head() == migrate.HEAD
    engine.dispose()


def test_opening_again_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.sqlite"
    SqliteStore(path).close()
    before = schema(path)
    SqliteStore(path).close()
    assert schema(path) == before
    # Also by way of alembic itself, which finds nothing to do.
    monkeypatch.setattr(migrate, "HEAD", "not this one")
    SqliteStore(path).close()
    assert schema(path) == before


def test_a_newer_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    SqliteStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(StorageError) as caught:
        SqliteStore(path)
    assert str(caught.value) == (
        f"{path}: another version of Assay wrote it (schema '9999', which this program does not know); "
        "use that version, or give another --state directory"
    )
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]
    connection.close()


def test_somebody_elses_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE photos (id INTEGER)")
    connection.close()
    with pytest.raises(StorageError, match="it is another program's database"):
        SqliteStore(path)
    assert [name for name, _ in schema(path)] == ["photos"]


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StorageError, match="file is not a database"):
        SqliteStore(path)


def test_a_migration_that_fails_leaves_an_empty_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(config: object, revision: str) -> None:
        real(config, revision)  # type: ignore[arg-type]
        raise StorageError("migration", "the power went")

    real = command.upgrade
    monkeypatch.setattr(command, "upgrade", breaks)
    with pytest.raises(StorageError, match="the power went"):
        SqliteStore(tmp_path / "m.sqlite")
    assert schema(tmp_path / "m.sqlite") == []
    monkeypatch.undo()
    SqliteStore(tmp_path / "m.sqlite").close()


@pytest.mark.parametrize("document", ['{"version": 2}', "[]"])
def test_a_compiled_campaign_that_cannot_be_read_is_told_with_its_name(tmp_path: Path, document: str) -> None:
    path = tmp_path / "m.sqlite"
    made = SqliteStore(path)
    with made.transaction() as transaction:
        transaction.add_campaign(campaign("c-1"), [], [])
    made.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE campaigns SET compiled = ?", (document,))
    connection.close()
    store = SqliteStore(path)
    with store.snapshot() as read, pytest.raises(StorageError, match="campaign c-1: its compiled form"):
        read.campaign("c-1")
    store.close()
