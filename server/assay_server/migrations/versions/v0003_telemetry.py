"""The readings of the GPU's sensors while an attempt measured, and how long its commands ran."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Neither is known of existing attempts."""
    for column in (
        sa.Column("telemetry", sa.Text, nullable=False, server_default=""),
        sa.Column("wall_seconds", sa.Float, nullable=False, server_default="0"),
    ):
        op.add_column("attempts", column)
