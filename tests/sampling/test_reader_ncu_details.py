from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import InputError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.readers.ncu import details_page as ncu_details
from assay_sampling.readers.opening import open_recording, read_launches
from tests.support.sampling.ncu_details_pages import METRICS, details_page, launch_rows
from tests.support.sampling.reader_files import kernel_names, raw_line, sentences, write


def _read(tmp_path: Path, page: str) -> Launches:
    return read_launches(write(tmp_path / "details.csv", page))


def _error(tmp_path: Path, page: str) -> InputError:
    with pytest.raises(InputError) as caught:
        _read(tmp_path, page)
    return caught.value


_FACTORS = {"cycle": 1.0, "us": 1e3, "ms": 1e6, "Ghz": 1e9, "%": 1.0, "": 1.0, "inst": 1.0}
_COLUMNS = {
    "Elapsed Cycles": "cycles_gpc_max",
    "SM Active Cycles": "cycles_sm_active_avg",
    "Duration": "profiled_duration_ns",
    "SM Frequency": "clock_gpc_hz",
    "L1/TEX Hit Rate": "l1_hit_percent",
    "L2 Hit Rate": "l2_hit_percent",
    "Executed Instructions": "instructions",
    "Avg. Active Threads Per Warp": "threads_per_instruction",
    "Achieved Occupancy": "occupancy_percent",
    "Waves Per SM": "waves_per_sm",
    "Grid Size": "thread_blocks",
}


@pytest.mark.shared_data
def test_every_value_of_a_real_page_is_what_the_csv_module_reads(shared_data: Path) -> None:
    path = shared_data / "ncu/a100_climate_details_page.csv.gz"
    launches = read_launches(path)
    expected: dict[str, list[float]] = {}
    for row in csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode())):
        column = _COLUMNS.get(row["Metric Name"])
        if column:
            value = float(row["Metric Value"].replace(",", "")) * _FACTORS[row["Metric Unit"]]
            expected.setdefault(column, []).append(value)
    assert set(launches.counters) == set(_COLUMNS.values())
    for column, values in expected.items():
        np.testing.assert_allclose(launches.column(column), values, rtol=1e-15)
    assert launches.column("cycles_gpc_max").tolist() == [63779, 63232, 61544, 26800, 50201, 35178198]
    assert launches.column("profiled_duration_ns").tolist() == [56060, 55550, 54080, 23710, 44190, 30860000]
    assert launches.column("registers_per_thread").tolist() == [59, 60, 60, 48, 48, 255]
    assert launches.column("grid_x").tolist() == [108, 108, 108, 216, 216, 108]
    assert launches.column("stream").tolist() == [13] * 6
    assert kernel_names(launches)[0].startswith("set_microphysics_tendency_cache")
    (device,) = launches.metadata.devices
    assert (launches.metadata.level, device.compute_capability) == ("detailed", "8.0")
    assert "rounded" in sentences(launches)[0]


def test_labels_names_or_both_mean_the_same(tmp_path: Path) -> None:
    names = {
        "Elapsed Cycles": "gpc__cycles_elapsed.max",
        "Duration": "gpu__time_duration.sum",
        "SM Frequency": "gpc__cycles_elapsed.avg.per_second",
        "DRAM Throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "Executed Instructions": "smsp__inst_executed.sum",
        "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
        "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
        "Registers Per Thread": "launch__registers_per_thread",
        "Function Cache Configuration": "launch__func_cache_config",
    }
    by_name = tuple((names[label], *rest) for label, *rest in METRICS)
    by_both = tuple((f"{label} ({names[label]})", *rest) for label, *rest in METRICS)
    labels, *others = (
        _read(tmp_path, details_page(launch_rows(0, rows), launch_rows(1, rows)))
        for rows in (METRICS, by_name, by_both)
    )
    assert all(other.table.equals(labels.table) for other in others)
    assert labels.column("shared_memory_bytes").tolist() == [1036, 1036]
    assert labels.column("dynamic_shared_memory_bytes").tolist() == [16, 16]
    assert labels.column("instructions").tolist() == [14103936.0] * 2
    # The page's "DRAM Throughput" is another metric than ours of that name.
    assert "dram_throughput_percent" not in labels.counters


def test_units_differ_from_launch_to_launch(tmp_path: Path) -> None:
    slow = tuple((n, "ms", "1.5") if n == "Duration" else (n, u, v) for n, u, v in METRICS)
    launches = _read(tmp_path, details_page(launch_rows(0), launch_rows(1, slow)))
    assert launches.column("profiled_duration_ns").tolist() == [56060.0, 1500000.0]


