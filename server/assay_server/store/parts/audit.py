"""The audit log in SQL."""

from __future__ import annotations

import sqlalchemy as sa

from assay_core.records.lab import AuditEntry
from assay_server.store import tables
from assay_server.store.column_values import shallow
from assay_server.store.parts.record_cache import CachedRecords

_C = tables.audit.c


class AuditRows(CachedRecords):
    """The audit log in SQL."""

    def audit_entries(
        self, *, before: int = 0, most: int = 100, identity: str = "", since_ms: int = 0
    ) -> list[AuditEntry]:
        """Entries of the audit log, newest first.

        ``before``: only those with a smaller number (0: all). ``identity``: an identity's id or name then.
        """
        query = sa.select(tables.audit).where(_C.at_ms >= since_ms)
        if before:
            query = query.where(_C.entry_id < before)
        if identity:
            query = query.where(sa.or_(_C.identity_id == identity, _C.name == identity))
        return [AuditEntry(**row) for row in self.rows(query.order_by(_C.entry_id.desc()).limit(most))]

    def add_audit(self, entry: AuditEntry) -> None:
        """Add an entry to the audit log; the store numbers it."""
        values = shallow(entry)
        del values["entry_id"]
        self.write(sa.insert(tables.audit), [values])

    def forget_audit(self, before_ms: int) -> None:
        """Remove the entries older than this moment."""
        self.write(sa.delete(tables.audit).where(_C.at_ms < before_ms))
