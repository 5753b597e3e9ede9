"""The tables of the metadata store, for SQLAlchemy Core: of each record, a column for each of its fields.

Migrations make them; a test keeps both equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from types import NoneType
from typing import Any, get_args, get_type_hints

import sqlalchemy as sa

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import AttemptState
from assay_core.records.lab import AuditEntry
from assay_core.records.runs import RunsRequest
from assay_core.records.upload import Bundle
from assay_server.store.column_values import StoredText, column_type
from assay_server.store.model import (
    ACTIVE_ATTEMPTS,
    Agent,
    AnalysisTry,
    Attempt,
    Campaign,
    PendingRequest,
    Run,
    Segment,
    Slice,
)
from assay_server.store.people import Identity, StoredCertificate, StoredToken, WebLogin

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _columns(
    record: type, *key: str, without: Collection[str] = (), **names: str
) -> Iterator[sa.Column[Any]]:
    """A column for each field of a record; ``names``: of those that are not called as their fields are."""
    kinds = get_type_hints(record)
    for field in dataclasses.fields(record):
        if field.name not in without:
            kind, is_key = kinds[field.name], field.name in key
            name, nullable = names.get(field.name, field.name), NoneType in get_args(kind)
            stored = column_type(next(iter(get_args(kind))) if nullable else kind)
            yield sa.Column(name, stored, primary_key=is_key, nullable=nullable, autoincrement=False)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, StoredText, nullable=False)


def _integer(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _of_campaign() -> sa.ForeignKeyConstraint:
    """Its rows go with their campaign."""
    return sa.ForeignKeyConstraint(["campaign_id"], ["campaigns.campaign_id"], ondelete="CASCADE")


def _index_where(where: str, name: str, *columns: sa.Column[Any], unique: bool = False) -> None:
    """An index of the rows alone for which this is true."""
    condition = sa.text(where)
    sa.Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


campaigns = sa.Table(
    "campaigns",
    metadata,
    *_columns(Campaign, "campaign_id"),
    _integer("ordinal"),
    # The mark of who brings it in piece by piece; "" once it is there. Only the store knows this column.
    _text("arriving"),
    sa.UniqueConstraint("name", "number"),
    sa.UniqueConstraint("ordinal"),
)
_index_where("arriving != ''", "ix_campaigns_arriving", campaigns.c.arriving)
_index_where("submission != ''", "ix_campaigns_submission", campaigns.c.owner, campaigns.c.submission)

runs = sa.Table(
    "runs",
    metadata,
    *_columns(Run, "run_id", without=("recorded",)),
    _text("recorded_path"),
    sa.Column("recorded_time", sa.Boolean, nullable=False),
    sa.ForeignKeyConstraint(["campaign_id"], ["campaigns.campaign_id"]),
    sa.UniqueConstraint("campaign_id", "ordinal"),
    sa.Index(None, "campaign_id", "state", "profiler", "device_key", "ordinal"),
)

# The queue: waiting slices stand in the lane of their run's campaign and need, in the order of the campaign.
lanes = sa.Table(
    "lanes",
    metadata,
    sa.Column("lane_id", sa.Integer, primary_key=True),
    _text("campaign_id"),
    _text("need"),  # JSON with sorted keys, so that equal needs are equal texts
    _of_campaign(),
    sa.UniqueConstraint("campaign_id", "need"),
)

slices = sa.Table(
    "slices",
    metadata,
    *_columns(Slice, "run_id", "index"),
    # Its place in the queue: the lane (negative while its run is held, so that no slot finds it), and the
    # run's ordinal. Only the store knows these columns.
    _integer("lane"),
    _integer("ordinal"),
    sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"]),
    sa.Index(None, "run_id", "state", "index"),
)
_QUEUE = (slices.c[name] for name in ("lane", "ordinal", "index", "not_before_ms"))
_index_where("state = 'waiting'", "ix_slices_waiting", *_QUEUE)

attempts = sa.Table(
    "attempts",
    metadata,
    *_columns(AttemptKey, "run_id", "slice_index", "attempt", slice_index="slice"),
    *_columns(Attempt, without=("key", "log", "write_secret"), lease_ends_at_ms="deadline_ms"),
    *_columns(AttemptLog, text="log", telemetry_json="telemetry", facts_json="facts"),
    _text("write_secret"),
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
    *_columns(Segment, "run_id", "slice", "attempt", "index"),
    sa.ForeignKeyConstraint(
        ["run_id", "slice", "attempt"], ["attempts.run_id", "attempts.slice", "attempts.attempt"]
    ),
)

agents = sa.Table(
    "agents",
    metadata,
    *_columns(Agent, "agent_id", without=("inventory", "place", "labels", "since_ms")),
    sa.Column("inventory", sa.JSON, nullable=False),  # with place and since_ms
)

identities = sa.Table("identities", metadata, *_columns(Identity, "identity_id"))

# Requests of people about runs that are carried out piece by piece; a row is gone when its request is done.
requests = sa.Table(
    "requests",
    metadata,
    *_columns(PendingRequest, "request_id", without=("asked",)),
    *_columns(RunsRequest),
    _of_campaign(),
)

# The newest try at each campaign's analysis.
analysis_tries = sa.Table("analysis_tries", metadata, *_columns(AnalysisTry, "campaign_id"), _of_campaign())

join_tokens = sa.Table(
    "join_tokens", metadata, *_columns(StoredToken, "token_id"), sa.UniqueConstraint("secret_hash")
)

certificates = sa.Table(
    "certificates", metadata, *_columns(StoredCertificate, "serial"), sa.Index(None, "identity_id")
)

# Bundles: their files are in the place of records. Who sent one has a row with it.
bundles = sa.Table("bundles", metadata, *_columns(Bundle, "sha256"), _text("file"), _integer("stored_bytes"))

bundle_holders = sa.Table(
    "bundle_holders",
    metadata,
    sa.Column("sha256", StoredText, sa.ForeignKey("bundles.sha256", ondelete="CASCADE"), primary_key=True),
    sa.Column("holder", StoredText, primary_key=True),
    _integer("asked_at_ms"),
    sa.Index(None, "holder"),
)

# Links to the live page and sessions of browsers, by the hash of their secret.
web_logins = sa.Table("web_logins", metadata, *_columns(WebLogin, "key"))

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("entry_id", sa.Integer, primary_key=True),
    *_columns(AuditEntry, without=("entry_id",)),
    sa.Index(None, "at_ms"),
    sqlite_autoincrement=True,
)

# Numbers by name, such as the last fencing token, and:
STATE_NUMBER = "state"  # a state folder and its database have the same one
AUTHORITY_MARK = "authority"  # what tells the certificate authority of the servers from others
tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("name", StoredText, primary_key=True),
    _integer("value"),
)
