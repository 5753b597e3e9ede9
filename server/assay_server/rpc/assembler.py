"""Segments put together from the messages they travel in; pure, one for each stream."""

from __future__ import annotations

from assay_protos import ingest_pb2
from assay_sampling.errors import ParameterError
from assay_server.campaigns.ingest import Upload
from assay_server.limits import DEFAULT_LIMITS
from assay_server.rpc import convert
from assay_server.store.segments import LARGEST_PART_BYTES

_REMEDY = "run the same release of Assay on agent and server"


class Assembler:
    """Takes the messages of a stream in order; raises ParameterError where they break the protocol."""

    def __init__(self, largest_chunk_bytes: int = DEFAULT_LIMITS.uploads.upload_chunk_bytes) -> None:
        self._largest_chunk_bytes = largest_chunk_bytes
        self._header: ingest_pb2.SegmentHeader | None = None
        self._names = bytearray()
        self._launches = bytearray()

    @property
    def in_segment(self) -> bool:
        """Whether a segment has begun that is not complete."""
        return self._header is not None

    def begin(self, header: ingest_pb2.SegmentHeader) -> int:
        """Begin a segment; returns the bytes it will take."""
        if self._header is not None:
            raise _protocol(f"{_name(self._header)}: the next one begins before its end")
        for size in (header.names_bytes, header.launches_bytes):
            if not 0 <= size <= LARGEST_PART_BYTES:
                raise _protocol(f"{_name(header)}: a part of {size:,} bytes is out of bounds")
        if header.launches_bytes == 0:
            raise _protocol(f"{_name(header)}: it has no launches")
        self._header = header
        return header.names_bytes + header.launches_bytes

    def add(self, chunk: ingest_pb2.SegmentChunk) -> Upload | None:
        """Add a chunk; returns the segment when it is complete."""
        header = self._header
        if header is None:
            raise _protocol("a chunk comes before the header of its segment")
        if not 0 < len(chunk.data) <= self._largest_chunk_bytes:
            raise _protocol(f"{_name(header)}: a chunk of {len(chunk.data):,} bytes is out of bounds")
        names_due = len(self._names) < header.names_bytes
        due = ingest_pb2.PART_NAMES if names_due else ingest_pb2.PART_LAUNCHES
        part, size = (
            (self._names, header.names_bytes) if names_due else (self._launches, header.launches_bytes)
        )
        if chunk.part != due or len(part) + len(chunk.data) > size:
            raise _protocol(f"{_name(header)}: its chunks are not those that its header announced")
        part += chunk.data
        return self._complete(header) if len(self._launches) == header.launches_bytes else None

    def _complete(self, header: ingest_pb2.SegmentHeader) -> Upload:
        upload = Upload(
            claim=convert.claim_of(header, header.agent_id, header.session_id),
            index=header.segment,
            launches=header.launches,
            names_hash=header.names_hash if header.names_bytes else b"",
            launches_hash=header.launches_hash,
            names=bytes(self._names),
            data=bytes(self._launches),
        )
        self._header, self._names, self._launches = None, bytearray(), bytearray()
        return upload


def _name(header: ingest_pb2.SegmentHeader) -> str:
    return f"segment {header.segment} of {convert.key_of(header.key)}"


def _protocol(cause: str) -> ParameterError:
    return ParameterError("upload", cause, _REMEDY)
