"""Every bound that keeps one client from stopping the others: its number, and what it is called in the docs.

A field's name is its name in ``docs/limits.md``; a test holds the two equal. They are values and no constants
of the modules that keep them, so that each identity can be given its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class CampaignFileLimits:
    """What may stand in one campaign file (:mod:`assay_server.campaigns.yaml_source`).

    ``campaign_number_characters``: of a number as it is written; turning more into a number takes long.
    """

    campaign_file_bytes: int = 1 * _MIB
    campaign_file_depth: int = 16
    campaign_file_values: int = 50_000
    campaign_scalar_characters: int = 64 * _KIB
    campaign_number_characters: int = 64


@dataclass(frozen=True)
class CallLimits:
    """What gRPC itself takes and gives, whatever is asked (:mod:`assay_server.rpc.server`)."""

    calls: int = 4_096
    request_bytes: int = 2 * _MIB
    answer_bytes: int = 32 * _MIB


@dataclass(frozen=True)
class QueryLimits:
    """What one question of a person, or one that keeps watching, may take (:mod:`assay_server.rpc`).

    ``status_threads`` and ``status_page_runs``: so many statuses are made at a time, with so many runs each;
    ``status_page_campaigns``: so many campaigns are listed in one answer.
    """

    status_threads: int = 2
    status_page_runs: int = 1_000
    status_page_campaigns: int = 200
    watch_streams: int = 256
    waiting_leases: int = 2_048


@dataclass(frozen=True)
class UploadLimits:
    """What the streams of launch records may hold (:mod:`assay_server.rpc.ingest_servicer`).

    ``upload_idle_seconds`` for the next message, ``upload_segment_seconds`` for a whole segment from its
    header on, and ``upload_held_bytes`` of all segments that have come and are not yet stored; of one stream
    ``upload_segments_in_flight``, whose parts come in chunks of ``upload_chunk_bytes`` at most.
    """

    upload_streams: int = 1_024
    upload_chunk_bytes: int = 1 * _MIB
    upload_segments_in_flight: int = 16
    upload_idle_seconds: int = 60
    upload_segment_seconds: int = 120
    upload_held_bytes: int = 256 * _MIB
    upload_wait_seconds: int = 30


@dataclass(frozen=True)
class AgentLimits:
    """What an agent may tell (:mod:`assay_server.rpc.convert`), and how many are remembered."""

    registration_bytes: int = 256 * _KIB
    registration_slots: int = 1_024
    registration_attempts: int = 4_096
    heartbeat_attempts: int = 4_096
    agents_remembered: int = 1_000


@dataclass(frozen=True)
class LogLimits:
    """What bad requests may write into the log."""

    bad_requests_logged_per_minute: int = 10


@dataclass(frozen=True)
class Limits:
    """All bounds of a server."""

    campaign_file: CampaignFileLimits = field(default_factory=CampaignFileLimits)
    calls: CallLimits = field(default_factory=CallLimits)
    queries: QueryLimits = field(default_factory=QueryLimits)
    uploads: UploadLimits = field(default_factory=UploadLimits)
    agents: AgentLimits = field(default_factory=AgentLimits)
    log: LogLimits = field(default_factory=LogLimits)


DEFAULT_LIMITS = Limits()
