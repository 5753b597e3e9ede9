"""First schema: every table as :mod:`assay_server.store.tables` has it.

Until the first release the tables may change without a migration. The release writes this one out
(``alembic revision --autogenerate``), and from then on a change is a migration of its own.
"""

from __future__ import annotations

from alembic import op

from assay_server.store.tables import metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table and index."""
    metadata.create_all(op.get_bind())
