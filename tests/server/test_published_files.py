"""The file of a slice: the same bytes however its launches came, and nothing half-written."""

from __future__ import annotations

import errno
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay_core.records.attempt import AttemptKey
from assay_sampling.errors import StorageError
from assay_sampling.launches.parquet import LaunchWriter
from assay_server.store.model import PublishedFile, Segment
from assay_server.store.records import LocalRecordStore
from tests.support.server.made_segments import MadeSegment, made_segments, publish_in

KEY = AttemptKey("made-1.0000", 0, 1, 7)
SMALL = made_segments((100, 50, 7))


def staged(store: LocalRecordStore, segments: list[MadeSegment], key: AttemptKey = KEY) -> list[Segment]:
    records, offset = list[Segment](), 0
    for segment in segments:
        records.append(segment.record(key, offset))
        offset = records[-1].end_bytes
    store.stage([(record, made.names, made.data) for record, made in zip(records, segments, strict=True)])
    return records


def published(folder: Path, segments: list[MadeSegment]) -> PublishedFile:
    store = LocalRecordStore(folder)
    return publish_in(store, KEY, staged(store, segments))


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(launches=st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_the_bytes_do_not_depend_on_how_launches_were_cut_into_segments(
    tmp_path_factory: pytest.TempPathFactory, launches: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("records")
    whole = published(folder / "whole", made_segments((sum(launches),)))
    assert published(folder / "cut", made_segments(launches)) == whole


def test_two_attempts_of_a_slice_do_not_meet(tmp_path: Path) -> None:
    store, second = LocalRecordStore(tmp_path / "both"), AttemptKey(KEY.run_id, 0, 2, 8)
    staged(store, SMALL)
    records = staged(store, SMALL[:2], second)
    store.discard(KEY)
    assert publish_in(store, second, records) == published(tmp_path / "alone", SMALL[:2])
    assert files(tmp_path / "both" / "records") == ["made-1.0000/slice-00000.parquet"]


def test_a_disk_that_refuses_the_last_rows_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(writer: LaunchWriter) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = LocalRecordStore(tmp_path / "store")
    records = staged(store, SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(LaunchWriter, "write_rest", refuse)
        with pytest.raises(StorageError, match="no space left"):
            publish_in(store, KEY, records)
    assert files(tmp_path / "store" / "records") == []
    assert publish_in(store, KEY, records) == published(tmp_path / "other", SMALL)


def test_no_more_files_are_written_at_once_than_there_are_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(3)))
    store, writers, at_once = LocalRecordStore(tmp_path), set[int](), list[int]()
    keys = [AttemptKey(f"made-1.{number:04d}", 0, 1, 7) for number in range(8)]
    segments = [staged(store, SMALL, key) for key in keys]
    write = LaunchWriter.write

    def watched(writer: LaunchWriter, *arguments: Any, **keywords: Any) -> None:
        writers.add(id(writer))
        at_once.append(len(writers))
        time.sleep(0.02)
        write(writer, *arguments, **keywords)

    leave = LaunchWriter.write_rest

    def left(writer: LaunchWriter) -> None:
        leave(writer)
        writers.discard(id(writer))

    monkeypatch.setattr(LaunchWriter, "write", watched)
    monkeypatch.setattr(LaunchWriter, "write_rest", left)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(partial(publish_in, store), keys, segments))
    assert max(at_once) == 3
