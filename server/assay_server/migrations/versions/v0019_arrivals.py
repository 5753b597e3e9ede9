"""Large campaigns come in piece by piece, and a submission may be told from others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns: all campaigns are there, and nobody named their submissions."""
    for name in ("submission", "arriving"):
        op.add_column("campaigns", sa.Column(name, sa.Text, nullable=False, server_default=""))
    for name, columns in (("arriving", ["arriving"]), ("submission", ["owner", "submission"])):
        where = sa.text(f"{name} != ''")
        op.create_index(
            f"ix_campaigns_{name}", "campaigns", columns, sqlite_where=where, postgresql_where=where
        )
