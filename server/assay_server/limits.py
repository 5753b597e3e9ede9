"""Every bound that keeps one client from blocking the others.

Each says what happens beyond it; ``docs/limits.md`` is made from that. Those that a lab may have to change
are fields, so that each server has its own: its parts share the groups, and a reload writes new numbers into
those that its parts read at each use (:data:`AT_RUNTIME`). All others, the class variables, are built in.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from typing import Any, ClassVar

from assay_sampling.errors import ParameterError

_log = logging.getLogger(__name__)

_KIB, _MIB = 1 << 10, 1 << 20
_LARGEST = 2**31 - 1


def _limit(number: int, effect: str) -> int:
    """A limit, and what happens beyond it, for docs/limits.md."""
    return field(default=number, metadata={"effect": effect})


@dataclass(frozen=True)
class CampaignFileLimits:
    """Bounds of one campaign file (:mod:`assay_server.campaign_file.yaml_source`); larger ones are split.

    What its numbers multiply to: :mod:`assay_server.campaign_file.sizes`.
    """

    campaign_file_bytes: int = _limit(1 * _MIB, "the file is refused: split it into several campaigns")
    campaign_file_depth: int = _limit(16, "refused, naming the line: lists and mappings nested deeper")
    campaign_file_values: int = _limit(50_000, "refused, naming the line")
    campaign_scalar_characters: int = _limit(64 * _KIB, "refused, naming the line: one word or text")
    campaign_number_characters: int = _limit(64, "refused, naming the line: a number as it is written")
    campaign_runs: int = _limit(
        100_000,
        "refused, naming the key and the numbers that multiply to so many runs, with those that `repeat` "
        "may add",
    )
    campaign_slices: int = _limit(
        250_000,
        "refused, naming the key: planned slices, or those that one light run may give the detailed runs "
        "that wait for it (200 to each)",
    )
    campaign_run_slices: int = _limit(25_000, "refused, naming the key: slices of one detailed run")
    campaign_runs_bytes: int = _limit(
        256 * _MIB, "refused, naming the workload: its command, environment and requirements, times its runs"
    )


@dataclass(frozen=True)
class JoinLimits:
    """Bounds of the listener on which strangers join (:mod:`assay_server.rpc.server`), who need little."""

    join_calls: int = _limit(32, "refused: joins under way at a time")
    join_connections: int = _limit(64, "connections at a time; a further one is closed at once")
    join_idle_seconds: int = _limit(10, "a connection without a call is closed")
    join_message_bytes: int = _limit(16 * _KIB, "a larger message is refused unread")


@dataclass(frozen=True)
class CallLimits:
    """Bounds of gRPC itself, for every call (:mod:`assay_server.rpc.server`).

    Built in where messages, pauses and calls of our own programs stay far below them.
    """

    calls: int = _limit(4_096, "refused: calls under way at a time")
    connections: int = _limit(2_048, "connections at a time on one address; a further one is closed at once")

    request_bytes: ClassVar[int] = _limit(2 * _MIB, "a larger message to the server is refused unread")
    answer_bytes: ClassVar[int] = _limit(
        32 * _MIB, "a larger message of the server is not sent: the call ends with an error"
    )
    calls_waiting: ClassVar[int] = _limit(1_024, "refused: calls that wait for the threads of their kind")
    silent_peer_seconds: ClassVar[int] = _limit(
        60, "the server pings a connection that sent nothing for so long"
    )
    silent_peer_answer_seconds: ClassVar[int] = _limit(
        20, "without an answer the connection ends, and all of its calls"
    )
    handshake_seconds: ClassVar[int] = _limit(8, "a connection whose TLS handshake takes longer is closed")
    connection_streams: ClassVar[int] = _limit(
        1_024, "calls under way on one connection; further ones wait at the caller"
    )
    connection_idle_seconds: ClassVar[int] = _limit(
        1_800, "a connection without a call is closed; programs open another when they need it"
    )
    calls_unread: ClassVar[int] = _limit(
        4_096,
        "calls that gRPC has received and the server has not begun; gRPC ends a further one as "
        "CANCELLED, and agents make it again",
    )


@dataclass
class CallerLimits:
    """Bounds of each caller with a certificate (:mod:`assay_server.rpc.quotas`).

    ``place_share_percent`` is built in: four callers can fill a kind of stream, one can not.
    """

    caller_calls: int = _limit(
        256, "calls of one caller under way at a time; a heartbeat is never refused for this"
    )
    caller_calls_per_second: int = _limit(100, "refused, after a burst of five seconds' worth")
    caller_heartbeats_per_second: int = _limit(20, "as above; counted apart, so other calls cost no lease")
    caller_registrations_per_minute: int = _limit(120, "as above; counted apart, too")

    place_share_percent: ClassVar[int] = _limit(
        25, "how much of `watch_streams` and `upload_streams` one caller may take"
    )


@dataclass
class QueryLimits:
    """Bounds of people's queries and watches (:mod:`assay_server.rpc`).

    Built in where clients ask for the next page by themselves.
    """

    watch_streams: int = _limit(
        256, "a further stream of the live page, or of the health service, is refused"
    )
    download_streams: int = _limit(16, "refused: files of records being fetched")

    status_threads: ClassVar[int] = _limit(2, "the question waits")
    status_page_runs: ClassVar[int] = _limit(
        1_000, "the client asks for the next page; `assay lab status` does so by itself"
    )
    status_page_campaigns: ClassVar[int] = _limit(200, "as above, without an ID")
    records_page_files: ClassVar[int] = _limit(
        25_000, "the list of published files ends with the current run, and the client asks for the next page"
    )
    answer_stalled_seconds: ClassVar[int] = _limit(
        60,
        "a watch, report, published file or stream whose receiver takes no message for so long ends with "
        "RESOURCE_EXHAUSTED",
    )


@dataclass
class UploadLimits:
    """Bounds of the streams of launch records (:mod:`assay_server.rpc.uploads`).

    Built in where agents of this release keep to them and send again what was cut off.
    """

    upload_streams: int = _limit(1_024, "the stream is refused; the agent keeps its data")
    upload_held_bytes: int = _limit(
        256 * _MIB, "received bytes wait; bytes that were only announced count for nothing"
    )

    upload_chunk_bytes: ClassVar[int] = _limit(
        1 * _MIB, "the stream is refused: agents must send a segment in smaller chunks"
    )
    upload_segments_in_flight: ClassVar[int] = _limit(
        16, "the server reads no further segment of the stream before it has stored one of them"
    )
    upload_idle_seconds: ClassVar[int] = _limit(
        60, "a stream without a message for so long ends; the agent sends again what was not acknowledged"
    )
    upload_segment_seconds: ClassVar[int] = _limit(
        120, "the stream ends if one segment takes longer, however many messages come"
    )
    upload_wait_seconds: ClassVar[int] = _limit(30, "the stream ends, to be tried again later")


@dataclass
class ArchiveLimits:
    """Bounds of archives of campaigns (:mod:`assay_server.rpc.services`)."""

    archive_streams: int = _limit(2, "the export or import is refused")

    archive_idle_seconds: ClassVar[int] = _limit(
        60, "an import without a further piece for so long ends, and nothing of it is kept"
    )


@dataclass
class BundleLimits:
    """Bounds of bundles (:mod:`assay_server.campaigns.bundles`).

    Built in where clients of this release keep to them.
    """

    bundle_bytes: int = _limit(
        256 * _MIB, "refused when it is packed, and by the server: bytes of one archive, uncompressed"
    )
    bundle_entries: int = _limit(10_000, "refused, as above: files and folders in it")
    bundle_identity_bytes: int = _limit(
        2_048 * _MIB, "refused: compressed bytes of all bundles of one person on the server"
    )
    bundle_total_bytes: int = _limit(20_480 * _MIB, "refused: of all bundles")
    campaign_bundles: int = _limit(100, "the campaign is refused: bundles that one file names")

    bundle_path_bytes: ClassVar[int] = _limit(
        200, "refused when it is packed, and by the server, with the name"
    )
    bundle_chunk_bytes: ClassVar[int] = _limit(1 * _MIB, "the stream ends: senders must send smaller chunks")
    bundle_parts: ClassVar[int] = _limit(16, "the oldest leftovers of an identity's broken uploads go")
    bundle_unnamed_seconds: ClassVar[int] = _limit(
        3_600, "a bundle that no campaign names goes so long after its sender last asked for it"
    )
    bundle_streams: ClassVar[int] = _limit(16, "refused: bundles on their way at a time, in or out")
    bundle_idle_seconds: ClassVar[int] = _limit(
        60,
        "a stream without a further chunk, or whose agent takes none, for so long ends; an upload may be "
        "continued",
    )


@dataclass
class AgentLimits:
    """Bounds of what an agent may report (:mod:`assay_server.rpc.handlers.agents`), and of known agents.

    Built in, as no box has so much: what a registration and a heartbeat hold.
    """

    agents_remembered: int = _limit(1_000, "the server forgets those that were away longest and hold no run")

    registration_bytes: ClassVar[int] = _limit(
        256 * _KIB, "the registration is refused (its size without the attempts on the agent's disk)"
    )
    registration_slots: ClassVar[int] = _limit(1_024, "the registration is refused")
    registration_attempts: ClassVar[int] = _limit(4_096, "the registration is refused")
    heartbeat_attempts: ClassVar[int] = _limit(4_096, "the heartbeat is refused")


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


def limit_table(group: object) -> str:
    """The limits of a group with their numbers and effects, as Markdown."""
    rows = [
        f"| `{name}` | {getattr(group, name):,} | {each.metadata['effect']} |"
        for name, each in _limits_of(group).items()
    ]
    return "\n".join(["| limit | number | what happens beyond it |", "|---|---|---|", *rows])


def _limits_of(group: Any) -> dict[str, Field[int]]:
    """The limits of a group, those that are built in (its class variables) among them."""
    return dict(group.__dataclass_fields__)


def built_in() -> dict[str, int]:
    """The bounds that nobody changes, by name."""
    bounds = asdict(CAMPAIGN_FILE_LIMITS) | asdict(JOIN_LIMITS)
    bounds |= {
        "bad_requests_logged_per_minute": BAD_REQUESTS_LOGGED_PER_MINUTE,
        "refusals_audited_per_minute": REFUSALS_AUDITED_PER_MINUTE,
    }
    for group in _GROUPS:
        settable = {each.name for each in fields(group)}
        bounds |= {name: getattr(group, name) for name in _limits_of(group) if name not in settable}
    return bounds


def limits_asked(texts: Iterable[str]) -> dict[str, int]:
    """The numbers in texts ``NAME=NUMBER``, by name; of one name the last counts. Raises ParameterError."""
    numbers: dict[str, int] = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        if name in built_in():
            raise ParameterError("--limit", f"{name} is built in", "see: assay docs limits")
        if name not in AT_RUNTIME | _AT_START:
            raise ParameterError("--limit", f"there is no limit {name!r}", "see: assay docs limits")
        if not (number.isascii() and number.isdigit() and 1 <= int(number[:12]) <= _LARGEST):
            cause = f"{number!r} is not a whole number from 1 to {_LARGEST:,}"
            raise ParameterError("--limit", f"{name}: {cause}", f"write {name}=NUMBER")
        numbers[name] = int(number)
    return numbers


def limits_with(limits: Limits, numbers: Mapping[str, int]) -> Limits:
    """A copy of limits with other numbers, which shares nothing with them."""
    own = copy.deepcopy(limits)
    for name, number in numbers.items():
        # Frozen groups are those that nothing may change once a server has started.
        object.__setattr__(_group_of(own, name), name, number)
    return own


def take_over(limits: Limits, target: Limits) -> None:
    """Have a running server obey the limits that a reload asks for, and log what changes and what waits.

    Its parts see a new number at their next use.
    """
    for name in sorted(AT_RUNTIME | _AT_START):
        group, new = _group_of(limits, name), int(getattr(_group_of(target, name), name))
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
