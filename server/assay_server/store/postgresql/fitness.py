"""What a PostgreSQL server and database must be, looked at before anything is written.

A connection must be one session of the database, which settings and prepared statements need.
A pooler that keeps no sessions (PgBouncer with ``pool_mode = transaction`` or ``statement``) gives each
transaction any of its own connections. It names its clients by numbers of its own, so that a client's number
and that of its session in the database differ (PostgreSQL 15 documentation, 55.2.8 "Canceling Requests in
Progress": BackendKeyData).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from assay_sampling.errors import StorageError

if TYPE_CHECKING:
    import sqlalchemy as sa

_log = logging.getLogger(__name__)

OLDEST = 15
# In these, texts are ordered by their bytes, as in every other store, and no update of the system changes it.
_COLLATIONS = ("C", "POSIX", "C.UTF-8", "C.UTF8", "C.utf8")
_ICU = "i"  # of pg_database.datlocprovider, since PostgreSQL 15; there datcollate orders nothing
_MAKE = "make one: createdb --owner USER --encoding UTF8 --locale C --template template0 NAME"
_SESSION = "SELECT pg_backend_pid()"
# A pooler prefers the connection that was used last, unless another client is quicker.
_TRIES = 5
_ASKED = """
SELECT current_setting('server_version_num')::integer AS version, current_setting('server_version') AS shown,
  pg_encoding_to_char(encoding) AS encoding, datcollate AS collation, pg_is_in_recovery() AS standby,
  to_jsonb(pg_database) ->> 'datlocprovider' AS provider, current_setting('search_path') AS path,
  current_setting('default_transaction_read_only') AS read_only,
  current_schema() AS schema,
  current_schema() IS NOT NULL AND has_schema_privilege(current_schema(), 'CREATE')
    AND has_schema_privilege(current_schema(), 'USAGE') AS may
FROM pg_database WHERE datname = current_database()
"""


def require_fit(connection: sa.Connection, subject: str) -> None:
    """Raise StorageError if the database cannot be used; ``subject``: its URL without a password."""
    facts = connection.exec_driver_sql(_ASKED).mappings().one()
    fault = _wrong_kind(facts["version"] // 10_000, facts) or _wrong_rights(facts)
    if fault is not None:
        raise StorageError(subject, *fault)
    _require_sessions(connection, subject)


def warn_of_risks(connection: sa.Connection, subject: str) -> None:
    """Warn of a setting that can lose what was acknowledged."""
    if connection.exec_driver_sql("SHOW fsync").scalar_one() == "off":
        _log.warning("%s: its setting fsync is off, so a crash of its machine can lose everything", subject)


def _wrong_kind(version: int, facts: sa.RowMapping) -> tuple[str, str] | None:
    if version < OLDEST:
        return f"it is PostgreSQL {facts['shown']}", f"use PostgreSQL {OLDEST} or newer"
    if facts["encoding"] != "UTF8":
        return f"its encoding is {facts['encoding']}, so it cannot keep every name", _MAKE
    if facts["provider"] == _ICU:
        return "it orders text by the rules of a language (ICU), not by its bytes", _MAKE
    if facts["collation"] not in _COLLATIONS:
        return f"it orders text by the rules of {facts['collation']}, not by its bytes", _MAKE
    return None


def _wrong_rights(facts: sa.RowMapping) -> tuple[str, str] | None:
    if facts["standby"]:
        return "it is a standby, which cannot be written", "name the primary server"
    if facts["read_only"] == "on":
        return (
            "somebody set it to be only read (default_transaction_read_only)",
            "name the primary server, or: ALTER DATABASE NAME RESET default_transaction_read_only",
        )
    if facts["schema"] is None:
        return (
            f"its user may use no schema of those that it looks in (search_path: {facts['path']})",
            "as a superuser: GRANT ALL ON SCHEMA NAME TO USER, after CREATE SCHEMA where it is missing; "
            "for the usual one: ALTER ROLE USER RESET search_path",
        )
    if not facts["may"]:
        return (
            f"its user may not make tables in the schema {facts['schema']!r}",
            f"as a superuser: GRANT ALL ON SCHEMA {facts['schema']} TO USER",
        )
    return None


def _require_sessions(connection: sa.Connection, subject: str) -> None:
    """Raise StorageError if a pooler gives two connections one session; call it outside of a transaction."""
    raw = connection.connection.driver_connection
    assert raw is not None
    if _session(connection) == int(raw.info.backend_pid):  # told when the connection was made
        return  # no pooler is there
    with connection.engine.connect() as other:
        for _ in range(_TRIES):
            if _session(connection) == _session(other):
                raise StorageError(
                    subject,
                    "a pooler in front of the database keeps no sessions, so it loses our settings",
                    "name the database itself, or have the pooler keep sessions (PgBouncer: "
                    "pool_mode = session)",
                )


def _session(connection: sa.Connection) -> int:
    return int(connection.exec_driver_sql(_SESSION).scalar_one())
