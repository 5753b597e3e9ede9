"""What PostgreSQL refuses, as typed errors with a remedy; never with the values of a statement.

Codes are SQLSTATE (postgresql.org, "PostgreSQL Error Codes"). A connection that was never made has none, so
there the driver's words decide, which come from the client's library and the server.
"""

from __future__ import annotations

import psycopg
import sqlalchemy as sa

from assay_sampling.errors import StorageError
from assay_server.store.transactions import NothingKeptError

_ASK_AGAIN = "ask again; nothing was changed"
_LOST = (
    "it was restarted, or the network failed: the server goes on as soon as the database answers; "
    "what was acknowledged is safe"
)
_UNREACHABLE = (
    "start the database, and check host, port and firewall; agents keep what they measure meanwhile"
)
_RIGHTS = (
    "name the user who owns its tables; of a dump that another user restored, make the owner the right one: "
    "pg_restore --no-owner --role USER; for a schema: GRANT ALL ON SCHEMA public TO USER"
)
_DISK_FAILS = "the disk of the database fails"
_DISK = "look into the log of the database, mend its disk and start it again; what was acknowledged is safe"
_TLS_FILES = (
    "sslrootcert, sslcert and sslkey of the URL name them, by default in ~/.postgresql: mend them, and let "
    "only the server's user read the key"
)
_FULL = "raise its max_connections or the CONNECTION LIMIT of the user or the database, or end other programs"
_GENERAL = "look into the log of the database; acknowledged data is safe"

# By the beginning of the code: the cause in our words ("": the database's own), and the remedy.
_BY_CODE: tuple[tuple[str, str, str], ...] = (
    ("40001", "another transaction was in the way", _ASK_AGAIN),
    ("40P01", "two transactions waited for each other, and the database ended one", _ASK_AGAIN),
    ("55P03", "another program has held the database's lock for long", "end it, or wait; then ask again"),
    ("58", _DISK_FAILS, _DISK),
    ("42501", "the database's user lacks a right", _RIGHTS),
    ("25006", "the database is read-only, as a standby is", "name the primary server"),
    ("53100", "the disk of the database is full", "free space on it; acknowledged data is safe"),
    ("53300", "the database has no connection left", _FULL),
    ("53", "the database lacks a resource", "look into the log of the database"),
    ("57P", "the database was shut down or is starting", _LOST),
    ("57014", "the database cancelled a statement", "look for statement_timeout in its settings"),
    ("08", "the connection to the database was lost", _LOST),
    ("XX001", "the database is damaged", "restore a backup of the database"),
    ("XX002", "an index of the database is damaged", "REINDEX DATABASE, and check the disk"),
)
# A file that may not be opened or written has the code of a missing right (PostgreSQL's
# errcode_for_file_access), and words of its own.
_FILE_WORDS = "could not"
# By these the database ends a transaction by itself, and the same one may be done again.
_ENDED = ("40001", "40P01", "57P", "08")
# Of connections that were not made: words of the driver, our cause, the remedy.
_BY_WORDS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("certificate file", "private key"),  # of this side: the database has nothing to do with them
        "a certificate or key for the database cannot be used on this machine",
        _TLS_FILES,
    ),
    (("could not open file", "could not read", "could not write"), _DISK_FAILS, _DISK),
    (
        ("password authentication failed", "no password supplied"),
        "the database refused the user or the password",
        "check the user in the URL, and the password in --database-file, PGPASSFILE or PGPASSWORD",
    ),
    (
        ("no pg_hba.conf entry", "authentication failed"),
        "the database does not let this user in from here",
        "add a line to its pg_hba.conf, and reload it",
    ),
    (
        ("role", "does not exist"),
        "the database has no such user",
        "as a superuser: createuser --pwprompt USER",
    ),
    (
        ("database", "does not exist"),
        "the server has no such database",
        "createdb --owner USER --encoding UTF8 --locale C --template template0 NAME",
    ),
    (
        ("too many clients", "too many connections", "remaining connection slots"),
        "the database has no connection left",
        _FULL,
    ),
    (
        ("is starting up", "is shutting down", "in recovery mode"),
        "the database was shut down or is starting",
        _LOST,
    ),
)  # fmt: skip
_ALL_WORDS = ("does not exist",)


def refusal(subject: str, error: sa.exc.DBAPIError | psycopg.Error) -> StorageError:
    """The error as a typed one; ``subject``: the database without its password.

    NothingKeptError if the database ended the transaction, or was away before it began.
    """
    reason = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    if not isinstance(reason, psycopg.Error):
        return StorageError(subject, f"the database refused ({reason})", _GENERAL)
    code, primary_text = reason.sqlstate, reason.diag.message_primary
    if code is None:
        return _without_code(subject, reason)
    if code == "42501" and primary_text and primary_text.startswith(_FILE_WORDS):
        code = "58030"
    for begin, cause, remedy in _BY_CODE:
        if code.startswith(begin):
            kind = NothingKeptError if begin in _ENDED else StorageError
            return kind(subject, f"{cause} ({primary_text})" if primary_text else cause, remedy)
    # Only the first line: the others quote values.
    return StorageError(subject, f"the database refused ({primary_text or type(reason).__name__})", _GENERAL)


def _without_code(subject: str, reason: psycopg.Error) -> StorageError:
    text = str(reason)
    for words, cause, remedy in _BY_WORDS:
        is_it = all if words[-1] in _ALL_WORDS else any
        if is_it(word in text for word in words):
            kind = NothingKeptError if remedy in (_LOST, _DISK, _FULL) else StorageError
            return kind(subject, cause, remedy)
    first = text.strip().splitlines()[0] if text.strip() else type(reason).__name__
    if isinstance(reason, psycopg.OperationalError):
        if "connection failed" in text or "connection timeout" in text or "could not" in text:
            return NothingKeptError(subject, f"the database does not answer ({first})", _UNREACHABLE)
        return NothingKeptError(subject, f"the connection to the database was lost ({first})", _LOST)
    return StorageError(subject, f"the database refused ({first})", _GENERAL)
