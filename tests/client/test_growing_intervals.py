"""An interval log that is read while the simulator still writes it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_client.simulating.watching import GrowingIntervals, LaunchProgress
from tests.support.sampling.accel_sim_logs import sample

SAMPLES = [sample(500 * k, 7000 * k, 3) for k in range(1, 6)]


def test_progress_is_that_of_the_last_whole_sample(tmp_path: Path) -> None:
    path = tmp_path / "intervals.gz"
    growing = GrowingIntervals(path)
    assert growing.look() == LaunchProgress()
    path.write_bytes(b"".join(gzip.compress(text.encode()) for text in SAMPLES[:2]))
    assert growing.look() == LaunchProgress(6, 14.0)
    assert growing.look() == LaunchProgress(6, 14.0)


@given(st.lists(st.integers(0, 4000), max_size=12))
@settings(max_examples=50, deadline=None)
def test_wherever_the_file_ends_between_two_looks_nothing_is_lost_or_counted_twice(
    tmp_path_factory: pytest.TempPathFactory, ends: list[int]
) -> None:
    whole = b"".join(gzip.compress(text.encode()) for text in SAMPLES)
    path = tmp_path_factory.mktemp("growing") / "intervals.gz"
    growing = GrowingIntervals(path)
    for end in sorted(ends):
        path.write_bytes(whole[:end])
        growing.look()
    path.write_bytes(whole)
    assert growing.look() == LaunchProgress(15, 14.0)


def test_a_file_that_is_not_compressed_shows_no_progress(tmp_path: Path) -> None:
    path = tmp_path / "intervals.gz"
    path.write_text("not a log")
    assert GrowingIntervals(path).look() == LaunchProgress()
