"""The secret that proves who holds the lease of an attempt, in hexadecimal."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Existing leases have no secret, so nobody can prove them: their slices are measured again."""
    op.add_column("attempts", sa.Column("write_secret", sa.Text, nullable=False, server_default=""))
