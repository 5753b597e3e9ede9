"""Requests of people: what is paused, from which attempt tries count, and what is carried out in pieces."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing is paused or was tried again before."""
    for table, column in (
        ("campaigns", sa.Column("paused", sa.Boolean, nullable=False, server_default=sa.false())),
        ("campaigns", sa.Column("retried", sa.BigInteger, nullable=False, server_default="0")),
        ("slices", sa.Column("tries_from", sa.BigInteger, nullable=False, server_default="1")),
    ):
        op.add_column(table, column)
    op.create_table(
        "requests",
        sa.Column("request_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column(
            "campaign_id", sa.Text, sa.ForeignKey("campaigns.campaign_id", ondelete="CASCADE"), nullable=False
        ),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("action", "workload", "run_id")),
        sa.Column("at_once", sa.Boolean, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in
          ("asked_at_ms", "next_ordinal", "runs_changed", "attempts_ended")),
    )  # fmt: skip
