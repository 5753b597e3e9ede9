"""The queue: lanes of waiting slices, and what a run asks of the place where it is made."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Put every slice into the lane of its campaign and need; runs of earlier releases ask for no place."""
    op.add_column("runs", sa.Column("placement", sa.JSON, nullable=False, server_default="{}"))
    op.add_column("runs", sa.Column("holds", sa.JSON, nullable=False, server_default="[]"))
    op.create_table(
        "lanes",
        sa.Column("lane_id", sa.Integer, nullable=False),
        sa.Column("campaign_id", sa.Text, nullable=False),
        sa.Column("need", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["campaign_id"],
            ["campaigns.campaign_id"],
            name="fk_lanes_campaign_id_campaigns",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("lane_id", name="pk_lanes"),
        sa.UniqueConstraint("campaign_id", "need", name="uq_lanes_campaign_id_need"),
    )
    op.add_column("slices", sa.Column("lane", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("slices", sa.Column("ordinal", sa.BigInteger, nullable=False, server_default="0"))
    if op.get_bind().dialect.name == "sqlite":  # in PostgreSQL nobody had campaigns before this release
        _fill(op.get_bind())
    waiting = sa.text("state = 'waiting'")
    op.create_index(
        "ix_slices_waiting",
        "slices",
        ["lane", "ordinal", "index", "not_before_ms"],
        sqlite_where=waiting,
        postgresql_where=waiting,
    )


def _fill(connection: sa.Connection) -> None:
    kinds = "campaign_id, profiler, device_key, synthetic, json_extract(condition, '$.sm_share')"
    found = connection.execute(sa.text(f"SELECT DISTINCT {kinds} FROM runs")).all()
    lanes: dict[tuple[str, str], int] = {}
    for campaign_id, profiler, device_key, synthetic, share in found:
        # Written out, not imported: this is the form of a need on the day of this migration.
        need: dict[str, object] = {"profiler": profiler}
        if device_key:
            need["device_key"] = device_key
            need |= {"synthetic": True} if synthetic else {}
            need |= {"partitions": True} if share == "partition" else {}
        text = json.dumps(need, sort_keys=True)
        lane = lanes.setdefault((campaign_id, text), len(lanes) + 1)
        of_kind = (
            "SELECT run_id FROM runs WHERE campaign_id = :c AND profiler = :p AND device_key = :d "
            "AND synthetic = :s AND json_extract(condition, '$.sm_share') IS :h"
        )
        connection.execute(
            sa.text(f"UPDATE slices SET lane = :lane WHERE run_id IN ({of_kind})"),
            {"lane": lane, "c": campaign_id, "p": profiler, "d": device_key, "s": synthetic, "h": share},
        )
    for (campaign_id, text), lane in lanes.items():
        connection.execute(
            sa.text("INSERT INTO lanes (lane_id, campaign_id, need) VALUES (:lane, :c, :need)"),
            {"lane": lane, "c": campaign_id, "need": text},
        )
    connection.execute(
        sa.text("UPDATE slices SET ordinal = (SELECT ordinal FROM runs WHERE runs.run_id = slices.run_id)")
    )
