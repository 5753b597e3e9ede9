"""Durable segments in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from assay_core.records.attempt import AttemptKey
from assay_server.store import statements, tables
from assay_server.store.column_values import Row, shallow
from assay_server.store.model import Segment
from assay_server.store.parts.known import KnownRows


class SegmentRows(KnownRows):
    """Durable segments in SQL."""

    def segment(self, key: AttemptKey, index: int) -> Segment | None:
        return self.by_key(tables.segments, (key.run_id, key.slice_index, key.attempt, index), segment_of)

    def segments(self, key: AttemptKey) -> list[Segment]:
        given = {"run_id": key.run_id, "slice": key.slice_index, "attempt": key.attempt}
        return [segment_of(row) for row in self.driver.rows(statements.segments_of(), given)]

    def add_segments(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self.driver.write(statements.insert_into(tables.segments), shallow(segment))


def segment_of(row: Row) -> Segment:
    """The segment of a row."""
    return Segment(**row)
