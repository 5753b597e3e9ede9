"""A segment on its way into an attempt, the answer to it, and the checks that need nothing but its bytes.

These are made as it arrives. Most of its content is checked when its attempt is published
(:mod:`assay_server.campaigns.ingest.content`). The schema of an attempt's first segment is read at once:
data of the wrong kind is refused before hours of it are measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from assay_core.records.attempt import AttemptKey, Claim
from assay_core.records.failure import Failure, failure
from assay_sampling.errors import LaunchTableError
from assay_sampling.launches.table import TableMetadata
from assay_sampling.running.failures import FailureClass
from assay_server.store.segments import (
    LARGEST_PART_BYTES,
    LARGEST_SEGMENT_LAUNCHES,
    leading_metadata,
    part_hash,
)


@dataclass(frozen=True)
class Upload:
    """A segment as received: the fields of its header and its two compressed parts.

    ``follows``: the segment before it came over the same stream, acknowledged or not.
    """

    claim: Claim
    index: int
    launches: int
    names_hash: bytes
    launches_hash: bytes
    names: bytes
    data: bytes
    follows: bool = False

    @property
    def key(self) -> AttemptKey:
        return self.claim.key

    @property
    def hashes(self) -> tuple[bytes, bytes]:
        return self.names_hash, self.launches_hash

    def __str__(self) -> str:
        return f"{self.key}, segment {self.index}"


@dataclass(frozen=True)
class Answer:
    """The answer to an upload: durable (``duplicate``: it already was), or refused for good."""

    duplicate: bool = False
    refusal: Failure | None = None


@dataclass(frozen=True, eq=False)
class Arrival:
    """A segment that arrived.

    ``metadata``: of the launch table, in the first segment of an attempt. ``fault``: why the bytes cannot
    become the attempt's data.
    """

    upload: Upload
    metadata: TableMetadata | None = None
    fault: Failure | None = None

    @classmethod
    def of(cls, upload: Upload) -> Self:
        fault = _size_fault(upload) or _hash_fault(upload)
        if fault is not None or upload.index > 0:
            return cls(upload, fault=fault)
        try:
            return cls(upload, leading_metadata(upload.data, str(upload)))
        except LaunchTableError as error:
            return cls(upload, fault=refusal(str(upload), error.cause, error.remedy))


def refusal(subject: str, cause: str, remedy: str = "", *, retryable: bool = False) -> Failure:
    """The failure of an attempt whose data the server refuses."""
    return failure(FailureClass.SERVER_REFUSED, subject, cause, remedy, retryable=retryable)


def _size_fault(upload: Upload) -> Failure | None:
    largest = max(len(upload.names), len(upload.data))
    if largest <= LARGEST_PART_BYTES and 0 < upload.launches <= LARGEST_SEGMENT_LAUNCHES:
        return None
    cause = f"{upload.launches:,} launches in {largest:,} bytes are out of bounds"
    return refusal(str(upload), cause, "send smaller ones")


def _hash_fault(upload: Upload) -> Failure | None:
    """The bytes changed in transit: another attempt may succeed."""
    names_hash = part_hash(upload.names) if upload.names else b""
    if (names_hash, part_hash(upload.data)) == upload.hashes:
        return None
    return refusal(str(upload), "its bytes do not match the hash in its header", retryable=True)
