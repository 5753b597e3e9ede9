"""Every bound that keeps one client from blocking the others.

A bound's name is its name in ``docs/limits.md``; a test keeps the two equal. Those that a lab may have to
change are fields, so that each server has its own: its parts share the groups, and a reload writes new
numbers into those that its parts read at each use (:data:`AT_RUNTIME`). All others are built in.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from inspect import get_annotations
from typing import ClassVar

from assay_sampling.errors import ParameterError

_log = logging.getLogger(__name__)

_KIB, _MIB = 1 << 10, 1 << 20
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class CampaignFileLimits:
    """Bounds of one campaign file (:mod:`assay_server.campaign_file.yaml_source`); larger ones are split.

    ``campaign_number_characters``: length of a written number; converting longer ones takes long.
    ``campaign_runs``, ``campaign_slices``, ``campaign_run_slices`` and ``campaign_runs_bytes``: what its
    numbers multiply to, at most (:mod:`assay_server.campaign_file.sizes`).
    """

    campaign_file_bytes: int = 1 * _MIB
    campaign_file_depth: int = 16
    campaign_file_values: int = 50_000
    campaign_scalar_characters: int = 64 * _KIB
    campaign_number_characters: int = 64
    campaign_runs: int = 100_000
    campaign_slices: int = 250_000
    campaign_run_slices: int = 25_000
    campaign_runs_bytes: int = 256 * _MIB


@dataclass(frozen=True)
class JoinLimits:
    """Bounds of the listener on which strangers join (:mod:`assay_server.rpc.server`), who need little.

    ``join_connections``: open at a time, so that strangers do not take the files that the process may open;
    ``join_idle_seconds``: without a call, then a connection is closed.
    """

    join_calls: int = 32
    join_connections: int = 64
    join_idle_seconds: int = 10
    join_message_bytes: int = 16 * _KIB


@dataclass(frozen=True)
class CallLimits:
    """Bounds of gRPC itself, for every call (:mod:`assay_server.rpc.server`).

    ``connections``: open at a time on one address. Built in, as messages, pauses and calls of our own
    programs stay far below them: ``calls_waiting``: for the threads of one kind of call;
    ``silent_peer_seconds``: without a byte, then the server asks for a sign of life, which must come within
    ``silent_peer_answer_seconds``; ``handshake_seconds``: for the handshake of a new connection;
    ``connection_streams``: calls under way on one connection; ``connection_idle_seconds``: without a call,
    then it is closed; ``calls_unread``: calls that gRPC has received and the server has not begun.
    """

    calls: int = 4_096
    connections: int = 2_048

    request_bytes: ClassVar[int] = 2 * _MIB
    answer_bytes: ClassVar[int] = 32 * _MIB
    calls_waiting: ClassVar[int] = 1_024
    silent_peer_seconds: ClassVar[int] = 60
    silent_peer_answer_seconds: ClassVar[int] = 20
    handshake_seconds: ClassVar[int] = 8
    connection_streams: ClassVar[int] = 1_024
    connection_idle_seconds: ClassVar[int] = 1_800
    calls_unread: ClassVar[int] = 4_096


@dataclass
class CallerLimits:
    """Bounds of each caller with a certificate (:mod:`assay_server.rpc.admission.quotas`).

    ``place_share_percent``: how much of ``watch_streams`` and ``upload_streams`` one caller may take. Built
    in: four callers can fill a kind of stream, one can not.
    """

    caller_calls: int = 256
    caller_calls_per_second: int = 100
    caller_heartbeats_per_second: int = 20
    caller_registrations_per_minute: int = 120

    place_share_percent: ClassVar[int] = 25


@dataclass
class QueryLimits:
    """Bounds of people's queries and watches (:mod:`assay_server.rpc`).

    ``download_streams``: of records at a time. Built in, as clients ask for the next page by themselves:
    ``status_threads``: statuses made at a time; ``status_page_runs``: runs in each;
    ``status_page_campaigns``: campaigns listed in one answer; ``records_page_files``: published files, after
    which a list ends with the run that it is at; ``answer_stalled_seconds``: for the peer to take the next
    message of an answer in parts.
    """

    watch_streams: int = 256
    download_streams: int = 16

    status_threads: ClassVar[int] = 2
    status_page_runs: ClassVar[int] = 1_000
    status_page_campaigns: ClassVar[int] = 200
    records_page_files: ClassVar[int] = 25_000
    answer_stalled_seconds: ClassVar[int] = 60


@dataclass
class UploadLimits:
    """Bounds of the streams of launch records (:mod:`assay_server.rpc.ingest_servicer`).

    ``upload_held_bytes``: all segments received but not yet stored. Built in, as agents of this release keep
    to them and send again what was cut off: ``upload_idle_seconds``: wait for the next message;
    ``upload_segment_seconds``: for a whole segment from its header on; ``upload_segments_in_flight``: per
    stream; ``upload_chunk_bytes``: per chunk of a part; ``upload_wait_seconds``: for room to hold a segment.
    """

    upload_streams: int = 1_024
    upload_held_bytes: int = 256 * _MIB

    upload_chunk_bytes: ClassVar[int] = 1 * _MIB
    upload_segments_in_flight: ClassVar[int] = 16
    upload_idle_seconds: ClassVar[int] = 60
    upload_segment_seconds: ClassVar[int] = 120
    upload_wait_seconds: ClassVar[int] = 30


@dataclass
class ArchiveLimits:
    """Bounds of archives of campaigns (:mod:`assay_server.rpc.archives.servicer`).

    ``archive_streams``: exports and imports at a time; ``archive_idle_seconds``: wait for the next piece.
    """

    archive_streams: int = 2

    archive_idle_seconds: ClassVar[int] = 60


@dataclass
class BundleLimits:
    """Bounds of bundles (:mod:`assay_server.campaigns.bundles.stored`).

    ``bundle_bytes``: of one archive, uncompressed; ``bundle_entries``: files and folders in it;
    ``bundle_identity_bytes``: compressed, of all that one identity sent; ``bundle_total_bytes``: of all.
    Built in, as clients of this release keep to them: ``bundle_path_bytes``: of the longest name;
    ``bundle_chunk_bytes``: per message; ``bundle_parts``: of one identity, that broken streams left;
    ``bundle_unnamed_seconds``: how long one is kept that no campaign names; ``bundle_streams``: on their way
    at a time, either way; ``bundle_idle_seconds``: wait for the next chunk, and for the receiver to take one.
    """

    bundle_bytes: int = 256 * _MIB
    bundle_entries: int = 10_000
    bundle_identity_bytes: int = 2_048 * _MIB
    bundle_total_bytes: int = 20_480 * _MIB
    campaign_bundles: int = 100

    bundle_path_bytes: ClassVar[int] = 200
    bundle_chunk_bytes: ClassVar[int] = 1 * _MIB
    bundle_parts: ClassVar[int] = 16
    bundle_unnamed_seconds: ClassVar[int] = 3_600
    bundle_streams: ClassVar[int] = 16
    bundle_idle_seconds: ClassVar[int] = 60


@dataclass
class AgentLimits:
    """Bounds of what an agent may report (:mod:`assay_server.rpc.bounds`), and of known agents.

    Built in, as no box has so much: what a registration and a heartbeat hold.
    """

    agents_remembered: int = 1_000

    registration_bytes: ClassVar[int] = 256 * _KIB
    registration_slots: ClassVar[int] = 1_024
    registration_attempts: ClassVar[int] = 4_096
    heartbeat_attempts: ClassVar[int] = 4_096


# What bad and refused requests may write to the log, and to the audit log.
BAD_REQUESTS_LOGGED_PER_MINUTE = 10
REFUSALS_AUDITED_PER_MINUTE = 60

CAMPAIGN_FILE_LIMITS, JOIN_LIMITS = CampaignFileLimits(), JoinLimits()


@dataclass(frozen=True)
class Limits:
    """The bounds of a server to which ``--limit`` gives other numbers, and beside them those built in."""

    calls: CallLimits = field(default_factory=CallLimits)
    callers: CallerLimits = field(default_factory=CallerLimits)
    queries: QueryLimits = field(default_factory=QueryLimits)
    uploads: UploadLimits = field(default_factory=UploadLimits)
    archives: ArchiveLimits = field(default_factory=ArchiveLimits)
    bundles: BundleLimits = field(default_factory=BundleLimits)
    agents: AgentLimits = field(default_factory=AgentLimits)


DEFAULT_LIMITS = Limits()
_GROUPS = tuple(getattr(DEFAULT_LIMITS, group.name) for group in fields(Limits))

_AT_START = frozenset({"calls", "connections", "upload_held_bytes", "bundle_bytes", "bundle_entries"})
AT_RUNTIME = frozenset(each.name for group in _GROUPS for each in fields(group)) - _AT_START


def built_in() -> dict[str, int]:
    """The bounds that nobody changes, by name."""
    found = asdict(CAMPAIGN_FILE_LIMITS) | asdict(JOIN_LIMITS)
    found |= {
        "bad_requests_logged_per_minute": BAD_REQUESTS_LOGGED_PER_MINUTE,
        "refusals_audited_per_minute": REFUSALS_AUDITED_PER_MINUTE,
    }
    for group in _GROUPS:
        settable = {each.name for each in fields(group)}
        found |= {name: getattr(group, name) for name in get_annotations(type(group)) if name not in settable}
    return found


def limits_asked(texts: Iterable[str]) -> dict[str, int]:
    """The numbers in texts ``NAME=NUMBER``, by name; of one name the last counts. Raises ParameterError."""
    found: dict[str, int] = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        if name in built_in():
            raise ParameterError("--limit", f"{name} is built in", "see: assay docs limits")
        if name not in AT_RUNTIME | _AT_START:
            raise ParameterError("--limit", f"there is no limit {name!r}", "see: assay docs limits")
        if not (number.isascii() and number.isdigit() and 1 <= int(number[:12]) <= _LARGEST):
            cause = f"{number!r} is not a whole number from 1 to {_LARGEST:,}"
            raise ParameterError("--limit", f"{name}: {cause}", f"write {name}=NUMBER")
        found[name] = int(number)
    return found


def limits_with(limits: Limits, asked: Mapping[str, int]) -> Limits:
    """A copy of limits with other numbers, which shares nothing with them."""
    own = copy.deepcopy(limits)
    for name, number in asked.items():
        # Frozen groups are those that nothing may change once a server has started.
        object.__setattr__(_group_of(own, name), name, number)
    return own


def take_over(limits: Limits, asked: Limits) -> None:
    """Have a running server obey the limits that a reload asks for, and log what changes and what waits.

    Its parts see a new number at their next use.
    """
    for name in sorted(AT_RUNTIME | _AT_START):
        group, new = _group_of(limits, name), int(getattr(_group_of(asked, name), name))
        now = int(getattr(group, name))
        if now == new:
            continue
        if name in AT_RUNTIME:
            setattr(group, name, new)
            _log.warning("reload: limit %s is now %s (was %s)", name, new, now)
        else:
            _log.warning("reload: limit %s becomes %s only with a restart", name, new)


def _group_of(limits: Limits, name: str) -> object:
    groups = (getattr(limits, group.name) for group in fields(Limits))
    return next(group for group in groups if hasattr(group, name))
