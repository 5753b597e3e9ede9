"""What an attempt measured with, besides the GPU: tools, libraries, the condition in force."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Existing attempts have no known facts."""
    op.add_column("attempts", sa.Column("facts", sa.Text, nullable=False, server_default=""))
