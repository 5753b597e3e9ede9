"""Reads that somebody watches: bytes on disk, launches, and the time that is left."""

from __future__ import annotations

import gzip
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from assay_sampling.files.reading import PlainFile, read_blocks
from assay_sampling.files.watching import ReadProgress, ReadState, note_bytes, watched_reads
from assay_sampling.readers.inspection.recording import inspect_recording


def test_positions_are_those_on_disk_and_reach_the_end(tmp_path: Path) -> None:
    text = b"".join(b"%d,%d\n" % (i, i * 7919 % 10007) for i in range(50_000))
    plain, packed, zstd = tmp_path / "a.csv", tmp_path / "a.csv.gz", tmp_path / "a.csv.zst"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    zstd.write_bytes(pa.compress(text, codec="zstd", asbytes=True))
    for path in (plain, packed, zstd):
        with watched_reads() as progress:
            seen = []
            for _block in read_blocks(path, 4096):
                assert progress.now is not None
                seen.append(progress.now.read_bytes)
        assert progress.now is not None and progress.now.path == path
        assert seen == sorted(seen)
        assert progress.now.read_bytes == progress.now.total_bytes == path.stat().st_size


def test_unpacking_to_a_temporary_file_is_watched_by_the_name_that_the_user_gave(tmp_path: Path) -> None:
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(b"x" * 5_000_000))
    with watched_reads() as progress:
        PlainFile(packed).close()
    assert progress.now is not None
    assert (progress.now.path, progress.now.total_bytes) == (packed, packed.stat().st_size)


def test_launches_of_a_recording_are_counted(shared_data: Path) -> None:
    path = shared_data / "ncu" / "synthetic_v100_5000_raw_page.csv.gz"
    with watched_reads() as progress:
        found = inspect_recording(path)
    assert progress.now is not None
    assert progress.now.launches == found["launches"] == 5000


def test_a_database_says_how_many_launches_it_holds(shared_data: Path) -> None:
    path = next((shared_data / "nsys").glob("h100*.sqlite.gz"))
    with watched_reads() as progress:
        inspect_recording(path)
    assert progress.now is not None
    assert progress.now.launches == progress.now.total_launches == 4010


def test_a_reader_that_begins_again_begins_its_time_again() -> None:
    progress = ReadProgress()
    progress.bytes_read(Path("a"), 900, 1000)
    progress.launches_read(Path("a"), 7)
    progress.bytes_read(Path("a"), 100, 1000)
    assert progress.now is not None
    assert (progress.now.read_bytes, progress.now.launches) == (100, 0)


@pytest.mark.parametrize(
    ("state", "remaining_s"),
    [
        (ReadState(Path("a"), 10.0, read_bytes=250, total_bytes=1000), 15.0),
        (ReadState(Path("a"), 10.0, launches=4, total_launches=5), 1.25),
        # Launches are known exactly; the bytes belong to the unpacking before.
        (ReadState(Path("a"), 10.0, 1000, 1000, launches=1, total_launches=5), 20.0),
        (ReadState(Path("a"), 10.0), None),
        (ReadState(Path("a"), 10.0, read_bytes=0, total_bytes=1000), None),
        # The file grew while it was read.
        (ReadState(Path("a"), 10.0, read_bytes=1001, total_bytes=1000), None),
    ],
)
def test_the_time_that_is_left(state: ReadState, remaining_s: float | None) -> None:
    assert state.remaining_s(15.0) == remaining_s


def test_another_thread_and_no_watch_at_all_are_left_alone() -> None:
    with watched_reads() as progress:
        other = threading.Thread(target=note_bytes, args=(Path("a"), 1, 2))
        other.start()
        other.join()
        assert progress.now is None
    note_bytes(Path("a"), 1, 2)
    assert progress.now is None
