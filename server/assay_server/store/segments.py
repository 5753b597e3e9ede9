"""Segments from outside: unpacked within hard bounds and checked before use.

A segment is a zstd frame around an Arrow IPC stream. Both can lie about sizes: the frame is unpacked
through a stream that stops at a cap, and IPC messages with compressed bodies (a second bomb inside the
first) are refused before Arrow, which would unpack either, reads a body. Source: docs/limits.md, "Uploads".
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from assay_sampling.errors import LaunchTableError
from assay_sampling.launches.checks import check_batch, check_schema, referenced_ids
from assay_sampling.launches.table import NAMES_SCHEMA, LaunchBatch, Names, TableMetadata

LARGEST_SEGMENT_LAUNCHES = 131_072
LARGEST_PART_BYTES = 24 << 20  # of a compressed part; agents limit an unpacked part to 8 MiB
LARGEST_UNPACKED_BYTES = 24 << 20  # of an unpacked part
_LARGEST_SCHEMA_BYTES = 4 << 20  # unpacked; 1,000 counters take 0.22 MiB
_MOST_KEPT_NAMES_BYTES = 128 << 10  # compressed, of a part that is kept unpacked: 3,000 kernels take 30 KiB
_REMEDY = (
    "run the same release of Assay on agent and server; if it persists, report it to the authors of Assay"
)


@dataclass(frozen=True)
class SegmentContent:
    """A checked segment: its schema with the metadata, batches of launches, and its new names."""

    schema: pa.Schema
    metadata: TableMetadata
    batches: tuple[pa.RecordBatch, ...]
    names: dict[int, str]

    @property
    def launches(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    def launch_batches(self) -> Iterator[LaunchBatch]:
        """The batches, the first with all of the segment's names."""
        for position, batch in enumerate(self.batches):
            yield LaunchBatch(batch, self.names if position == 0 else {})


def part_hash(data: bytes) -> bytes:
    """BLAKE2b-256 of a compressed part, as in segment headers."""
    return hashlib.blake2b(data, digest_size=32).digest()


def decode_segment(names: bytes, launches: bytes, subject: str) -> SegmentContent:
    """Unpack and check a single segment; raises LaunchTableError with ``subject`` in front."""
    with _as_damage(subject):
        schema, batches = _read_stream(launches)
        metadata = check_schema(schema)
        for batch in batches:
            check_batch(batch)
        return SegmentContent(schema, metadata, batches, decode_names(names) if names else {})


def leading_metadata(launches: bytes, subject: str) -> TableMetadata:
    """The metadata of a segment's launch table, unpacking no more than its beginning.

    Raises LaunchTableError with ``subject`` in front.
    """
    with (
        _as_damage(subject),
        pa.input_stream(pa.BufferReader(launches), compression="zstd") as stream,
        pa.ipc.open_stream(stream.read(_LARGEST_SCHEMA_BYTES)) as reader,
    ):
        return check_schema(reader.schema)


def decode_names(names: bytes) -> dict[int, str]:
    """The names of a compressed names part; raises LaunchTableError."""
    # Runs of one workload send the same names.
    return dict(_names_again(names)) if len(names) <= _MOST_KEPT_NAMES_BYTES else _decoded_names(names)


def _decoded_names(names: bytes) -> dict[int, str]:
    with _as_damage("table of names"):
        schema, batches = _read_stream(names)
        if not schema.equals(NAMES_SCHEMA):
            raise LaunchTableError("table of names", "its columns are not id and text", _REMEDY)
        table = pa.Table.from_batches(batches, schema=schema)
        table.validate(full=True)
        if any(column.null_count for column in table.columns):
            raise LaunchTableError("table of names", "it has nulls", _REMEDY)
        return dict(Names.from_table(table).items())


_names_again = functools.lru_cache(maxsize=16)(_decoded_names)


def check_named(content: SegmentContent, named_ids: Collection[int], subject: str) -> None:
    """Check that each id in the segment is in ``named_ids`` or among its own names."""
    for batch in content.batches:
        nameless = set(referenced_ids(batch).tolist()).difference(named_ids, content.names)
        if nameless:
            raise LaunchTableError(
                subject, f"it uses the id {min(nameless):#018x}, which has no name", _REMEDY
            )


