"""Which bundles there are and who sent them are rows, so that every server knows them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables; a server that starts takes the bundles of its state folder over."""
    op.create_table(
        "bundles",
        sa.Column("sha256", sa.Text, primary_key=True),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("bytes", "files")),
        sa.Column("file", sa.Text, nullable=False),
        sa.Column("stored_bytes", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "bundle_holders",
        sa.Column("sha256", sa.Text, sa.ForeignKey("bundles.sha256", ondelete="CASCADE"), primary_key=True),
        sa.Column("holder", sa.Text, primary_key=True),
        sa.Column("asked_at_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_bundle_holders_holder", "bundle_holders", ["holder"])
