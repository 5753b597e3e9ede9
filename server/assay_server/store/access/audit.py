"""The audit log in SQL."""

from __future__ import annotations

from dataclasses import asdict

import sqlalchemy as sa

from assay_core.records.lab import AuditEntry
from assay_server.store import tables

_C = tables.audit.c


def entries(
    connection: sa.Connection, before: int, most: int, identity: str, since_ms: int
) -> list[AuditEntry]:
    """Entries, newest first, as ``AccessRows.audit_entries`` says."""
    query = sa.select(tables.audit).where(_C.at_ms >= since_ms)
    if before:
        query = query.where(_C.entry_id < before)
    if identity:
        query = query.where(sa.or_(_C.identity_id == identity, _C.name == identity))
    rows = connection.execute(query.order_by(_C.entry_id.desc()).limit(most)).mappings()
    return [AuditEntry(**row) for row in rows]


def add(connection: sa.Connection, entry: AuditEntry) -> None:
    """Add an entry; the database numbers it."""
    values = {name: value for name, value in asdict(entry).items() if name != "entry_id"}
    connection.execute(sa.insert(tables.audit), [values])


def forget(connection: sa.Connection, before_ms: int) -> None:
    """Remove the entries older than a moment."""
    connection.execute(sa.delete(tables.audit).where(_C.at_ms < before_ms))
