"""Files that are written while their segments arrive: equal to those written at the end, and never needed."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay_core.files.launch_file import LaunchFileUnderWay
from assay_core.records.attempt import AttemptKey
from assay_sampling.errors import StorageError
from assay_sampling.wire.packing import packed as packed_columns
from assay_server.store.model import HeldSegment, Segment
from assay_server.store.parquet_writer import AheadLimits
from assay_server.store.record_store import Held, KnownFiles, PublishedFile
from assay_server.store.records import LocalRecordStore
from assay_server.store.segments import decode_segment
from tests.support.server.made_segments import MadeSegment, made_segments, packed
from tests.support.server.server_support import eventually

KEY = AttemptKey("made-1.0000", 0, 1, 7)
GROUPS_AND_A_HALF = made_segments((65_536, 65_536, 65_536, 10))
SMALL = made_segments((100, 50, 7))


def bring(store: LocalRecordStore, segments: list[MadeSegment], key: AttemptKey, *, ahead: bool) -> list:
    """Stage segments as the ingest does; returns their records."""
    records, offset = [], 0
    for segment in segments:
        record = segment.record(key, offset)
        offset = record.end_bytes
        store.stage([(record, segment.names, segment.data)])
        if ahead:
            store.write_ahead(record, decode_segment(segment.names, segment.data, "made"))
        records.append(record)
    return records


def in_packed_columns(segment: MadeSegment) -> MadeSegment:
    content = decode_segment(segment.names, segment.data, "made")
    [batch] = [packed_columns(each.records) for each in content.launch_batches()]
    return replace(segment, data=packed(batch.schema, [batch]))


def published_at_the_end(folder: Path, segments: list[MadeSegment]) -> PublishedFile:
    store = LocalRecordStore(folder)
    return store.publish(KEY, bring(store, segments, KEY, ahead=False))


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def nothing_is_read_back(_segment: Segment, _held: Held) -> HeldSegment:
    raise AssertionError("a staged segment was read")


@pytest.mark.parametrize("segments", [SMALL, GROUPS_AND_A_HALF], ids=["small", "row groups"])
def test_a_file_written_ahead_has_the_bytes_of_one_written_from_staged_segments(
    tmp_path: Path, segments: list[MadeSegment]
):
    expected = published_at_the_end(tmp_path / "end", segments)
    store = LocalRecordStore(tmp_path / "ahead", staged=nothing_is_read_back)
    records = bring(store, segments, KEY, ahead=True)

    assert store.publish(KEY, records) == expected
    assert files(tmp_path / "ahead" / "records") == ["made-1.0000/slice-00000.parquet"]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("segments", [SMALL, GROUPS_AND_A_HALF], ids=["small", "row groups"])
def test_a_file_has_the_same_bytes_if_agents_pack_the_columns_of_some_segments(
    tmp_path: Path, segments: list[MadeSegment], *, ahead: bool
):
    expected = published_at_the_end(tmp_path / "plain", segments)
    store = LocalRecordStore(tmp_path / "packed")
    some = [in_packed_columns(each) if each.index != 1 else each for each in segments]
    assert some[0].data != segments[0].data
    assert store.publish(KEY, bring(store, some, KEY, ahead=ahead)) == expected


def test_memory_of_the_last_rows_is_given_to_nobody_before_the_file_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The writer could keep rows that fill no row group until the end, in the memory they were copied to."""
    expected = published_at_the_end(tmp_path / "end", SMALL)
    store = LocalRecordStore(tmp_path / "ahead")
    records = bring(store, SMALL, KEY, ahead=True)
    other, real = AttemptKey("made-1.0001", 0, 1, 8), LaunchFileUnderWay.end
    first, *others = made_segments((300, *[157] * 7))  # so many pieces that they are copied
    of_other_launches = [replace(each, index=n) for n, each in enumerate(others)]
    of_other_launches[0] = replace(of_other_launches[0], names=first.names)

    def end(file: LaunchFileUnderWay, named: Callable[[str], Path]) -> str:
        bring(store, of_other_launches, other, ahead=True)
        return real(file, named)

    monkeypatch.setattr(LaunchFileUnderWay, "end", end)
    assert store.publish(KEY, records) == expected


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    launches=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    forgotten_after=st.integers(0, 5),
    held_bytes=st.sampled_from([1, 5_000, 1 << 20]),
)
def test_however_launches_are_cut_and_whatever_is_dropped_the_bytes_are_equal(
    tmp_path_factory: pytest.TempPathFactory, launches: list[int], forgotten_after: int, held_bytes: int
):
    folder = tmp_path_factory.mktemp("records")
    expected = published_at_the_end(folder / "end", made_segments((sum(launches),)))
    store = LocalRecordStore(folder / "ahead", AheadLimits(held_bytes=held_bytes, attempts=1))
    segments = made_segments(launches)
    records = bring(store, segments, KEY, ahead=False)
    for index, (record, segment) in enumerate(zip(records, segments, strict=True)):
        store.write_ahead(record, decode_segment(segment.names, segment.data, "made"))
        if index + 1 == forgotten_after:
            store.forget_ahead(KEY)

    assert store.publish(KEY, records) == expected


