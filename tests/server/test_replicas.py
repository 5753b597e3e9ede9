"""A server that takes over from another on one database and one folder of records: nothing is undone."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assay_core.files import durable
from assay_core.records.attempt import AttemptKey
from assay_sampling.errors import StorageError
from assay_sampling.readers.opening import open_recording
from assay_server.identity.authority import new_authority
from assay_server.identity.identified import require_same_authority
from assay_server.store.sqlite import SqliteStore
from tests.support.server.ingest_box import Box
from tests.support.server.made_segments import made_segments, publish_in


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path, shared=True)
    yield made
    made.close()


@pytest.fixture
def other(box: Box) -> Iterator[Box]:
    made = box.beside()
    yield made
    made.ingest.close()


def published(box: Box) -> list[int]:
    """The launches of the only published slice."""
    with box.coordinator.snapshot() as store:
        [piece] = [each for each in store.published_slices() if each.file]
    path = box.state / "records" / piece.file
    assert path.stat().st_size == piece.file_bytes
    with open_recording(path) as recording:
        return [value for batch in recording.batches() for value in batch.records["launch"].to_pylist()]


def test_an_unwanted_publication_takes_only_its_own_file_away(box: Box) -> None:
    records, segments = box.coordinator.records, made_segments((10,))
    box.send(segments[0])
    with box.coordinator.snapshot() as store:
        staged = store.segments(box.key)
    wanted = publish_in(records, box.key, staged)
    unwanted = publish_in(records, key_with(box, 99), staged)
    assert wanted.file != unwanted.file and wanted.content_hash == unwanted.content_hash
    records.withdraw(unwanted.file)
    assert (box.state / "records" / wanted.file).exists()
    assert not (box.state / "records" / unwanted.file).exists()


def key_with(box: Box, token: int) -> AttemptKey:
    """The key of the box's attempt under another token."""
    return replace(box.key, token=token)


@pytest.mark.parametrize("path_of_segments", [(0, 1, 0), (0, 1, 1, 0, 0), (1, 0, 1, 0)])
def test_a_stream_may_change_servers_and_come_back(
    box: Box, other: Box, path_of_segments: tuple[int, ...]
) -> None:
    """The first server refused it as restored from a backup: it knew nothing of what the other had taken."""
    servers, sizes = (box, other), tuple(range(30, 30 + len(path_of_segments)))
    for segment, place in zip(made_segments(sizes), path_of_segments, strict=True):
        assert servers[place].send(segment).refusal is None
    assert servers[path_of_segments[0]].finish(len(sizes), sum(sizes))
    assert published(box) == list(range(sum(sizes)))


def test_a_segment_that_both_servers_get_is_stored_once(box: Box, other: Box) -> None:
    first, second = made_segments((10, 20))
    assert not box.send(first).duplicate
    assert other.send(first).duplicate
    assert not other.send(second).duplicate
    assert box.send(second).duplicate
    assert box.finish(2, 30)
    assert published(box) == list(range(30))


def test_servers_with_equal_process_numbers_have_temporary_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers often have one number: half of all publications failed."""
    path = tmp_path / "slice-00000.parquet"
    mine = durable.temporary_of(path)
    monkeypatch.setattr(durable, "_BY_CHANCE", "0123456789ab")  # another process, of the same number
    assert durable.temporary_of(path) != mine


def test_a_first_write_to_a_staged_file_never_empties_what_another_server_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "slice-00000-attempt-0001"
    monkeypatch.setattr(Path, "exists", lambda self: False)  # both looked before either made it
    durable.write_pieces(path, [(0, b"first")])
    durable.write_pieces(path, [(5, b"second")])
    assert path.read_bytes() == b"firstsecond"


def test_a_server_with_another_authority_is_refused(tmp_path: Path) -> None:
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    ours, theirs = (new_authority(name, day, now) for name in ("ours", "theirs"))
    store = SqliteStore(tmp_path / "metadata.sqlite")
    require_same_authority(store, None)
    require_same_authority(store, ours)
    require_same_authority(store, ours)
    for wrong, said in ((theirs, "another one"), (None, "it has no certificate authority")):
        with pytest.raises(StorageError, match=said) as caught:
            require_same_authority(store, wrong)
        assert "cp -a" in (caught.value.remedy or "")
    store.close()