_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def _declared_bytes(frame: bytes) -> int | None:
    """What a zstd frame says it unpacks to; None if it does not say, or is no frame.

    Source: RFC 8878, section 3.1.1.1, "Frame_Header".
    """
    if frame[:4] != _ZSTD_MAGIC or len(frame) < _LONGEST_FRAME_HEADER:
        return None
    descriptor = frame[4]
    one_segment = descriptor >> 5 & 1
    size_bytes = (one_segment, 2, 4, 8)[descriptor >> 6]
    if not size_bytes:
        return None
    start = 5 + (1 - one_segment) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(frame[start : start + size_bytes], "little")
    return size + 256 if size_bytes == 2 else size


_LONGEST_FRAME_HEADER = 18


def _read_stream(data: bytes) -> tuple[pa.Schema, tuple[pa.RecordBatch, ...]]:
    stream = unpacked(data)
    _check_messages(stream)
    with pa.ipc.open_stream(stream) as reader:
        return reader.schema, tuple(reader)


def unpacked(data: bytes) -> pa.Buffer:
    """What a zstd frame unpacks to; raises LaunchTableError for too much, and Arrow's errors for damage."""
    declared = _declared_bytes(data)
    if declared is not None and 0 < declared <= LARGEST_UNPACKED_BYTES:
        # Twice as fast as a stream, and as safe: zstd refuses a frame that holds more than this buffer does.
        # What it refuses goes through the stream, which says why.
        with contextlib.suppress(OSError, pa.ArrowException):
            return pa.decompress(data, decompressed_size=declared, codec="zstd")
    return unpacked_as_stream(data)


def unpacked_as_stream(data: bytes) -> pa.Buffer:
    """As :func:`unpacked`, for any frame: one that declares no size, or a wrong one."""
    # zstd itself refuses frames that need a window of more than 128 MiB.
    with pa.input_stream(pa.BufferReader(data), compression="zstd") as stream:
        content = pa.py_buffer(stream.read(LARGEST_UNPACKED_BYTES + 1))
    if content.size > LARGEST_UNPACKED_BYTES:
        cause = f"it unpacks to more than {LARGEST_UNPACKED_BYTES:,} bytes"
        raise LaunchTableError("segment", cause, "send smaller segments")
    return content


def _check_messages(stream: pa.Buffer) -> None:
    """Check for one schema, then only record batches with uncompressed bodies."""
    for position, message in enumerate(pa.ipc.MessageReader.open_stream(stream)):
        due = "schema" if position == 0 else "record batch"
        if message.type != due:
            raise LaunchTableError("segment", f"it has a {message.type} in place of a {due}", _REMEDY)
        if due == "record batch" and _is_compressed(message.metadata):
            raise LaunchTableError("segment", "the bodies of its IPC messages are compressed", _REMEDY)


def _is_compressed(metadata: pa.Buffer) -> bool:
    """Whether the RecordBatch in an IPC message's flatbuffer has the field ``compression``.

    Source: Arrow format, Message.fbs: ``header`` is field 2 of Message, ``compression`` field 3 of
    RecordBatch.
    """
    data = memoryview(metadata)
    message = struct.unpack_from("<I", data, 0)[0]
    header = message + _field_offset(data, message, 2)
    batch = header + struct.unpack_from("<I", data, header)[0]
    return _field_offset(data, batch, 3) != 0


def _field_offset(data: memoryview, table: int, field: int) -> int:
    """Offset of a field from the start of its flatbuffer table; 0: absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    position = 4 + 2 * field
    return int(struct.unpack_from("<H", data, vtable + position)[0]) if position < size else 0


@contextmanager
def _as_damage(subject: str) -> Iterator[None]:
    try:
        yield
    except LaunchTableError as error:
        raise LaunchTableError(subject, error.cause, error.remedy or _REMEDY) from error
    # Arrow reports damage as any of these; struct.error comes from flatbuffer offsets that point outside.
    except (pa.ArrowException, OSError, ValueError, KeyError, struct.error) as error:
        raise LaunchTableError(subject, f"it is damaged ({str(error).splitlines()[0]})", _REMEDY) from error
