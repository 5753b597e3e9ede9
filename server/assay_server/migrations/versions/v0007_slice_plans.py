"""The slices that were chosen for a detailed run from a light run; runs of earlier releases have none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column that is null for every run there is."""
    op.add_column("runs", sa.Column("plan", sa.JSON(none_as_null=True), nullable=True))
