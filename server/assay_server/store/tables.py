"""The tables of the metadata store, for SQLAlchemy Core. Migrations make them; a test keeps both equal."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from assay_core.records.campaign import AttemptState
from assay_server.store.column_values import StoredNumber, StoredText
from assay_server.store.model import ACTIVE_ATTEMPTS

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, StoredText, nullable=False)


def _integer(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _of_campaign(*, primary_key: bool = False) -> sa.Column[str]:
    """The campaign of a row that goes with it."""
    campaign = sa.ForeignKey("campaigns.campaign_id", ondelete="CASCADE")
    return sa.Column("campaign_id", StoredText, campaign, primary_key=primary_key, nullable=False)


def _index_where(where: str, name: str, *columns: sa.Column[Any], unique: bool = False) -> None:
    """An index of the rows alone for which this is true."""
    condition = sa.text(where)
    sa.Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


campaigns = sa.Table(
    "campaigns",
    metadata,
    sa.Column("campaign_id", StoredText, primary_key=True),
    _integer("ordinal"),
    _text("name"),
    _integer("number"),
    sa.Column("synthetic", sa.Boolean, nullable=False),
    _text("state"),
    _text("text"),
    _text("file_name"),
    _text("base_directory"),
    sa.Column("compiled", sa.JSON, nullable=False),
    _integer("created_at_ms"),
    _integer("ended_at_ms"),
    sa.Column("failure", sa.JSON(none_as_null=True)),
    sa.Column("has_report", sa.Boolean, nullable=False),
    sa.Column("owner", StoredText, nullable=False, server_default=""),
    sa.Column("owner_name", StoredText, nullable=False, server_default=""),
    sa.Column("project", StoredText, nullable=False, server_default=""),
    sa.Column("paused", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("retried", sa.BigInteger, nullable=False, server_default="0"),
    # By what its submitter told this submission from others; "" if nothing was said.
    sa.Column("submission", StoredText, nullable=False, server_default=""),
    # The mark of who brings it in piece by piece; "" once it is there. Only the store knows this column.
    sa.Column("arriving", StoredText, nullable=False, server_default=""),
    sa.UniqueConstraint("name", "number"),
    sa.UniqueConstraint("ordinal"),
)
_index_where("arriving != ''", "ix_campaigns_arriving", campaigns.c.arriving)
_index_where("submission != ''", "ix_campaigns_submission", campaigns.c.owner, campaigns.c.submission)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run_id", StoredText, primary_key=True),
    sa.Column("campaign_id", StoredText, sa.ForeignKey("campaigns.campaign_id"), nullable=False),
    _integer("ordinal"),
    _text("workload"),
    _text("device_kind"),
    _text("level"),
    _text("profiler"),
    sa.Column("condition", sa.JSON, nullable=False),
    _integer("repeat"),
    sa.Column("synthetic", sa.Boolean, nullable=False),
    _text("recorded_path"),
    sa.Column("recorded_time", sa.Boolean, nullable=False),
    sa.Column("device_key", StoredText, nullable=False, server_default=""),
    sa.Column("command", sa.JSON(none_as_null=True)),
    sa.Column("counters", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("under_mps", sa.Boolean, nullable=False, server_default=sa.false()),
    _text("state"),
    sa.Column("failure", sa.JSON(none_as_null=True)),
    sa.Column("flags", sa.JSON, nullable=False),
    sa.Column("plan", sa.JSON(none_as_null=True)),
    sa.Column("placement", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("holds", sa.JSON, nullable=False, server_default="[]"),
    sa.UniqueConstraint("campaign_id", "ordinal"),
    sa.Index(None, "campaign_id", "state", "profiler", "device_key", "ordinal"),
)

# The queue: waiting slices stand in the lane of their run's campaign and need, in the order of the campaign.
lanes = sa.Table(
    "lanes",
    metadata,
    sa.Column("lane_id", sa.Integer, primary_key=True),
    _of_campaign(),
    _text("need"),  # JSON with sorted keys, so that equal needs are equal texts
    sa.UniqueConstraint("campaign_id", "need"),
)

slices = sa.Table(
    "slices",
    metadata,
    sa.Column("run_id", StoredText, sa.ForeignKey("runs.run_id"), primary_key=True),
    sa.Column("index", sa.BigInteger, primary_key=True),
    _integer("launch_skip"),
    _integer("launch_count"),
    _text("state"),
    _integer("not_before_ms"),
    _text("file"),
    _integer("file_bytes"),
    _text("content_hash"),
    _integer("launches"),
    # Its place in the queue: the lane (negative while its run is held, so that no slot finds it), and the
    # run's ordinal. Only the store knows these columns.
    sa.Column("lane", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("ordinal", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("tries_from", sa.BigInteger, nullable=False, server_default="1"),
    sa.Index(None, "run_id", "state", "index"),
)
_QUEUE = (slices.c[name] for name in ("lane", "ordinal", "index", "not_before_ms"))
_index_where("state = 'waiting'", "ix_slices_waiting", *_QUEUE)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("run_id", StoredText, primary_key=True),
    sa.Column("slice", sa.BigInteger, primary_key=True),
    sa.Column("attempt", sa.BigInteger, primary_key=True),
    _integer("token"),
    _text("state"),
    _text("agent_id"),
    _text("agent_name"),
    _text("session_id"),
    _text("slot_id"),
    _integer("leased_at_ms"),
    _integer("deadline_ms"),
    sa.Column("confirmed", sa.Boolean, nullable=False),
    _integer("ended_at_ms"),
    _integer("segments"),
    _integer("launches"),
    _integer("launches_spooled"),
    sa.Column("failure", sa.JSON(none_as_null=True)),
    sa.Column("flags", sa.JSON, nullable=False),
    sa.Column("command", sa.JSON, nullable=False),
    sa.Column("environment", sa.JSON, nullable=False),
    _text("log"),
    sa.Column("telemetry", StoredText, nullable=False, server_default=""),
    sa.Column("wall_seconds", StoredNumber, nullable=False, server_default="0"),
    sa.Column("facts", StoredText, nullable=False, server_default=""),
    sa.Column("write_secret", StoredText, nullable=False, server_default=""),
    sa.Column("gang", sa.JSON, nullable=False, server_default="[]"),
    sa.ForeignKeyConstraint(["run_id", "slice"], ["slices.run_id", "slices.index"]),
    sa.UniqueConstraint("token"),
    sa.Index(None, "state"),
)


def _one_where(name: str, columns: tuple[str, ...], states: tuple[AttemptState, ...]) -> None:
    """At most one attempt in these states for each value of the columns; the database enforces it."""
    where = f"state IN ({', '.join(repr(str(s)) for s in states)})"
    _index_where(where, name, *(attempts.c[c] for c in columns), unique=True)


_one_where("ux_attempts_active_slice", ("run_id", "slice"), ACTIVE_ATTEMPTS)
_one_where("ux_attempts_leased_slot", ("agent_id", "slot_id"), (AttemptState.LEASED,))
_one_where("ux_attempts_published_slice", ("run_id", "slice"), (AttemptState.PUBLISHED,))

segments = sa.Table(
    "segments",
    metadata,
    sa.Column("run_id", StoredText, primary_key=True),
    sa.Column("slice", sa.BigInteger, primary_key=True),
    sa.Column("attempt", sa.BigInteger, primary_key=True),
    sa.Column("index", sa.BigInteger, primary_key=True),
    _integer("offset_bytes"),
    _integer("launches"),
    _integer("names_bytes"),
    _integer("launches_bytes"),
    sa.Column("names_hash", sa.LargeBinary, nullable=False),
    sa.Column("launches_hash", sa.LargeBinary, nullable=False),
    sa.ForeignKeyConstraint(
        ["run_id", "slice", "attempt"], ["attempts.run_id", "attempts.slice", "attempts.attempt"]
    ),
)

agents = sa.Table(
    "agents",
    metadata,
    sa.Column("agent_id", StoredText, primary_key=True),
    _text("session_id"),
    _text("name"),
    sa.Column("inventory", sa.JSON, nullable=False),
    sa.Column("slots", sa.JSON, nullable=False),
    _integer("seen_at_ms"),
)

identities = sa.Table(
    "identities",
    metadata,
    sa.Column("identity_id", StoredText, primary_key=True),
    _text("kind"),
    _text("name"),
    _text("role"),
    _text("project"),
    sa.Column("labels", sa.JSON, nullable=False),
    _integer("created_at_ms"),
    _integer("revoked_at_ms"),
    sa.Column("budget_gpu_hours", StoredNumber),
)

# Requests of people about runs that are carried out piece by piece; a row is gone when its request is done.
requests = sa.Table(
    "requests",
    metadata,
    sa.Column("request_id", sa.BigInteger, primary_key=True, autoincrement=False),
    _of_campaign(),
    _text("action"),
    _text("workload"),
    _text("run_id"),
    sa.Column("at_once", sa.Boolean, nullable=False),
    _integer("asked_at_ms"),
    _integer("next_ordinal"),
    _integer("runs_changed"),
    _integer("attempts_ended"),
)

# The newest try at each campaign's analysis.
analysis_tries = sa.Table(
    "analysis_tries",
    metadata,
    _of_campaign(primary_key=True),
    _integer("token"),
    _integer("attempts"),
    _integer("retried"),
)

join_tokens = sa.Table(
    "join_tokens",
    metadata,
    sa.Column("token_id", StoredText, primary_key=True),
    _text("secret_hash"),
    _text("role"),
    _text("name"),
    _text("project"),
    sa.Column("labels", sa.JSON, nullable=False),
    _integer("uses_left"),
    _integer("created_at_ms"),
    _integer("expires_at_ms"),
    sa.UniqueConstraint("secret_hash"),
)

certificates = sa.Table(
    "certificates",
    metadata,
    sa.Column("serial", StoredText, primary_key=True),
    _text("identity_id"),
    _text("public_key_hash"),
    _integer("issued_at_ms"),
    _integer("expires_at_ms"),
    _text("token_id"),
    _integer("withdrawn_at_ms"),
    sa.Index(None, "identity_id"),
)

# Bundles: their files are in the place of records. Who sent one has a row with it.
bundles = sa.Table(
    "bundles",
    metadata,
    sa.Column("sha256", StoredText, primary_key=True),
    _integer("bytes"),
    _integer("files"),
    _text("file"),
    _integer("stored_bytes"),
)

bundle_holders = sa.Table(
    "bundle_holders",
    metadata,
    sa.Column("sha256", StoredText, sa.ForeignKey("bundles.sha256", ondelete="CASCADE"), primary_key=True),
    sa.Column("holder", StoredText, primary_key=True),
    _integer("asked_at_ms"),
    sa.Index(None, "holder"),
)

# Links to the live page and sessions of browsers, by the hash of their secret.
web_logins = sa.Table(
    "web_logins",
    metadata,
    sa.Column("key", StoredText, primary_key=True),
    _text("identity_id"),
    _text("serial"),
    sa.Column("opened", sa.Boolean, nullable=False),
    _integer("made_at_ms"),
    _integer("ends_at_ms"),
    _integer("session_ends_at_ms"),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("entry_id", sa.Integer, primary_key=True),
    _integer("at_ms"),
    *(
        _text(name)
        for name in ("identity_id", "name", "role", "how", "address", "call", "subject", "outcome", "detail")
    ),
    sa.Index(None, "at_ms"),
    sqlite_autoincrement=True,
)

# One row: the last fencing token.
tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("name", StoredText, primary_key=True),
    _integer("value"),
)
