"""The compiled form of a campaign's file, in place of only the settings of its analysis."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from assay_server.campaign_file.compiled import AnalysisSettings
from assay_server.campaign_file.compiling import compile_stored

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_CAMPAIGNS = sa.table(
    "campaigns",
    sa.column("campaign_id", sa.Text),
    sa.column("text", sa.Text),
    sa.column("file_name", sa.Text),
    sa.column("compiled", sa.JSON),
)


def upgrade() -> None:
    """Compile each stored campaign; text that no longer compiles gives a fault, never an error here.

    The column is renamed, not replaced: older SQLite cannot drop a column without copying the table.
    """
    op.alter_column("campaigns", "analysis", new_column_name="compiled")
    connection, c = op.get_bind(), _CAMPAIGNS.c
    for campaign_id in connection.scalars(sa.select(c.campaign_id)).all():
        here = c.campaign_id == campaign_id
        row = connection.execute(sa.select(c.text, c.file_name, c.compiled).where(here)).one()
        stored = row.compiled
        analysis = AnalysisSettings(
            seed=stored["seed"],
            methods=tuple((name, parameters) for name, parameters in stored["methods"]),
            reference=stored["reference"],
            memory_limit_bytes=stored["memory_limit_bytes"],
        )
        compiled = compile_stored(row.text, row.file_name or "campaign file", analysis)
        connection.execute(sa.update(_CAMPAIGNS).where(here).values(compiled=compiled.to_document()))
