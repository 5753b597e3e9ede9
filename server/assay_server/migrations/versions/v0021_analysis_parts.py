"""Finished workloads of an analysis are kept, so that another server goes on with those that lack."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table; analyses under way compute all their workloads once more."""
    op.create_table(
        "analysis_parts",
        sa.Column(
            "campaign_id",
            sa.Text,
            sa.ForeignKey("campaigns.campaign_id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("workload", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("kept_at_ms", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
