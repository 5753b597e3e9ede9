"""Who owns a campaign, and its project."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Campaigns of earlier releases belong to nobody: operators and admins act on them."""
    for name in ("owner", "owner_name", "project"):
        op.add_column("campaigns", sa.Column(name, sa.Text, nullable=False, server_default=""))