@given(launches=st.integers(1, 12), block_bytes=st.integers(1, 3000), max_launches=st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_blocks_and_batches_do_not_matter(
    tmp_path_factory: pytest.TempPathFactory, launches: int, block_bytes: int, max_launches: int
) -> None:
    path = write(tmp_path_factory.mktemp("d") / "x", details_page(*(launch_rows(i) for i in range(launches))))
    before = ncu_details.BLOCK_BYTES
    ncu_details.BLOCK_BYTES = block_bytes
    try:
        with open_recording(path) as recording:
            batches = [batch.records for batch in recording.batches(max_launches)]
    finally:
        ncu_details.BLOCK_BYTES = before
    assert [i for batch in batches for i in batch.column("launch").to_pylist()] == list(range(launches))
    assert {v for batch in batches for v in batch.column("cycles_gpc_max").to_pylist()} == {1234.0}
    assert max(batch.num_rows for batch in batches) <= max_launches


def test_a_file_cut_anywhere_is_refused_or_ends_with_a_whole_launch(tmp_path: Path) -> None:
    content = details_page(*(launch_rows(i) for i in range(3)))
    whole = _read(tmp_path, content).table
    read = 0
    for point in range(len(details_page()) + 1, len(content) - 1, 41):
        try:
            launches = _read(tmp_path, content[:point])
        except InputError as error:
            assert error.line is not None or "holds no launches" in error.cause
            continue
        read += 1
        # One launch alone cannot tell what it lacks; no value is ever another one.
        shared = [name for name in launches.table.column_names if name in whole.column_names]
        if len(launches) > 1:
            assert launches.table.select(shared).equals(whole.slice(0, len(launches)).select(shared))
    assert read < 5


def test_a_last_launch_with_fewer_counters_is_a_cut(tmp_path: Path) -> None:
    counters = METRICS[:5]
    page = details_page(*(launch_rows(i, counters) for i in range(2)), launch_rows(2, counters[:-1]))
    error = _error(tmp_path, page)
    assert "smsp__inst_executed.sum" in error.cause and error.line == 16


def test_rows_of_one_launch_must_stand_together(tmp_path: Path) -> None:
    first, second = launch_rows(0), launch_rows(1)
    error = _error(tmp_path, details_page([*first[:3], *second, *first[3:]]))
    assert (error.field, "ID 0" in error.cause) == ("ID", True)


@pytest.mark.parametrize(
    ("old", "new", "field", "cause"),
    [
        ("1,234", "1,23", "Metric Value", "not a number"),
        ("1,234", "many", "Metric Value", "not a number"),
        ('"us"', '"fortnight"', "Metric Unit", "fortnight"),
        ("(1, 2, 1)", "1x2", "Grid Size", "three whole numbers"),
        ('"0","7"', '"0","seven"', "Process ID", "not a process ID"),
    ],
)
def test_a_bad_cell_is_named(tmp_path: Path, old: str, new: str, field: str, cause: str) -> None:
    error = _error(tmp_path, details_page(launch_rows(0), launch_rows(1)).replace(old, new))
    assert error.field == field and cause in error.cause and error.line is not None


def test_one_launch_never_has_two_values_or_two_names(tmp_path: Path) -> None:
    twice = (*METRICS, ("Elapsed Cycles", "cycle", "1,234"))
    assert len(_read(tmp_path, details_page(launch_rows(0, twice)))) == 1
    other = (*METRICS, ("Elapsed Cycles", "cycle", "1,235"))
    assert "appears twice" in _error(tmp_path, details_page(launch_rows(0, other))).cause
    rows = launch_rows(0)
    renamed = rows[-1].replace("void k0", "void k1")
    error = _error(tmp_path, details_page([*rows[:-1], renamed]))
    assert error.field == "Kernel Name" and error.line is not None


def test_values_that_were_not_measured_are_null_and_counted(tmp_path: Path) -> None:
    without = tuple((n, u, "n/a") if n == "Elapsed Cycles" else (n, u, v) for n, u, v in METRICS)
    launches = _read(tmp_path, details_page(launch_rows(0, without), launch_rows(1)))
    assert launches.table["cycles_gpc_max"].to_pylist() == [None, 1234.0]
    assert "cycles_gpc_max was not measured for 1 launch, the first is line 2" in sentences(launches)


def test_text_of_the_profiler_and_of_the_application_is_skipped(tmp_path: Path) -> None:
    preamble = "".join(f'==PROF== Profiling "k" - {i}: 0%....100% - 5 passes\n' for i in range(3))
    page = details_page(launch_rows(0), ["hello\n"], launch_rows(1), preamble=preamble)
    launches = _read(tmp_path, page)
    assert len(launches) == 2
    assert any("announced 3 launches, but the file holds 2" in note for note in sentences(launches))
    assert any(note.startswith("1 line that is not a launch was skipped") for note in sentences(launches))


def test_pages_without_shapes_in_their_identity(tmp_path: Path) -> None:
    fields = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context",
              "Stream", "Section Name", "Metric Name", "Metric Unit", "Metric Value",
              "Rule Name", "Rule Type", "Rule Description")  # fmt: skip
    metrics = [("Elapsed Cycles", "cycle", "9"), ("Grid Size", "", "1,024"), ("Block Size", "", "256")]
    lines = [
        raw_line(["0", "7", "app", "h", "k", "now", "1", "7", "S", name, unit, value, ""])
        for name, unit, value in metrics
    ]
    launches = _read(tmp_path, raw_line(fields) + "".join(lines))
    shape = [launches.table[name].to_pylist() for name in ("grid_x", "grid_y", "block_x", "thread_blocks")]
    assert shape == [[1024], [None], [256], [1024.0]]


def test_a_header_alone_holds_no_launches(tmp_path: Path) -> None:
    assert "holds no launches" in _error(tmp_path, details_page()).cause
