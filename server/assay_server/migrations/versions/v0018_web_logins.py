"""Sessions of the live page are rows, so that a login holds at every server."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table; a server that starts takes the sessions of its state folder over."""
    op.create_table(
        "web_logins",
        sa.Column("key", sa.Text, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("identity_id", "serial")),
        sa.Column("opened", sa.Boolean, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in
          ("made_at_ms", "ends_at_ms", "session_ends_at_ms")),
    )  # fmt: skip
