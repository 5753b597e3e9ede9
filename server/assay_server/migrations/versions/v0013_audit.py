"""The audit log: who did what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_TEXTS = ("identity_id", "name", "role", "how", "address", "call", "subject", "outcome", "detail")


def upgrade() -> None:
    """Add an empty table; its numbers only grow, so that a removed entry leaves a gap."""
    op.create_table(
        "audit",
        sa.Column("entry_id", sa.Integer, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in _TEXTS),
        sa.PrimaryKeyConstraint("entry_id", name="pk_audit"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_at_ms", "audit", ["at_ms"])
