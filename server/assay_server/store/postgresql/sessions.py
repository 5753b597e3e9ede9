"""Whether a connection is one session of the database, which settings and prepared statements need.

A pooler that keeps no sessions (PgBouncer with ``pool_mode = transaction`` or ``statement``) gives each
transaction any of its own connections. It names its clients by numbers of its own, so that a client's number
and that of its session in the database differ (PostgreSQL 15 documentation, 55.2.8 "Canceling Requests in
Progress": BackendKeyData).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay_sampling.errors import StorageError

if TYPE_CHECKING:
    import sqlalchemy as sa

_SESSION = "SELECT pg_backend_pid()"
# A pooler prefers the connection that was used last, unless another client is quicker.
_TRIES = 5


def require_sessions(connection: sa.Connection, subject: str) -> None:
    """Raise StorageError if a pooler gives two connections one session; call it outside of a transaction."""
    if _session(connection) == _session_at_connect(connection):
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


def _session_at_connect(connection: sa.Connection) -> int:
    """The number that was told when the connection was made."""
    raw = connection.connection.driver_connection
    assert raw is not None
    return int(raw.info.backend_pid)
