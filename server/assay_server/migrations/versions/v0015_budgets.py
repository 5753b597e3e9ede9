"""Budgets of GPU hours per person."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column without values: nobody had a budget of their own."""
    op.add_column("identities", sa.Column("budget_gpu_hours", sa.Float))
