"""Connections to a PostgreSQL database, each with our settings, and the lock of whoever writes."""

from __future__ import annotations

import logging
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from assay_server.store.column_values import document_text
from assay_server.store.postgresql.place import DatabasePlace

# An advisory lock of ours, in each schema: "ASSA" in ASCII.
_WRITER = 0x41535341
LOCK_SECONDS = 30
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
    "lock_timeout": f"{LOCK_SECONDS}s",
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


def new_engine(place: DatabasePlace, **options: int) -> sa.Engine:
    """Connections to a database, each with our settings, which nobody keeps but their user.

    ``options``: of libpq, in place of ours.
    """
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of lost connections, as our errors do
    engine = sa.create_engine(
        place.url,
        poolclass=NullPool,  # whoever uses the engine keeps its connections
        pool_reset_on_return=None,  # one that is given back is closed; a lost one cannot be reset
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
