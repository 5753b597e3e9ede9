"""Segments on their way to the server (see ingest.proto), bundles on their way there and to agents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from assay_core.records.attempt import AttemptKey, Claim
from assay_core.records.failure import Failure
from assay_core.records.wire import Record, Within, closed_set
from assay_protos import bundle_pb2, common_pb2, ingest_pb2

CHUNK_BYTES = 1 << 20
UPLOAD_MESSAGE = ingest_pb2.UploadRequest  # an upload is a stream of them


class Part(StrEnum):
    """The part of a segment that a chunk belongs to."""

    NAMES = "names"
    LAUNCHES = "launches"


_PARTS = closed_set(ingest_pb2.Part, Part)


@dataclass(frozen=True)
class SegmentHeader(Record[ingest_pb2.SegmentHeader], index="segment"):
    """A description of a segment: its place in the attempt, and the sizes and hashes of its parts.

    ``index`` counts from 0 within the attempt. Sizes and BLAKE2b-256 hashes are of the two compressed parts;
    ``names_bytes`` 0: no new names.
    """

    index: int
    launches: int
    names_bytes: int
    launches_bytes: int
    names_hash: bytes
    launches_hash: bytes


@dataclass(frozen=True)
class AnnouncedSegment(Record[ingest_pb2.SegmentHeader], claim=Within(), header=Within()):
    """The header that precedes the chunks of a segment: its sender and its description."""

    claim: Claim
    header: SegmentHeader

    def __str__(self) -> str:
        return f"segment {self.header.index} of {self.claim.key}"


@dataclass(frozen=True)
class SegmentChunk:
    """At most CHUNK_BYTES of a part of the segment announced last; ``part`` None: not named."""

    part: Part | None
    data: bytes


def upload_messages(
    announced: AnnouncedSegment, names: bytes | memoryview, launches: bytes | memoryview
) -> Iterator[ingest_pb2.UploadRequest]:
    """A segment as messages: header, names in chunks, launches in chunks."""
    yield ingest_pb2.UploadRequest(header=announced.to_proto())
    for part, data in ((Part.NAMES, names), (Part.LAUNCHES, launches)):
        for start in range(0, len(data), CHUNK_BYTES):
            chunk = ingest_pb2.SegmentChunk(part=_PARTS.to_proto(part))
            request = ingest_pb2.UploadRequest(chunk=chunk)  # which copies the chunk, twice
            # Of bytes, bytes() and a slice of all of them are the same object.
            request.chunk.data = bytes(data[start : start + CHUNK_BYTES])
            yield request


def upload_of(message: ingest_pb2.UploadRequest) -> AnnouncedSegment | SegmentChunk:
    """The header or chunk in a message of an upload; raises WireError for a key that is not valid."""
    if message.WhichOneof("message") == "header":
        return AnnouncedSegment.from_proto(message.header)
    part = _PARTS.optional_from_proto(message.chunk.part, "upload")
    return SegmentChunk(part, message.chunk.data)


@dataclass(frozen=True)
class SegmentAnswer:
    """The answer to a segment: durable (``duplicate``: already before), or its attempt is refused."""

    key: AttemptKey
    index: int
    duplicate: bool = False
    refusal: Failure | None = None

    def to_proto(self) -> ingest_pb2.UploadResponse:
        key = self.key.to_proto()
        if self.refusal is None:
            ack = ingest_pb2.SegmentAck(key=key, segment=self.index, duplicate=self.duplicate)
            return ingest_pb2.UploadResponse(ack=ack)
        refusal = ingest_pb2.SegmentRefusal(key=key, segment=self.index, failure=self.refusal.to_proto())
        return ingest_pb2.UploadResponse(refusal=refusal)

    @classmethod
    def from_proto(cls, message: ingest_pb2.UploadResponse) -> SegmentAnswer:
        """Raises WireError for a key that is not valid."""
        if message.WhichOneof("message") == "ack":
            ack = message.ack
            return cls(AttemptKey.from_proto(ack.key), ack.segment, ack.duplicate)
        refusal = message.refusal
        why = Failure.from_proto(refusal.failure)
        return cls(AttemptKey.from_proto(refusal.key), refusal.segment, refusal=why)


@dataclass(frozen=True)
class Bundle(Record[common_pb2.Bundle]):
    """The files of a workload: the SHA-256 of their archive, its bytes uncompressed, and how many files."""

    sha256: str
    bytes: int
    files: int


@dataclass(frozen=True)
class BundlesNamed(Record[bundle_pb2.FindMissingRequest]):
    """Bundles that a campaign will name."""

    bundles: tuple[Bundle, ...]


@dataclass(frozen=True)
class BundlePart(Record[bundle_pb2.BundlePart]):
    """The first ``bytes`` of a compressed bundle, which a server has, and their SHA-256."""

    sha256: str
    bytes: int
    part_sha256: str


@dataclass(frozen=True)
class BundlesMissing(Record[bundle_pb2.FindMissingResponse]):
    """Names of those that the caller must send, and what streams of theirs brought before they broke."""

    missing: tuple[str, ...]
    parts: tuple[BundlePart, ...] = ()


@dataclass(frozen=True)
class BundleChunk(Record[bundle_pb2.BundleChunk]):
    """A piece of a compressed bundle; the first one of a stream says which, and where the stream begins."""

    data: bytes
    bundle: Bundle | None = None
    offset: int = 0


@dataclass(frozen=True)
class StoredBundle(Record[bundle_pb2.StoredBundle]):
    """A bundle that is durable on the server; ``stored_bytes``: compressed."""

    bundle: Bundle
    stored_bytes: int


@dataclass(frozen=True)
class BundleWanted(Record[bundle_pb2.FetchBundleRequest], claim=Within()):
    """An agent's request for the bundle of a run that it holds the lease of."""

    claim: Claim
    sha256: str
