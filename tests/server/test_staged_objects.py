"""Segments in a bucket: an object each, found and removed after a takeover."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore

from assay_core.records.attempt import AttemptKey
from assay_sampling.errors import StorageError
from assay_server.places import RecordsPlace
from assay_server.store.model import Segment, SegmentParts
from assay_server.store.objects.bucket import Bucket, FoundObject
from assay_server.store.objects.store import ObjectRecordStore
from assay_server.store.records import DamagedSegmentError
from tests.support.server.made_segments import MadeSegment, made_segments, publish_in

KEY = AttemptKey("made-1.0000", 0, 1, 9)
OTHER = AttemptKey("made-1.0001", 2, 3, 10)
MADE = made_segments((10, 20, 30, 40))


class CountedBucket(Bucket):
    """A bucket that notes what it is asked."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store, "b")
        self.asked: list[str] = []
        self.refused = ""  # a part of the names that are not made

    def put_new(self, name: str, data: bytes) -> None:
        self.asked.append("put")
        if self.refused and self.refused in name:
            raise StorageError("b", "the object store cannot serve now (5xx)", "see its logs")
        super().put_new(name, data)

    def get(self, name: str) -> bytes:
        self.asked.append("get")
        return super().get(name)

    def listed(self, prefix: str) -> Iterator[FoundObject]:
        self.asked.append("list")
        return super().listed(prefix)

    def remove(self, names: Sequence[str]) -> None:
        self.asked += ["remove"] * bool(names)
        super().remove(names)


@pytest.fixture
def objects() -> MemoryStore:
    return MemoryStore()


def server(objects: MemoryStore, folder: Path) -> tuple[ObjectRecordStore, CountedBucket]:
    bucket = CountedBucket(objects)
    return ObjectRecordStore(bucket, RecordsPlace("s3://b", cache=folder)), bucket


def records_of(key: AttemptKey, made: Sequence[MadeSegment] = MADE) -> list[Segment]:
    found: list[Segment] = []
    for each in made:
        found.append(each.record(key, found[-1].end_bytes if found else 0))
    return found


def staged(records: ObjectRecordStore, key: AttemptKey, which: slice = slice(None)) -> list[Segment]:
    segments = records_of(key)
    pairs = list(zip(segments, MADE, strict=True))[which]
    records.stage([(segment, made.names, made.data) for segment, made in pairs])
    return segments


def names(objects: MemoryStore, top: str = "staging") -> list[str]:
    return sorted(each["path"] for page in obstore.list(objects, top) for each in page)


def test_each_segment_is_an_object_that_every_server_reads(objects: MemoryStore, tmp_path: Path) -> None:
    first, asked = server(objects, tmp_path / "first")
    segments = staged(first, KEY)
    assert asked.asked == ["put"] * 4 and len(names(objects)) == 4
    second, _ = server(objects, tmp_path / "second")
    for each, made in zip(segments, MADE, strict=True):
        assert first.staged(each) == second.staged(each) == SegmentParts(made.names, made.data)


def test_a_publication_removes_its_segments_by_one_list_and_one_removal(
    objects: MemoryStore, tmp_path: Path
) -> None:
    records, asked = server(objects, tmp_path)
    segments = staged(records, KEY, slice(0, 3))
    staged(records, KEY, slice(3, 4))
    asked.asked.clear()
    publish_in(records, KEY, segments)
    records.discard(KEY)
    assert asked.asked == [*["get"] * len(segments), "put", "list", "remove"] and not names(objects)


def test_what_a_server_sent_before_it_was_killed_is_removed_after_its_restart(
    objects: MemoryStore, tmp_path: Path
) -> None:
    killed, _ = server(objects, tmp_path / "killed")
    staged(killed, KEY, slice(0, 3))  # and no commit
    restarted, _ = server(objects, tmp_path / "restarted")
    segments = staged(restarted, KEY, slice(0, 2))
    staged(restarted, KEY, slice(2, 4))
    publish_in(restarted, KEY, segments)
    restarted.discard(KEY)
    assert not names(objects)


def test_what_was_made_beside_an_object_that_was_refused_is_removed(
    objects: MemoryStore, tmp_path: Path
) -> None:
    records, bucket = server(objects, tmp_path)
    mine, others = records_of(KEY), records_of(OTHER)
    both = [(mine[0], 0), (mine[1], 1), (mine[2], 2), (others[0], 0)]
    bucket.refused = OTHER.run_id
    with pytest.raises(StorageError, match="5xx"):
        records.stage([(segment, MADE[index].names, MADE[index].data) for segment, index in both])
    bucket.refused = ""
    segments = staged(records, KEY)
    publish_in(records, KEY, segments)
    records.discard(KEY)
    assert not names(objects)


def test_the_segment_of_another_attempt_of_that_number_is_passed_over(
    objects: MemoryStore, tmp_path: Path
) -> None:
    """Such a one may be left from before a restore of an older database."""
    records, _ = server(objects, tmp_path)
    segments = staged(records, KEY)
    obstore.put(objects, f"{names(objects)[0].rpartition('-')[0]}-{'0' * 32}", b"y" * 5000)
    assert records.staged(segments[0]).launches == MADE[0].data
    with pytest.raises(DamagedSegmentError, match="it is gone"):
        records.staged(replace(segments[0], launches_hash=bytes(16)))


@pytest.mark.parametrize("publishes", [True, False])
def test_what_another_server_made_is_removed_too(
    objects: MemoryStore, tmp_path: Path, *, publishes: bool
) -> None:
    first, _ = server(objects, tmp_path / "first")
    second, asked = server(objects, tmp_path / "second")
    staged(first, KEY, slice(0, 2))
    segments = staged(second, KEY, slice(2, 4))
    if publishes:
        publish_in(second, KEY, segments)
    second.discard(KEY)
    assert "list" in asked.asked and not names(objects)


@pytest.mark.parametrize("left", [0, 100])
def test_an_object_that_was_cut_is_damaged_and_one_that_is_gone_says_so(
    objects: MemoryStore, tmp_path: Path, left: int
) -> None:
    records, _ = server(objects, tmp_path)
    segments = staged(records, KEY)
    name = names(objects)[3]
    obstore.put(objects, name, b"x" * left)
    with pytest.raises(DamagedSegmentError, match="has changed"):
        records.staged(segments[3])
    obstore.delete(objects, name)
    with pytest.raises(DamagedSegmentError, match="it is gone"):
        records.staged(segments[3])
    assert records.staged(segments[2])
