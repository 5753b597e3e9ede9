"""The benchmarks' recordings hold what they say, and read as what was made."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from assay_sampling.launches.table import counter_columns
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import read_launches
from tests.bench.made_recordings import DEVICES, kernel_name, made_launches, write_ncu, write_nsys


def test_the_launches_of_an_export_are_those_that_were_made(tmp_path: Path) -> None:
    made = made_launches(2_000)
    write_nsys(tmp_path / "report.sqlite", 2_000)
    launches = read_launches(tmp_path / "report.sqlite", ReadOptions(synthetic=True))
    assert not launches.notes
    by_process = np.argsort(made.device != made.device[0], kind="stable")
    for column, values in {
        "duration_ns": made.duration_ns,
        "start_ns": made.start_ns,
        "grid_x": made.grid,
        "block_x": made.block,
        "device": made.device,
        "registers_per_thread": made.registers,
        "shared_memory_bytes": made.shared_bytes,
    }.items():
        assert launches.column(column).tolist() == values[by_process].tolist()
    names = [launches.names[identifier] for identifier in launches.column("kernel_id").tolist()]
    assert names == [kernel_name(kernel) for kernel in made.kernel[by_process].tolist()]


def test_the_launches_of_a_raw_page_are_those_that_were_made(tmp_path: Path) -> None:
    made = made_launches(500)
    write_ncu(tmp_path / "page.csv", 500)
    launches = read_launches(tmp_path / "page.csv")
    assert [note.code for note in launches.notes] == []
    for column, values in {
        "profiled_duration_ns": made.duration_ns,
        "cycles_gpc_avg": np.round(made.duration_ns * 1.41, 2),
        "grid_x": made.grid,
        "block_x": made.block,
        "device": made.device,
        "registers_per_thread": made.registers,
        "shared_memory_bytes": made.shared_bytes,
    }.items():
        assert launches.column(column).tolist() == values.tolist()
    names = [launches.names[identifier] for identifier in launches.column("kernel_id").tolist()]
    assert names == [kernel_name(kernel) for kernel in made.kernel.tolist()]
    assert len(counter_columns(launches.table.schema)) == 15


def test_kernels_grids_and_durations_vary_on_two_devices() -> None:
    made = made_launches(100_000)
    assert len(np.unique(made.kernel)) > 2_000
    assert len(np.unique(made.grid)) > 200
    assert len(np.unique(made.duration_ns)) > 40_000
    assert np.unique(made.device).tolist() == list(range(DEVICES))
    for device in range(DEVICES):
        start = made.start_ns[made.device == device]
        assert (np.diff(start) >= made.duration_ns[made.device == device][:-1]).all()
