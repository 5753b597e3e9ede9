"""Gangs: the other slots of an attempt over several GPUs of a box."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column; attempts of earlier releases had one slot."""
    op.add_column("attempts", sa.Column("gang", sa.JSON, nullable=False, server_default="[]"))
