"""Small segments of attempts under way are kept in the database, in the commit that records them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table; segments that are staged in files stay there until they are published."""
    key = ("run_id", "slice", "attempt", "index")
    op.create_table(
        "held_segments",
        sa.Column("run_id", sa.Text, primary_key=True),
        *(sa.Column(name, sa.BigInteger, primary_key=True) for name in key[1:]),
        sa.Column("names", sa.LargeBinary, nullable=False),
        sa.Column("launches", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(key, [f"segments.{name}" for name in key]),
    )
