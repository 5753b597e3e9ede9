"""Segments: launches in pieces for sending, compressed and hashed once, kept as one file each.

A segment is one self-contained Arrow IPC stream of at most 65,536 launches and 8 MiB, compressed as one zstd
frame. The names that it is the first of its attempt to use come before it, in the same form. A segment file
is a fixed header followed by the two compressed parts, exactly as they are sent.

Source: docs/limits.md, "Uploads".
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from assay_core.records.upload import SegmentHeader
from assay_sampling.arrays import identifiers_from, texts_from
from assay_sampling.errors import LaunchTableError, StorageError
from assay_sampling.launches.checks import referenced_ids
from assay_sampling.launches.table import NAMES_SCHEMA, LaunchBatch

MAX_LAUNCHES = 65_536
MAX_STREAM_BYTES = 8 << 20
MAX_NAMES_BYTES = 6 << 20
_MAX_BATCHES = 8
_MAX_PENDING = 256
_COMPRESSION_LEVEL = -1  # unpacked in two thirds of the time of level 1, for a sixth more bytes
_STREAM_BYTES_PER_COLUMN = 256
_STREAM_BYTES = 4096

_HEADER = struct.Struct("<8sHqqqq32s32s")
_CHECK_BYTES = 8
_HEADER_BYTES = _HEADER.size + _CHECK_BYTES
_MAGIC = b"ASSAYSEG"
_VERSION = 1


class DamagedSegmentError(StorageError):
    """A segment's file is not as it was written, or it is gone: its slice must be measured again."""

    def __init__(self, path: Path, cause: str) -> None:
        self.path = path
        super().__init__(f"spooled segment {path}", cause, "check the disk; the slice is measured again")


def file_bytes(header: SegmentHeader) -> int:
    """The size of a segment's file."""
    return _HEADER_BYTES + header.names_bytes + header.launches_bytes


@dataclass(frozen=True)
class EncodedSegment:
    """A segment as it is kept and sent; ``names`` is empty if the segment has no new names."""

    header: SegmentHeader
    names: bytes | memoryview
    launches: bytes | memoryview

    def file_parts(self) -> list[bytes | memoryview]:
        h = self.header
        packed = _HEADER.pack(
            _MAGIC,
            _VERSION,
            h.index,
            h.launches,
            h.names_bytes,
            h.launches_bytes,
            h.names_hash,
            h.launches_hash,
        )
        return [packed + _check(packed), self.names, self.launches]


@dataclass
class SegmentContent:
    """Launches and new names of the segment that is being filled."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    launches: int = 0
    names_bytes: int = 0


def launches_per_segment(schema: pa.Schema) -> int:
    """The most launches of ``schema`` that fit one segment; raises LaunchTableError if none fits."""
    row_bits = sum(item.type.bit_width + 1 for item in schema)
    overhead = schema.serialize().size + _MAX_BATCHES * (
        len(schema) * _STREAM_BYTES_PER_COLUMN + _STREAM_BYTES
    )
    rows = (MAX_STREAM_BYTES - overhead) * 8 // row_bits
    if rows < 1:
        raise LaunchTableError(
            "launch table", f"{len(schema):,} columns do not fit a segment", "measure fewer counters"
        )
    return int(min(rows, MAX_LAUNCHES))


class Segmenter:
    """Re-chunks batches of any size into segments, each name in the first segment that needs it."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.capacity = launches_per_segment(schema)
        self._named: set[int] = set()
        self._content = SegmentContent()

    def add(self, batch: LaunchBatch) -> Iterator[SegmentContent]:
        """Take a batch; yields the segments that it completes. Raises LaunchTableError for another schema."""
        if not batch.records.schema.equals(self.schema, check_metadata=True):
            raise LaunchTableError("launch table", "its schema changed in the middle of a run")
        fresh = {i: text for i, text in batch.new_names.items() if i not in self._named}
        for records, names in _split_by_names(batch.records, fresh):
            yield from self._add(records, names)

    def _add(self, records: pa.RecordBatch, fresh: Mapping[int, str]) -> Iterator[SegmentContent]:
        names_bytes = _text_bytes(fresh)
        if self._content.launches and self._content.names_bytes + names_bytes > MAX_NAMES_BYTES:
            yield self._take()
        self._content.names.update(fresh)
        self._content.names_bytes += names_bytes
        self._named.update(fresh)
        offset = 0
        while offset < records.num_rows:
            piece = records.slice(offset, self.capacity - self._content.launches)
            offset += piece.num_rows
            self._content.batches.append(piece)
            self._content.launches += piece.num_rows
            if self._content.launches == self.capacity:
                yield self._take()
        if len(self._content.batches) >= _MAX_PENDING:
            self._content.batches = [pa.concat_batches(self._content.batches)]

    def _take(self) -> SegmentContent:
        content, self._content = self._content, SegmentContent()
        return content

    def flush(self) -> SegmentContent | None:
        """The launches since the last segment, as a segment; None without launches."""
        return self._take() if self._content.launches else None


