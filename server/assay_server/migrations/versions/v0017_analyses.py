"""Analyses are leased rows: any server takes one, and another goes on when its lease has ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table; campaigns that are being analysed get their row from the first server that looks."""
    op.create_table(
        "analyses",
        sa.Column(
            "campaign_id",
            sa.Text,
            sa.ForeignKey("campaigns.campaign_id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("workload", sa.Text, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("state", "holder")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in
          ("token", "lease_ends_at_ms", "not_before_ms", "attempts", "retried")),
        sa.Column("failure", sa.JSON(none_as_null=True)),
    )  # fmt: skip
