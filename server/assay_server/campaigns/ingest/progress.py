"""The progress of an attempt: what it has sent so far, and whether the next segment continues that."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from assay_core.records.attempt import Claim
from assay_sampling.errors import LaunchTableError
from assay_sampling.running.identity import Origin, origin_of
from assay_server.campaigns.ingest.group_commit import PreparedSegment
from assay_server.campaigns.ingest.ordinals import LaunchOrdinals
from assay_server.campaigns.ingest.upload import Upload
from assay_server.store.model import Run, Segment
from assay_server.store.record_store import RecordStore
from assay_server.store.segments import (
    LARGEST_PART_BYTES,
    LARGEST_SEGMENT_LAUNCHES,
    CheckedSchema,
    SegmentContent,
    check_named,
    decode_segment,
    part_hash,
)


class ChangedOnTheWayError(LaunchTableError):
    """The bytes changed in transit: another attempt may succeed."""


@dataclass(frozen=True)
class Expected:
    """What the launches of a run must be; ``may_skip``: their numbers may have gaps."""

    origin: Origin
    level: str
    may_skip: bool

    @classmethod
    def of(cls, run: Run) -> Expected:
        return cls(origin_of(synthetic=run.synthetic), run.level, may_skip=run.command is None)


@dataclass
class Progress:
    """The segments that an attempt has sent so far, durable or about to be.

    ``claim``: by which its sender proved that it holds the lease. ``expected`` is None until the progress
    was read from the store.
    """

    claim: Claim | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    expected: Expected | None = None
    next_index: int = 0
    next_offset: int = 0
    schema: CheckedSchema | None = None
    names: set[int] = field(default_factory=set)
    ordinals: LaunchOrdinals = field(default_factory=lambda: LaunchOrdinals(may_skip=True))
    pending: dict[int, PreparedSegment] = field(default_factory=dict)

    def is_of(self, claim: Claim) -> bool:
        """Whether the sender is the process that it was begun for."""
        mine = self.claim
        return (
            mine is not None
            and (mine.key, mine.agent_id, mine.session_id) == (claim.key, claim.agent_id, claim.session_id)
            and hmac.compare_digest(mine.secret, claim.secret)
        )

    def continues_with(self, upload: Upload) -> bool:
        """Whether the upload is the next segment, from the process that sent those before."""
        return self.expected is not None and upload.index == self.next_index and self.is_of(upload.claim)

    def load(self, run: Run, segments: Sequence[Segment], records: RecordStore) -> None:
        """Read the durable segments back. Raises DamagedSegmentError."""
        self.schema, self.names = None, set()
        self.ordinals = LaunchOrdinals(may_skip=Expected.of(run).may_skip)
        subject = str(None if self.claim is None else self.claim.key)
        for segment in segments:
            parts = records.staged(segment)
            content = decode_segment(parts.names, parts.launches, subject, self.schema)
            self.schema = content.checked_schema
            self.names.update(content.names)
            self.ordinals.add(content.batches, subject)
        self.next_index = len(segments)
        self.next_offset = segments[-1].end_bytes if segments else 0
        self.expected = Expected.of(run)

    def check(self, upload: Upload) -> None:
        """Check the next segment, and remember its launches and names.

        Raises LaunchTableError, and remembers nothing, if it must not follow what came before.
        """
        assert self.expected is not None, "load it first"
        subject = str(upload)
        largest = max(len(upload.names), len(upload.data))
        if largest > LARGEST_PART_BYTES or not 0 < upload.launches <= LARGEST_SEGMENT_LAUNCHES:
            raise LaunchTableError(
                subject,
                f"{upload.launches:,} launches in {largest:,} bytes are out of bounds",
                "send smaller ones",
            )
        names_hash = part_hash(upload.names) if upload.names else b""
        if part_hash(upload.data) != upload.launches_hash or names_hash != upload.names_hash:
            raise ChangedOnTheWayError(subject, "its bytes do not match the hash in its header")
        content = decode_segment(upload.names, upload.data, subject, self.schema)
        if content.launches != upload.launches:
            raise LaunchTableError(
                subject, f"it holds {content.launches:,} launches, but its header says {upload.launches:,}"
            )
        self._check_table(content, self.expected, subject)
        check_named(content, self.names, subject)
        self.ordinals.add(content.batches, subject)  # last, so that a refused segment leaves no trace
        self.names.update(content.names)
        self.schema = content.checked_schema

    def _check_table(self, content: SegmentContent, expected: Expected, subject: str) -> None:
        if self.schema is not None and content.checked_schema is not self.schema:
            raise LaunchTableError(subject, "its schema differs from that of the attempt's first segment")
        if content.metadata.origin != expected.origin:
            raise LaunchTableError(
                subject,
                f"its data is {content.metadata.origin} and the campaign's is {expected.origin}",
                "the two never mix: set 'synthetic:' in the campaign file to match the data",
            )
        if content.metadata.level != expected.level:
            raise LaunchTableError(
                subject,
                f"it holds a {content.metadata.level} recording, but a {expected.level} one is expected",
                f"name it under '{content.metadata.level}' in the campaign file",
            )
