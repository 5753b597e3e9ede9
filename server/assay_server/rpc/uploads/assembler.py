"""Joins the messages of a stream into segments; pure, one assembler per stream."""

from __future__ import annotations

from assay_core.records.upload import AnnouncedSegment, Part, SegmentChunk
from assay_sampling.errors import ParameterError
from assay_server.campaigns.ingest.upload import Upload
from assay_server.limits import DEFAULT_LIMITS
from assay_server.store.segments import LARGEST_PART_BYTES

_REMEDY = "run the same release of Assay on agent and server"


class _Pieces:
    """The pieces of a part so far; most parts come in one piece and are not copied."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.size += len(piece)

    def joined(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


class Assembler:
    """Takes the messages of a stream in order; raises ParameterError if they break the protocol."""

    def __init__(self, largest_chunk_bytes: int = DEFAULT_LIMITS.uploads.upload_chunk_bytes) -> None:
        self._largest_chunk_bytes = largest_chunk_bytes
        self._announced: AnnouncedSegment | None = None
        self._names = _Pieces()
        self._launches = _Pieces()

    @property
    def in_segment(self) -> bool:
        """Whether a segment has begun but is not complete."""
        return self._announced is not None

    def begin(self, announced: AnnouncedSegment) -> int:
        """Begin a segment; returns its size in bytes."""
        header = announced.header
        if self._announced is not None:
            raise _protocol(f"{self._announced}: the next segment begins before its end")
        for size in (header.names_bytes, header.launches_bytes):
            if not 0 <= size <= LARGEST_PART_BYTES:
                raise _protocol(f"{announced}: a part of {size:,} bytes is out of bounds")
        if header.launches_bytes == 0:
            raise _protocol(f"{announced}: it has no launches")
        self._announced = announced
        return header.names_bytes + header.launches_bytes

    def add(self, chunk: SegmentChunk) -> Upload | None:
        """Add a chunk; returns the segment once it is complete."""
        announced = self._announced
        if announced is None:
            raise _protocol("a chunk comes before the header of its segment")
        header = announced.header
        if not 0 < len(chunk.data) <= self._largest_chunk_bytes:
            raise _protocol(f"{announced}: a chunk of {len(chunk.data):,} bytes is out of bounds")
        names_due = self._names.size < header.names_bytes
        due = Part.NAMES if names_due else Part.LAUNCHES
        part, size = (
            (self._names, header.names_bytes) if names_due else (self._launches, header.launches_bytes)
        )
        if chunk.part != due or part.size + len(chunk.data) > size:
            raise _protocol(f"{announced}: its chunks do not match its header")
        part.add(chunk.data)
        return self._complete(announced) if self._launches.size == header.launches_bytes else None

    def _complete(self, announced: AnnouncedSegment) -> Upload:
        header = announced.header
        upload = Upload(
            claim=announced.claim,
            index=header.index,
            launches=header.launches,
            names_hash=header.names_hash if header.names_bytes else b"",
            launches_hash=header.launches_hash,
            names=self._names.joined(),
            data=self._launches.joined(),
        )
        self._announced, self._names, self._launches = None, _Pieces(), _Pieces()
        return upload


def _protocol(cause: str) -> ParameterError:
    return ParameterError("upload", cause, _REMEDY)
