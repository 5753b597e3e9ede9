"""Where a database is: its URL, its password that nobody sees, the folder's note, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
import sqlalchemy as sa

from assay_sampling.errors import ParameterError, StorageError
from assay_server.database.opening import AskedDatabase, asked_database, open_database, place_in_force
from assay_server.database.state_notes import DatabaseInForce, note_database, noted_database, remove_note
from assay_server.places import database_place
from assay_server.store.column_values import document_text
from assay_server.store.postgresql.refusals import refusal
from assay_server.store.sqlite import SqliteStore

URL = "postgresql://assay@db.lab:5433/queue?sslmode=require"
SECRET = "hunter2"


def test_a_place_shows_neither_password_nor_parameters(tmp_path: Path) -> None:
    file = tmp_path / "database"
    file.write_text(f"postgresql://assay:{SECRET}@db.lab:5433/queue?sslmode=require&sslpassword={SECRET}\n")
    file.chmod(0o600)
    place = asked_database("", file).place
    assert place is not None
    assert place.shown == "postgresql://assay@db.lab:5433/queue"
    assert place.without_secret == URL
    assert SECRET not in f"{place} {place!r}"
    assert place.url.password == SECRET


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"postgresql://assay:{SECRET}@db.lab/queue", "is seen by everybody who lists processes"),
        (f"postgresql://assay@db.lab/queue?password={SECRET}", "is seen by everybody who lists processes"),
        (f"mysql://assay:{SECRET}@db.lab/queue", "'mysql' is not a kind of database"),
        ("postgresql://assay@db.lab", "it names no database"),
        (f"assay:{SECRET}@db.lab/queue", "it is not the URL of a database"),
        (f"postgresql://assay:{SECRET}@db.lab:port/queue", "it is not the URL of a database"),
    ],
)
def test_a_url_that_cannot_be_is_refused_without_its_password(text: str, cause: str) -> None:
    with pytest.raises(ParameterError, match=cause) as caught:
        database_place(text)
    assert SECRET not in str(caught.value)


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "database"
    file.write_text(URL)
    file.chmod(0o640)
    with pytest.raises(ParameterError, match="others may read"):
        asked_database("", file)
    file.chmod(0o600)
    file.write_text("\n")
    with pytest.raises(ParameterError, match="is empty"):
        asked_database("", file)
    with pytest.raises(ParameterError, match="--database is given too"):
        asked_database(URL, file)
    with pytest.raises(StorageError, match="No such file"):
        asked_database("", tmp_path / "missing")


def test_a_folder_notes_its_database_without_the_password(tmp_path: Path) -> None:
    assert noted_database(tmp_path) is None
    assert place_in_force(tmp_path, AskedDatabase()) is None
    note_database(tmp_path, database_place(f"{URL}&sslpassword={SECRET}", with_secret=True), None, 77)
    noted = noted_database(tmp_path)
    assert noted is not None and (noted.url, noted.state) == (URL, 77)
    assert SECRET not in (tmp_path / "database.json").read_text()
    assert place_in_force(tmp_path, AskedDatabase()) == database_place(URL)
    remove_note(tmp_path, DatabaseInForce)
    remove_note(tmp_path, DatabaseInForce)
    assert noted_database(tmp_path) is None


@pytest.mark.parametrize("text", ["{", '{"version": 2, "url": "postgresql://h/d", "state": 1}'])
def test_a_note_of_a_newer_release_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "database.json").write_text(text)
    with pytest.raises(StorageError, match="or a newer release wrote it"):
        open_database(tmp_path)


def test_campaigns_in_sqlite_are_not_left_behind_in_silence(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "metadata.sqlite").close()
    with pytest.raises(StorageError, match="assay-server move --to URL"):
        open_database(tmp_path, AskedDatabase(database_place(URL)))


def test_a_database_that_does_not_answer_is_said_with_its_remedy(tmp_path: Path) -> None:
    asked = AskedDatabase(database_place("postgresql://assay@127.0.0.1:1/queue"))
    with pytest.raises(StorageError, match="the database does not answer") as caught:
        open_database(tmp_path, asked)
    assert caught.value.subject == "postgresql://assay@127.0.0.1:1/queue"
    assert "start the database" in str(caught.value)
    assert not (tmp_path / "database.json").exists()


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (psycopg.errors.SerializationFailure, "another transaction was in the way"),
        (psycopg.errors.DeadlockDetected, "two transactions waited for each other"),
        (psycopg.errors.LockNotAvailable, "another program has held"),
        (psycopg.errors.InsufficientPrivilege, "lacks a right"),
        (psycopg.errors.DiskFull, "the disk of the database is full"),
        (psycopg.errors.AdminShutdown, "was shut down or is starting"),
        (psycopg.errors.ReadOnlySqlTransaction, "is read-only"),
        (psycopg.errors.TooManyConnections, "no connection left"),
    ],
)
def test_refusals_by_their_code_have_a_cause_and_a_remedy(error: type[psycopg.Error], cause: str) -> None:
    for wrapped in (error(), sa.exc.DBAPIError("SELECT 1", {}, error())):
        found = refusal("the database", wrapped)
        assert cause in found.cause and found.remedy


@pytest.mark.parametrize(
    ("error", "said", "is_disk"),
    [
        # For EROFS and EACCES PostgreSQL has the code of a missing right (errcode_for_file_access).
        (psycopg.errors.InsufficientPrivilege, 'could not open file "base/1/1": Read-only file system', True),
        (psycopg.errors.InsufficientPrivilege, "permission denied for table runs", False),
        (psycopg.errors.InsufficientPrivilege, "must be owner of table runs", False),
        (psycopg.errors.IoError, 'could not read block 0 in file "base/1/2": Input/output error', True),
    ],
)
def test_a_disk_of_the_database_that_fails_is_no_missing_right(
    error: type[psycopg.Error], said: str, is_disk: bool
) -> None:
    told = type("Told", (error,), {"diag": SimpleNamespace(message_primary=said)})
    found = refusal("the database", told())
    assert ("the disk of the database fails" in found.cause) is is_disk
    assert ("owns its tables" in found.remedy) is not is_disk
    assert said in found.cause


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ('FATAL:  password authentication failed for user "x"', "refused the user or the password"),
        ("fe_sendauth: no password supplied", "refused the user or the password"),
        ('FATAL:  role "x" does not exist', "has no such user"),
        ('FATAL:  database "x" does not exist', "has no such database"),
        ('FATAL:  no pg_hba.conf entry for host "1.2.3.4"', "does not let this user in"),
        ("FATAL:  the database system is starting up", "was shut down or is starting"),
        ("connection to server at 127.0.0.1, port 1 failed: Connection refused", "does not answer"),
        ('FATAL:  could not open file "global/2676": Read-only file system', "disk of the database fails"),
        (
            'could not read root certificate file "ca.crt": no certificate or crl found',
            "cannot be used on this",
        ),
        ('root certificate file "/database/ca.crt" does not exist', "cannot be used on this"),
        ('could not open certificate file "own.crt": Permission denied', "cannot be used on this"),
        ('could not read certificate file "own.crt": bad end line', "cannot be used on this"),
        ('could not load private key file "own.key": bad decrypt', "cannot be used on this"),
    ],
)
def test_connections_that_are_not_made_have_a_cause_and_a_remedy(said: str, cause: str) -> None:
    found = refusal("the database", psycopg.OperationalError(f"connection failed: {said}"))
    assert cause in found.cause and found.remedy


def test_the_text_of_a_document_holds_no_nul_and_what_looks_like_one_stays() -> None:
    assert (
        document_text({"a\0": ["\\u0000", "\0", 1.5, None]})
        == '{"a\\u2400": ["\\\\u0000", "\\u2400", 1.5, null]}'
    )
    with pytest.raises(StorageError, match="cannot be stored"):
        document_text({"a": float("nan")})
