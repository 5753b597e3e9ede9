"""What the numbers of an attempt rest on beside the GPU: tools, libraries, the condition in force."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of attempts of before, nothing of it is known."""
    op.add_column("attempts", sa.Column("facts", sa.Text, nullable=False, server_default=""))
