"""Live runs: their command, counters and kind of GPU; indexes that find the next slice for a slot."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Existing runs are recorded ones: no command, no counters, any slot."""
    for column in (
        sa.Column("device_key", sa.Text, nullable=False, server_default=""),
        sa.Column("command", sa.JSON(none_as_null=True)),
        sa.Column("counters", sa.JSON, nullable=False, server_default="[]"),
        sa.Column("under_mps", sa.Boolean, nullable=False, server_default=sa.false()),
    ):
        op.add_column("runs", column)
    op.create_index(
        "ix_runs_campaign_id_state_profiler_device_key_ordinal",
        "runs",
        ["campaign_id", "state", "profiler", "device_key", "ordinal"],
    )
    op.drop_index("ix_slices_state", "slices")
    op.create_index("ix_slices_run_id_state_index", "slices", ["run_id", "state", "index"])
