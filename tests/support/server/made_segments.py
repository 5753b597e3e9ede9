"""Segments as an agent sends them, made in a few lines, honest or not."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from assay_core.records.attempt import AttemptKey, Claim
from assay_core.records.upload import SegmentHeader
from assay_sampling.launches.table import (
    NAMES_SCHEMA,
    CounterColumn,
    Level,
    Names,
    TableMetadata,
    launch_schema,
    make_batch,
    origin_of,
)
from assay_server.campaigns.ingest.content import AttemptContent
from assay_server.campaigns.ingest.segments import Upload
from assay_server.store.model import PublishedFile, Segment
from assay_server.store.record_store import RecordStore


@dataclass(frozen=True)
class MadeSegment:
    """A segment with its compressed parts."""

    index: int
    launches: int
    names: bytes
    data: bytes

    @property
    def names_hash(self) -> bytes:
        return part_hash(self.names) if self.names else b""

    @property
    def launches_hash(self) -> bytes:
        return part_hash(self.data)

    @property
    def header(self) -> SegmentHeader:
        sizes = len(self.names), len(self.data)
        return SegmentHeader(self.index, self.launches, *sizes, self.names_hash, self.launches_hash)

    def upload(self, claim: Claim) -> Upload:
        return Upload(claim, self.header, self.names, self.data)

    def record(self, key: AttemptKey, offset_bytes: int) -> Segment:
        return Segment(
            key.run_id,
            key.slice_index,
            key.attempt,
            self.index,
            offset_bytes,
            self.launches,
            len(self.names),
            len(self.data),
            self.names_hash,
            self.launches_hash,
        )


def part_hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


def packed(
    schema: pa.Schema, batches: Sequence[pa.RecordBatch], *, ipc_compression: str | None = None
) -> bytes:
    """An Arrow IPC stream as one zstd frame."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=ipc_compression)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(pa.compress(sink.getvalue(), codec="zstd", asbytes=True))


def packed_names(names: Names) -> bytes:
    return packed(NAMES_SCHEMA, names.to_table().to_batches())


def made_schema(level: Level = "light", *, synthetic: bool = False, counters: int = 0) -> pa.Schema:
    columns = [CounterColumn(f"counter_{i}", "1", f"metric_{i}", "hardware") for i in range(counters)]
    return launch_schema(TableMetadata(level=level, origin=origin_of(synthetic=synthetic)), columns)


def made_batch(
    schema: pa.Schema, first: int, launches: int, names: Names, *, kernels: int = 3
) -> pa.RecordBatch:
    """Launches ``first`` and following; kernel and duration follow from the ordinal."""
    ordinal = np.arange(first, first + launches, dtype=np.int64)
    identifiers = np.array([names.intern(f"kernel<{i}>(float*)") for i in range(kernels)], np.uint64)
    counters = {n: ordinal.astype(np.float64) for n in schema.names if n.startswith("counter_")}
    return make_batch(
        schema,
        {
            "process": np.zeros(launches, np.int32),
            "launch": ordinal,
            "kernel_id": identifiers[ordinal % kernels],
            "grid_x": 1 + ordinal % 5,
            "block_x": np.full(launches, 128, np.int32),
            "start_ns": 1000 * ordinal,
            "duration_ns": 10 + ordinal % 7,
            **counters,
        },
    )


def made_segments(
    launches: Sequence[int] = (100, 50),
    level: Level = "light",
    *,
    synthetic: bool = False,
    counters: int = 0,
) -> list[MadeSegment]:
    """Segments of so many launches each; the names come with the first."""
    schema = made_schema(level, synthetic=synthetic, counters=counters)
    names = Names()
    segments, first = [], 0
    for index, count in enumerate(launches):
        batch = made_batch(schema, first, count, names)
        part = packed_names(names) if index == 0 else b""
        segments.append(MadeSegment(index, count, part, packed(schema, [batch])))
        first += count
    return segments


def publish_in(records: RecordStore, key: AttemptKey, segments: Sequence[Segment]) -> PublishedFile:
    """Publish an attempt of a recording."""
    return records.publish(key, segments, AttemptContent(may_skip=True))
