"""Segments in a bucket until their attempt is published, an object each.

    staging/<run_id>/slice-00000-attempt-0001/000003-9d5c...    its names and launches; the hash of both

To remove the segments of an attempt they are always listed: the server before a restart, or a request that
failed, may have made objects that nobody recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from assay_core.records.attempt import AttemptKey
from assay_server.store.model import Segment, SegmentParts
from assay_server.store.objects.bucket import Bucket
from assay_server.store.objects.refusals import MissingObjectError
from assay_server.store.records import DamagedSegmentError, checked_parts


def folder_of(key: AttemptKey) -> str:
    """Where the segments of an attempt are."""
    return f"staging/{key.run_id}/slice-{key.slice_index:05d}-attempt-{key.attempt:04d}"


class StagedSegments:
    """The segments below ``staging/`` of a bucket, which ``url`` names to people. Thread-safe."""

    def __init__(self, bucket: Bucket, url: str) -> None:
        self._bucket, self._url = bucket, url

    def stage(self, segments: Sequence[tuple[Segment, bytes, bytes]]) -> None:
        """Make segments with their names and launches durable. Raises StorageError."""
        self._bucket.put_all_new([(_name(segment), names + data) for segment, names, data in segments])

    def read(self, segment: Segment) -> SegmentParts:
        """The parts of a segment as they were acknowledged. Raises DamagedSegmentError, StorageError."""
        place = f"{self._url}/{_name(segment)}"
        try:
            data = self._bucket.get(_name(segment))
        except MissingObjectError:
            remedy = "check the bucket; the attempt is run again"
            raise DamagedSegmentError(place, "it is gone", remedy) from None
        end = segment.names_bytes + segment.launches_bytes
        parts = SegmentParts(data[: segment.names_bytes], data[segment.names_bytes : end])
        return checked_parts(segment, parts, place)

    def discard(self, key: AttemptKey) -> None:
        """Remove the segments of an attempt."""
        self._bucket.remove(self.names(key))

    def names(self, key: AttemptKey) -> list[str]:
        """All objects of an attempt."""
        return [each.name for each in self._bucket.listed(folder_of(key))]


def _name(segment: Segment) -> str:
    key = AttemptKey(segment.run_id, segment.slice, segment.attempt, 0)
    content = hashlib.blake2b(segment.names_hash + segment.launches_hash, digest_size=16).hexdigest()
    return f"{folder_of(key)}/{segment.index:06d}-{content}"
