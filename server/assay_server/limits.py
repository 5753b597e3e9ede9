"""Every bound that keeps one client from blocking the others.

A field's name is its name in ``docs/limits.md``; a test keeps the two equal. Bounds are values, not constants
of the modules that enforce them, so that each identity can get its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class CampaignFileLimits:
    """Bounds of one campaign file (:mod:`assay_server.campaign_file.yaml_source`).

    ``campaign_number_characters``: length of a written number; converting longer ones takes long.
    """

    campaign_file_bytes: int = 1 * _MIB
    campaign_file_depth: int = 16
    campaign_file_values: int = 50_000
    campaign_scalar_characters: int = 64 * _KIB
    campaign_number_characters: int = 64


@dataclass(frozen=True)
class CallLimits:
    """Bounds of gRPC itself, for every call (:mod:`assay_server.rpc.server`).

    ``calls_waiting``: for the threads of one kind of call; ``silent_peer_seconds``: without a byte, then the
    server asks for a sign of life, which must come within ``silent_peer_answer_seconds``;
    ``handshake_seconds``: for the handshake of a new connection.
    """

    calls: int = 4_096
    request_bytes: int = 2 * _MIB
    answer_bytes: int = 32 * _MIB
    calls_waiting: int = 1_024
    silent_peer_seconds: int = 60
    silent_peer_answer_seconds: int = 20
    handshake_seconds: int = 15


@dataclass(frozen=True)
class CallerLimits:
    """Bounds of each caller with a certificate (:mod:`assay_server.rpc.admission.quotas`).

    ``place_share_percent``: how much of ``watch_streams``, ``waiting_leases`` and ``upload_streams`` one
    caller may take.
    """

    caller_calls: int = 256
    caller_calls_per_second: int = 100
    caller_heartbeats_per_second: int = 20
    caller_registrations_per_minute: int = 120
    place_share_percent: int = 25


@dataclass(frozen=True)
class JoinLimits:
    """Bounds of the listener on which strangers join (:mod:`assay_server.rpc.server`).

    ``join_connections``: open at a time, so that strangers do not take the files that the process may open;
    ``join_idle_seconds``: without a call, then a connection is closed.
    """

    join_calls: int = 32
    join_connections: int = 64
    join_idle_seconds: int = 10
    join_message_bytes: int = 16 * _KIB


@dataclass(frozen=True)
class QueryLimits:
    """Bounds of people's queries and watches (:mod:`assay_server.rpc`).

    ``status_threads``: statuses made at a time; ``status_page_runs``: runs in each;
    ``status_page_campaigns``: campaigns listed in one answer.
    """

    status_threads: int = 2
    status_page_runs: int = 1_000
    status_page_campaigns: int = 200
    watch_streams: int = 256
    waiting_leases: int = 2_048


@dataclass(frozen=True)
class UploadLimits:
    """Bounds of the streams of launch records (:mod:`assay_server.rpc.ingest_servicer`).

    ``upload_idle_seconds``: wait for the next message; ``upload_segment_seconds``: for a whole segment from
    its header on; ``upload_held_bytes``: all segments received but not yet stored;
    ``upload_segments_in_flight``: per stream; ``upload_chunk_bytes``: per chunk of a part.
    """

    upload_streams: int = 1_024
    upload_chunk_bytes: int = 1 * _MIB
    upload_segments_in_flight: int = 16
    upload_idle_seconds: int = 60
    upload_segment_seconds: int = 120
    upload_held_bytes: int = 256 * _MIB
    upload_wait_seconds: int = 30


@dataclass(frozen=True)
class ArchiveLimits:
    """Bounds of archives of campaigns (:mod:`assay_server.rpc.archives.servicer`).

    ``archive_streams``: exports and imports at a time; ``archive_idle_seconds``: wait for the next piece.
    """

    archive_streams: int = 2
    archive_idle_seconds: int = 60


@dataclass(frozen=True)
class AgentLimits:
    """Bounds of what an agent may report (:mod:`assay_server.rpc.bounds`), and of known agents."""

    registration_bytes: int = 256 * _KIB
    registration_slots: int = 1_024
    registration_attempts: int = 4_096
    heartbeat_attempts: int = 4_096
    agents_remembered: int = 1_000


@dataclass(frozen=True)
class LogLimits:
    """Bounds of what bad and refused requests may write to the log, and to the audit log."""

    bad_requests_logged_per_minute: int = 10
    refusals_audited_per_minute: int = 60


@dataclass(frozen=True)
class Limits:
    """All bounds of a server."""

    campaign_file: CampaignFileLimits = field(default_factory=CampaignFileLimits)
    calls: CallLimits = field(default_factory=CallLimits)
    joins: JoinLimits = field(default_factory=JoinLimits)
    callers: CallerLimits = field(default_factory=CallerLimits)
    queries: QueryLimits = field(default_factory=QueryLimits)
    uploads: UploadLimits = field(default_factory=UploadLimits)
    archives: ArchiveLimits = field(default_factory=ArchiveLimits)
    agents: AgentLimits = field(default_factory=AgentLimits)
    log: LogLimits = field(default_factory=LogLimits)


DEFAULT_LIMITS = Limits()