def test_segments_that_are_not_those_that_were_acknowledged_are_not_published(tmp_path: Path):
    """A segment that was checked but not stored is sent again, maybe with other launches."""
    expected = published_at_the_end(tmp_path / "end", SMALL)
    store = LocalRecordStore(tmp_path / "ahead")
    others = made_segments((100, 50, 9))
    bring(store, others, KEY, ahead=True)
    records = bring(store, SMALL, KEY, ahead=False)

    assert store.publish(KEY, records) == expected


def noting(folder: Path, limits: AheadLimits, read: list[str]) -> LocalRecordStore:
    """A store that notes the runs of which a staged segment is read."""

    def staged(segment: Segment, held: Held) -> HeldSegment:
        read.append(segment.run_id)
        return store.staged(segment, held)

    store = LocalRecordStore(folder, limits, staged=staged)
    return store


def test_the_attempts_that_were_silent_longest_make_room(tmp_path: Path):
    read: list[str] = []
    store = noting(tmp_path, AheadLimits(attempts=2), read)
    keys = [AttemptKey(f"made-1.{n:04d}", 0, 1, n) for n in range(3)]
    records = [bring(store, SMALL, key, ahead=True) for key in keys]

    assert len({store.publish(key, r).content_hash for key, r in zip(keys, records, strict=True)}) == 1
    assert set(read) == {"made-1.0000"}


@pytest.mark.parametrize(
    ("limits", "made_anew"),
    [
        (AheadLimits(files=1), {"made-1.0000", "made-1.0002"}),  # 0001 is small and stays
        (AheadLimits(attempts=3), {"made-1.0000"}),
        (AheadLimits(held_bytes=0), {"made-1.0000", "made-1.0001", "made-1.0002", "made-1.0003"}),
        (AheadLimits(), set()),
    ],
)
def test_small_attempts_take_no_place_among_those_with_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: AheadLimits, made_anew: set[str]
):
    monkeypatch.setattr("assay_server.store.parquet_writer.ROW_GROUP_ROWS", 150)
    read: list[str] = []
    store = noting(tmp_path, limits, read)
    keys = [AttemptKey(f"made-1.{n:04d}", 0, 1, n) for n in range(4)]
    records = [bring(store, SMALL[:1] if n == 1 else SMALL, key, ahead=True) for n, key in enumerate(keys)]

    for key, segments in zip(keys, records, strict=True):
        store.publish(key, segments)

    assert set(read) == made_anew


def test_two_attempts_of_a_slice_do_not_meet(tmp_path: Path):
    store = LocalRecordStore(tmp_path / "both")
    second = AttemptKey(KEY.run_id, 0, 2, 8)
    bring(store, GROUPS_AND_A_HALF, KEY, ahead=True)
    records = bring(store, made_segments((65_536,) * 3), second, ahead=True)
    store.discard(KEY)

    published = store.publish(second, records)

    expected = published_at_the_end(tmp_path / "end", made_segments((65_536,) * 3))
    assert published.content_hash == expected.content_hash
    assert files(tmp_path / "both" / "records") == ["made-1.0000/slice-00000.parquet"]


def test_what_a_killed_server_wrote_ahead_is_swept(tmp_path: Path):
    store = LocalRecordStore(tmp_path)
    bring(store, GROUPS_AND_A_HALF[:3], KEY, ahead=True)
    eventually(lambda: any(".tmp-" in name for name in files(tmp_path / "records")), "a file ahead")

    moved = LocalRecordStore(tmp_path).sweep(KnownFiles([KEY], [], [], [], lambda *_: True))

    assert moved is None
    assert files(tmp_path / "records") == []
    assert len(files(tmp_path / "staging")) == 1
    store.discard(KEY)


def test_a_full_disk_under_the_file_ahead_costs_nothing_but_the_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_arguments: object, **_keywords: object) -> None:
        raise OSError(28, "No space left on device")

    expected = published_at_the_end(tmp_path / "end", GROUPS_AND_A_HALF)
    store = LocalRecordStore(tmp_path / "ahead")
    with monkeypatch.context() as patch:
        patch.setattr("assay_server.store.parquet_writer.LaunchFileUnderWay", full)
        records = bring(store, GROUPS_AND_A_HALF, KEY, ahead=True)

    assert store.publish(KEY, records) == expected


def test_a_disk_that_refuses_the_last_rows_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = LocalRecordStore(tmp_path / "ahead")
    records = bring(store, SMALL, KEY, ahead=True)

    def refuse(file: LaunchFileUnderWay) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LaunchFileUnderWay, "write_rest", refuse)
    with pytest.raises(StorageError, match="no space left"):
        store.publish(KEY, records)
    assert files(tmp_path / "ahead" / "records") == []
    monkeypatch.undo()
    assert store.publish(KEY, records) == published_at_the_end(tmp_path / "end", SMALL)
