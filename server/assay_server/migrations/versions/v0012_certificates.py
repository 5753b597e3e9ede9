"""Join tokens, and the certificates that were issued."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two empty tables: servers of earlier releases certified nobody."""
    op.create_table(
        "join_tokens",
        sa.Column("token_id", sa.Text, nullable=False),
        sa.Column("secret_hash", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("labels", sa.JSON, nullable=False),
        sa.Column("uses_left", sa.BigInteger, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("token_id", name="pk_join_tokens"),
        sa.UniqueConstraint("secret_hash", name="uq_join_tokens_secret_hash"),
    )
    op.create_table(
        "certificates",
        sa.Column("serial", sa.Text, nullable=False),
        sa.Column("identity_id", sa.Text, nullable=False),
        sa.Column("public_key_hash", sa.Text, nullable=False),
        sa.Column("issued_at_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger, nullable=False),
        sa.Column("token_id", sa.Text, nullable=False),
        sa.Column("withdrawn_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("serial", name="pk_certificates"),
    )
    op.create_index("ix_certificates_identity_id", "certificates", ["identity_id"])
