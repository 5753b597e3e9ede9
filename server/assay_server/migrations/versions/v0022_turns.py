"""Servers that share a database hear of each other's changes by turns, which earlier programs do not take."""

from __future__ import annotations

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing but the number, so that an earlier program refuses to work beside this one."""
