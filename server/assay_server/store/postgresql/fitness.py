"""What a PostgreSQL server and database must be, looked at before anything is written."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from assay_sampling.errors import StorageError
from assay_server.store.postgresql.sessions import require_sessions

if TYPE_CHECKING:
    import sqlalchemy as sa

_log = logging.getLogger(__name__)

OLDEST = 15
# In these, texts are ordered by their bytes, as in every other store, and no update of the system changes it.
_COLLATIONS = ("C", "POSIX", "C.UTF-8", "C.UTF8", "C.utf8")
_ICU = "i"  # of pg_database.datlocprovider, since PostgreSQL 15; there datcollate orders nothing
_MAKE = "make one: createdb --owner USER --encoding UTF8 --locale C --template template0 NAME"
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
    found = connection.exec_driver_sql(_ASKED).mappings().one()
    fault = _fault(found["version"] // 10_000, found)
    if fault is not None:
        raise StorageError(subject, *fault)
    require_sessions(connection, subject)


def warn_of_risks(connection: sa.Connection, subject: str) -> None:
    """Warn of a setting that can lose what was acknowledged."""
    if connection.exec_driver_sql("SHOW fsync").scalar_one() == "off":
        _log.warning("%s: its setting fsync is off, so a crash of its machine can lose everything", subject)


def _fault(version: int, found: sa.RowMapping) -> tuple[str, str] | None:
    return _wrong_kind(version, found) or _wrong_rights(found)


def _wrong_kind(version: int, found: sa.RowMapping) -> tuple[str, str] | None:
    if version < OLDEST:
        return f"it is PostgreSQL {found['shown']}", f"use PostgreSQL {OLDEST} or newer"
    if found["encoding"] != "UTF8":
        return f"its encoding is {found['encoding']}, so it cannot keep every name", _MAKE
    if found["provider"] == _ICU:
        return "it orders text by the rules of a language (ICU), not by its bytes", _MAKE
    if found["collation"] not in _COLLATIONS:
        return f"it orders text by the rules of {found['collation']}, not by its bytes", _MAKE
    return None


def _wrong_rights(found: sa.RowMapping) -> tuple[str, str] | None:
    if found["standby"]:
        return "it is a standby, which cannot be written", "name the primary server"
    if found["read_only"] == "on":
        return (
            "somebody set it to be only read (default_transaction_read_only)",
            "name the primary server, or: ALTER DATABASE NAME RESET default_transaction_read_only",
        )
    if found["schema"] is None:
        return (
            f"its user may use no schema of those that it looks in (search_path: {found['path']})",
            "as a superuser: GRANT ALL ON SCHEMA NAME TO USER, after CREATE SCHEMA where it is missing; "
            "for the usual one: ALTER ROLE USER RESET search_path",
        )
    if not found["may"]:
        return (
            f"its user may not make tables in the schema {found['schema']!r}",
            f"as a superuser: GRANT ALL ON SCHEMA {found['schema']} TO USER",
        )
    return None