def _text_bytes(names: Mapping[int, str]) -> int:
    return sum(16 + len(text.encode()) for text in names.values())


def _split_by_names(
    records: pa.RecordBatch, fresh: dict[int, str]
) -> Iterator[tuple[pa.RecordBatch, dict[int, str]]]:
    """Halve a batch until the new names of each part fit a segment's part of names."""
    if _text_bytes(fresh) <= MAX_NAMES_BYTES:
        yield records, fresh
        return
    if records.num_rows < 2:
        raise LaunchTableError(
            "launch table", f"the names of one launch are longer than {MAX_NAMES_BYTES:,} bytes"
        )
    half = records.num_rows // 2
    first_half = records.slice(0, half)
    used = set(referenced_ids(first_half).tolist())
    yield from _split_by_names(first_half, {i: text for i, text in fresh.items() if i in used})
    yield from _split_by_names(records.slice(half), {i: text for i, text in fresh.items() if i not in used})


class SegmentEncoder:
    """Compresses the content of segments, in one buffer that is reused."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._space = pa.allocate_buffer(MAX_STREAM_BYTES)
        self._codec = pa.Codec("zstd", compression_level=_COMPRESSION_LEVEL)

    def encode(self, segment: int, content: SegmentContent) -> EncodedSegment:
        """Compress and hash the segment with that number."""
        launches = self._launches_part(content)
        names = self._names_part(content.names)
        header = SegmentHeader(
            index=segment,
            launches=content.launches,
            names_bytes=len(names),
            launches_bytes=len(launches),
            names_hash=_hash(names) if names else b"",
            launches_hash=_hash(launches),
        )
        return EncodedSegment(header, names, launches)

    def _launches_part(self, content: SegmentContent) -> bytes:
        batches = content.batches
        if len(batches) > _MAX_BATCHES:
            batches = [pa.concat_batches(batches)]
        sink = pa.FixedSizeBufferWriter(self._space)
        with pa.ipc.new_stream(sink, self._schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return bytes(self._codec.compress(self._space.slice(0, sink.tell()), asbytes=True))

    def _names_part(self, names: Mapping[int, str]) -> bytes:
        if not names:
            return b""
        sink = pa.BufferOutputStream()
        columns = [identifiers_from(list(names)), texts_from(list(names.values()))]
        with pa.ipc.new_stream(sink, NAMES_SCHEMA) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=NAMES_SCHEMA))
        return bytes(self._codec.compress(sink.getvalue(), asbytes=True))


def _hash(part: bytes | memoryview) -> bytes:
    return hashlib.blake2b(part, digest_size=32).digest()


def read_segment_header(path: Path) -> SegmentHeader:
    """The header of a segment file whose size fits it; raises DamagedSegmentError for any other file."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER_BYTES)
        size = path.stat().st_size
    except OSError as error:
        raise _damaged(path, f"it cannot be read ({error.strerror})") from error
    header = _parse(path, head)
    if size != file_bytes(header):
        raise _damaged(path, f"it has {size:,} bytes instead of {file_bytes(header):,}")
    return header


def read_segment(path: Path) -> EncodedSegment:
    """A segment from its file, hashes checked; raises DamagedSegmentError if it is damaged or gone."""
    try:
        with path.open("rb", buffering=0) as file:
            header = _parse(path, file.read(_HEADER_BYTES))
            # Apart, so that each is sent as it was read, without a copy.
            names = file.read(header.names_bytes) if header.names_bytes else b""
            launches = file.read()
    except OSError as error:
        raise _damaged(path, f"it cannot be read ({error.strerror})") from error
    if (_hash(names) if names else b"") != header.names_hash or _hash(launches) != header.launches_hash:
        raise _damaged(path, "its content does not match the stored hash")
    return EncodedSegment(header, names, launches)


def _check(packed: bytes) -> bytes:
    return hashlib.blake2b(packed, digest_size=_CHECK_BYTES).digest()


def _parse(path: Path, head: bytes) -> SegmentHeader:
    packed, check = head[: _HEADER.size], head[_HEADER.size :]
    if len(head) < _HEADER_BYTES or check != _check(packed):
        raise _damaged(path, "its header is cut off or damaged")
    magic, version, segment, launches, names_bytes, launches_bytes, names_hash, launches_hash = (
        _HEADER.unpack(packed)
    )
    if magic != _MAGIC or version != _VERSION:
        raise _damaged(path, "it is not a segment in this version of the spool")
    return SegmentHeader(
        segment, launches, names_bytes, launches_bytes, names_hash if names_bytes else b"", launches_hash
    )


def _damaged(path: Path, cause: str) -> DamagedSegmentError:
    return DamagedSegmentError(path, cause)
