"""Columns on disk: the same sums to the last bit, nothing left behind, bounds that hold."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay_sampling.engines import blockwise, columns
from assay_sampling.engines.columns import Column, ColumnWriter, Place
from assay_sampling.engines.scratch import Scratch, sweep
from assay_sampling.errors import RefusedError

_SEVERAL = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    scratch = Scratch(tmp_path)
    yield Place(scratch, 256 << 20)
    scratch.close()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (columns, blockwise):
        monkeypatch.setattr(module, "BLOCK_ROWS", 1000)


def on_disk(place: Place, values: np.ndarray) -> Column:
    with ColumnWriter(place, values.dtype) as writer:
        writer.write(values)
        return writer.column()


@given(
    count=st.integers(0, 20_000), spread=st.floats(0, 40), seed=st.integers(0, 99), groups=st.integers(1, 300)
)
@_SEVERAL
def test_sums_on_disk_are_those_in_memory_to_the_last_bit(
    place: Place, count: int, spread: float, seed: int, groups: int
) -> None:
    rng = np.random.default_rng(seed)
    values = np.exp(rng.normal(0, spread, count))
    labels = rng.integers(0, groups, count).astype(np.uint16)
    kept, of = on_disk(place, values), on_disk(place, labels)
    assert blockwise.total(kept) == values.sum()
    assert np.array_equal(blockwise.counts_by(of), np.bincount(labels))
    assert np.array_equal(blockwise.sums_by(of, kept, groups), np.bincount(labels, values, groups))
    mean = rng.random(groups)
    squares = blockwise.sums_by(of, kept, groups, lambda part, group: np.square(part - mean[group]))
    assert np.array_equal(squares, np.bincount(labels, np.square(values - mean[labels]), groups))


@given(
    table=st.sets(st.integers(-50, 50)).map(sorted),
    values=st.lists(st.integers(-60, 60)),
    beyond=st.booleans(),
)
@_SEVERAL
def test_places_in_a_large_table_are_those_of_searchsorted(
    table: list[int], values: list[int], beyond: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blockwise, "_BEYOND_CACHE", 0 if beyond else 1 << 17)
    ascending, sought = np.array(table, np.int64), np.array(values, np.int64)
    found = blockwise.places_in(ascending, sought)
    assert found.dtype == np.int64
    assert found.tolist() == np.searchsorted(ascending, sought).tolist()


@given(rows=st.sets(st.integers(0, 4999)), count=st.integers(1, 5000))
@_SEVERAL
def test_what_is_not_finite_is_found_in_any_block(place: Place, rows: set[int], count: int) -> None:
    values = np.ones(count)
    bad = sorted(row for row in rows if row < count)
    values[bad] = np.nan
    kept = on_disk(place, values)
    assert blockwise.first_not_finite(kept) == (bad[0] if bad else None)
    assert blockwise.count_where(kept, np.isnan) == len(bad)


def test_what_is_computed_from_a_column_is_in_memory(place: Place) -> None:
    kept = on_disk(place, np.arange(10))
    assert isinstance(kept, Column)
    for made in (kept + 1, kept[2:4], kept[np.array([1, 2])], np.sort(kept)):
        assert columns.place_of(made) is None or made is kept or not isinstance(made + 0, Column)
    assert kept[3] == 3
    assert blockwise.relabelled(kept, np.arange(10)[::-1].copy()).dtype == np.int32


def test_a_column_leaves_no_file_and_gives_its_space_back(place: Place) -> None:
    kept = on_disk(place, np.arange(100_000))
    assert place.scratch.used_bytes == 800_000
    assert [path.name for path in place.scratch.folder.iterdir()] == ["held"]
    del kept
    gc.collect()
    assert place.scratch.used_bytes == 0


def test_a_column_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, most_bytes=1000)
    with pytest.raises(RefusedError, match="scratch space"):
        on_disk(Place(scratch, 1 << 28), np.arange(1000))


def test_the_folder_of_a_killed_process_is_swept_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from assay_sampling.engines.scratch import Scratch;"
        f"held = Scratch(Path({str(tmp_path)!r})); (held.folder / 'spill').write_text('x');"
        "print(held.folder, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        sweep(tmp_path)
        assert folder.is_dir()
        process.send_signal(signal.SIGKILL)
    assert folder.is_dir()
    mine = Scratch(tmp_path)
    assert not folder.exists()
    assert mine.folder.is_dir()
    assert (mine.folder.stat().st_mode & 0o777) == 0o700
    mine.close()
    assert list(tmp_path.iterdir()) == []


def test_another_users_folder_and_a_link_are_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.mkdir()
    (target / "held").touch()
    (tmp_path / "assay-scratch-link").symlink_to(target)
    sweep(tmp_path)
    assert (target / "held").exists()
