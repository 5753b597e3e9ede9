"""Connections to a PostgreSQL database: each with our settings, and only to one that is fit for metadata.

A connection must be one session of the database, which settings and prepared statements need.
A pooler that keeps no sessions (PgBouncer with ``pool_mode = transaction`` or ``statement``) gives each
transaction any of its own connections. It names its clients by numbers of its own, so that a client's number
and that of its session in the database differ (PostgreSQL 15 documentation, 55.2.8 "Canceling Requests in
Progress": BackendKeyData).
"""

from __future__ import annotations

import logging
from typing import Any

import sqlalchemy as sa

from assay_sampling.errors import StorageError
from assay_server.places import DatabasePlace
from assay_server.store.column_values import document_text

_log = logging.getLogger(__name__)

# An advisory lock of ours, in each schema: "ASSA" in ASCII.
_WRITER = 0x41535341
_LOCK_SECONDS = 30
_MOST_KEPT = 9  # connections between transactions: eight readers and a writer
TAKE_WRITER_LOCK = f"SELECT pg_advisory_xact_lock({_WRITER}, hashtext(current_schema()))"
END_WRITERS = f"""
SELECT pg_terminate_backend(pid) FROM pg_locks -- of a leader that did not renew its lead
WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND EXISTS (SELECT FROM assay_leader WHERE expires_at <= clock_timestamp())
  AND objsubid = 2 AND classid = {_WRITER} AND objid::bigint = hashtext(current_schema())::bigint & 4294967295
"""
_CONNECTION = {
    "connect_timeout": 10,
    "application_name": "assay-server",
    # A database host that vanished is noticed within a minute.
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 45_000,
    # A database in SQL_ASCII gives bytes otherwise, and nothing could say that it is not fit.
    "client_encoding": "utf8",
}
_SETTINGS = {
    "lock_timeout": f"{_LOCK_SECONDS}s",
    "statement_timeout": "0",
    "transaction_timeout": "0",  # since PostgreSQL 17
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    # A session whose client vanished in mid-transaction would keep the writer's lock for two hours.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "timezone": "UTC",
    "standard_conforming_strings": "on",
}


_CONFIGURE = (
    "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS asked (name, value) "
    "WHERE current_setting(name, true) IS NOT NULL"
)
_OLDEST = 15
# In these, texts are ordered by their bytes, as in every other store, and no update of the system changes it.
_COLLATIONS = ("C", "POSIX", "C.UTF-8", "C.UTF8", "C.utf8")
_ICU = "i"  # of pg_database.datlocprovider, since PostgreSQL 15; there datcollate orders nothing
_MAKE = "make one: createdb --owner USER --encoding UTF8 --locale C --template template0 NAME"
_SESSION = "SELECT pg_backend_pid()"
# A pooler prefers the connection that was used last, unless another client is quicker.
_SESSION_TRIES = 5
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


def new_engine(place: DatabasePlace, **options: int) -> sa.Engine:
    """Connections to a database, each with our settings.

    ``options``: of libpq, in place of ours.
    """
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of lost connections, as our errors do
    engine = sa.create_engine(
        place.url,
        pool_size=_MOST_KEPT,
        max_overflow=-1,
        pool_reset_on_return=None,  # whoever gives one back has ended its transaction
        isolation_level="AUTOCOMMIT",  # transactions begin and end by our own commands
        connect_args=_CONNECTION | options,
        paramstyle="format",
        # Errors must not quote the values of statements, which include the secrets of leases.
        hide_parameters=True,
        json_serializer=document_text,
    )
    sa.event.listen(engine, "connect", _configure)
    return engine


def _configure(connection: Any, _record: Any) -> None:
    autocommit, connection.autocommit = connection.autocommit, True
    connection.execute(_CONFIGURE, (list(_SETTINGS), list(_SETTINGS.values())))
    # Whoever turned this off for the whole database did not know of our promise that commits are durable.
    off = "current_setting('synchronous_commit') = 'off'"
    connection.execute(f"SELECT set_config('synchronous_commit', 'on', false) WHERE {off}")
    connection.autocommit = autocommit


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
    if version < _OLDEST:
        return f"it is PostgreSQL {facts['shown']}", f"use PostgreSQL {_OLDEST} or newer"
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
        for _ in range(_SESSION_TRIES):
            if _session(connection) == _session(other):
                raise StorageError(
                    subject,
                    "a pooler in front of the database keeps no sessions, so it loses our settings",
                    "name the database itself, or have the pooler keep sessions (PgBouncer: "
                    "pool_mode = session)",
                )


def _session(connection: sa.Connection) -> int:
    return int(connection.exec_driver_sql(_SESSION).scalar_one())
