"""Durable segments in SQL, and the parts of small ones."""

from __future__ import annotations

from collections.abc import Sequence

from assay_core.records.attempt import AttemptKey
from assay_server.store import statements, tables
from assay_server.store.model import HeldSegment, Segment
from assay_server.store.parts.known import KnownRows
from assay_server.store.rows import held
from assay_server.store.values.fields import Row, shallow


class SegmentRows(KnownRows):
    """Durable segments in SQL, and the parts of small ones."""

    def segment(self, key: AttemptKey, index: int) -> Segment | None:
        return self.by_key(tables.segments, (key.run_id, key.slice_index, key.attempt, index), segment_of)

    def segments(self, key: AttemptKey) -> list[Segment]:
        given = {"run_id": key.run_id, "slice": key.slice_index, "attempt": key.attempt}
        return [segment_of(row) for row in self.driver.rows(statements.segments_of(), given)]

    def add_segments(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self.driver.write(statements.insert_into(tables.segments), shallow(segment))

    def held_segments(self, key: AttemptKey) -> dict[int, HeldSegment]:
        """The parts of an attempt's segments that are kept here, by the segments' indexes."""
        rows = self.driver.rows(held.of_attempt(), held.key_of(key))
        return {row["index"]: HeldSegment(row["names"], row["launches"]) for row in rows}

    def hold_segment(self, segment: Segment, parts: HeldSegment) -> None:
        """Keep the parts of a segment that was added, until its attempt has ended."""
        self.driver.write(statements.insert_into(tables.held_segments), held.values_of(segment, parts))

    def release_segments(self, key: AttemptKey) -> None:
        """Remove what is held for an attempt."""
        self.driver.write(held.releasing(), held.key_of(key))

    def release_ended(self) -> None:
        """Remove what is held for attempts that have ended."""
        held.release_ended(self.connection)


def segment_of(row: Row) -> Segment:
    """The segment of a row."""
    return Segment(**row)
