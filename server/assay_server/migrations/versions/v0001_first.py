"""First schema: campaigns, runs, slices, attempts, segments, agents, fencing tokens."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table."""
    _campaigns()
    _runs_and_slices()
    _attempts_and_segments()
    op.create_table(
        "agents",
        _key("agent_id"),
        *_texts("session_id", "name"),
        *_documents("inventory", "slots"),
        _integer("seen_at_ms"),
        sa.PrimaryKeyConstraint("agent_id", name="pk_agents"),
    )
    op.create_table(
        "tokens", _key("name"), _integer("value"), sa.PrimaryKeyConstraint("name", name="pk_tokens")
    )


def _campaigns() -> None:
    op.create_table(
        "campaigns",
        _key("campaign_id"),
        _integer("ordinal"),
        *_texts("name"),
        _integer("number"),
        _flag("synthetic"),
        *_texts("state", "text", "file_name", "base_directory"),
        *_documents("analysis"),
        *_integers("created_at_ms", "ended_at_ms"),
        sa.Column("failure", sa.JSON(none_as_null=True)),
        _flag("has_report"),
        sa.PrimaryKeyConstraint("campaign_id", name="pk_campaigns"),
        sa.UniqueConstraint("name", "number", name="uq_campaigns_name_number"),
        sa.UniqueConstraint("ordinal", name="uq_campaigns_ordinal"),
    )


def _runs_and_slices() -> None:
    op.create_table(
        "runs",
        _key("run_id"),
        *_texts("campaign_id"),
        _integer("ordinal"),
        *_texts("workload", "device_kind", "level", "profiler"),
        *_documents("condition"),
        _integer("repeat"),
        _flag("synthetic"),
        *_texts("recorded_path"),
        _flag("recorded_time"),
        *_texts("state"),
        sa.Column("failure", sa.JSON(none_as_null=True)),
        *_documents("flags"),
        sa.ForeignKeyConstraint(
            ["campaign_id"], ["campaigns.campaign_id"], name="fk_runs_campaign_id_campaigns"
        ),
        sa.PrimaryKeyConstraint("run_id", name="pk_runs"),
        sa.UniqueConstraint("campaign_id", "ordinal", name="uq_runs_campaign_id_ordinal"),
    )
    op.create_table(
        "slices",
        _key("run_id"),
        *_integers("index", "launch_skip", "launch_count"),
        *_texts("state"),
        _integer("not_before_ms"),
        *_texts("file"),
        _integer("file_bytes"),
        *_texts("content_hash"),
        _integer("launches"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_slices_run_id_runs"),
        sa.PrimaryKeyConstraint("run_id", "index", name="pk_slices"),
    )
    op.create_index("ix_slices_state", "slices", ["state"])


def _attempts_and_segments() -> None:
    op.create_table(
        "attempts",
        _key("run_id"),
        *_integers("slice", "attempt", "token"),
        *_texts("state", "agent_id", "agent_name", "session_id", "slot_id"),
        *_integers("leased_at_ms", "deadline_ms"),
        _flag("confirmed"),
        *_integers("ended_at_ms", "segments", "launches", "launches_spooled"),
        sa.Column("failure", sa.JSON(none_as_null=True)),
        *_documents("flags", "command", "environment"),
        *_texts("log"),
        sa.ForeignKeyConstraint(
            ["run_id", "slice"], ["slices.run_id", "slices.index"], name="fk_attempts_run_id_slice_slices"
        ),
        sa.PrimaryKeyConstraint("run_id", "slice", "attempt", name="pk_attempts"),
        sa.UniqueConstraint("token", name="uq_attempts_token"),
    )
    op.create_index("ix_attempts_state", "attempts", ["state"])
    _one_where("ux_attempts_active_slice", ["run_id", "slice"], "state IN ('leased', 'publishing')")
    _one_where("ux_attempts_leased_slot", ["agent_id", "slot_id"], "state IN ('leased')")
    _one_where("ux_attempts_published_slice", ["run_id", "slice"], "state IN ('published')")
    op.create_table(
        "segments",
        _key("run_id"),
        *_integers("slice", "attempt", "index", "offset_bytes"),
        *_integers("launches", "names_bytes", "launches_bytes"),
        sa.Column("names_hash", sa.LargeBinary, nullable=False),
        sa.Column("launches_hash", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "slice", "attempt"],
            ["attempts.run_id", "attempts.slice", "attempts.attempt"],
            name="fk_segments_run_id_slice_attempt_attempts",
        ),
        sa.PrimaryKeyConstraint("run_id", "slice", "attempt", "index", name="pk_segments"),
    )


def _one_where(name: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, "attempts", columns, unique=True, sqlite_where=where, postgresql_where=where)


def _key(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Text, nullable=False)


def _texts(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _integer(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _integers(*names: str) -> list[sa.Column[Any]]:
    return [_integer(name) for name in names]


def _documents(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.JSON, nullable=False) for name in names]


def _flag(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean, nullable=False)
