from __future__ import annotations

import shutil
import sqlite3
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import InputError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.notes.registry import make_note
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.inspection.recording import inspect_recording
from assay_sampling.readers.nsys.database import KERNEL, Database
from assay_sampling.readers.nsys.order import integers, launch_order
from assay_sampling.readers.opening import open_recording, read_launches
from tests.bench.made_recordings import write_nsys
from tests.support.sampling.reader_files import (
    PID,
    TID,
    kernel_names,
    nsys_call,
    nsys_export,
    nsys_kernel,
    nsys_range,
    sentences,
    texts,
    write,
    write_gzip,
)

_REAL = "nsys/a100_nerf_1106_kernels.sqlite"

# The join as the specification of the export gives it: a subquery for each kernel, slow and plain.
_PLAIN_QUERY = """
SELECT r.start AS launch_ns, k.start, k.end - k.start, k.deviceId, k.streamId,
  (SELECT value FROM StringIds WHERE id = k.demangledName), k.gridX, k.gridY, k.gridZ, k.blockX, k.blockY,
  k.blockZ, k.registersPerThread, k.staticSharedMemory + k.dynamicSharedMemory, k.dynamicSharedMemory,
  (SELECT group_concat(name, '/') FROM (
    SELECT coalesce(n.text, (SELECT value FROM StringIds WHERE id = n.textId)) AS name FROM NVTX_EVENTS n
    WHERE n.eventType IN (59, 60) AND n.globalTid = r.globalTid AND n.start <= r.start AND n.end >= r.end
    ORDER BY n.start, n.end DESC))
FROM CUPTI_ACTIVITY_KIND_KERNEL k LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
  ON r.correlationId = k.correlationId
  AND (r.globalTid & 0xFFFFFFFFFF000000) = (k.globalPid & 0xFFFFFFFFFF000000)
ORDER BY k.globalPid, coalesce(r.start, k.start), k.start, k.correlationId
"""


def _plain_join(path: Path) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    rows = connection.execute(_PLAIN_QUERY).fetchall()
    connection.close()
    return rows


@pytest.mark.shared_data
def test_the_real_recording_is_what_the_plain_query_finds(shared_data: Path) -> None:
    launches = read_launches(shared_data / _REAL)
    rows = _plain_join(shared_data / _REAL)
    assert len(launches) == len(rows) == 1106
    assert launches.kernels() == 116
    assert kernel_names(launches) == [row[5] for row in rows]
    assert texts(launches, "nvtx_id") == [row[15] for row in rows]
    assert sum(path is not None for path in texts(launches, "nvtx_id")) > 0
    columns = ("start_ns", "duration_ns", "device", "stream")
    columns += ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
    columns += ("registers_per_thread", "shared_memory_bytes", "dynamic_shared_memory_bytes")
    for name, position in zip(columns, (1, 2, 3, 4, *range(6, 15)), strict=True):
        assert launches.table[name].to_pylist() == [row[position] for row in rows], name
    assert launches.column("launch").tolist() == list(range(1106))
    assert set(launches.column("process").tolist()) == {0}
    assert sentences(launches) == ()


@pytest.mark.shared_data
def test_facts_of_the_real_recording(shared_data: Path) -> None:
    launches = read_launches(shared_data / _REAL)
    assert launches.device_labels() == ["NVIDIA A100-PCIE-40GB"]
    device = launches.metadata.devices[0]
    # The GPU that CUDA does not see has ordinal 0 and no SMs in the file; it must not win.
    assert (device.index, device.sm_count, device.compute_capability) == (0, 108, "8.0")
    assert device.uuid == "993b9340-8585-3f5c-4cb4-bb2f7de5b8c5"
    assert (launches.metadata.tool, launches.metadata.tool_version) == ("Nsight Systems", "2021.5.2.53")
    assert launches.metadata.level == "light"


@pytest.mark.shared_data
def test_nothing_is_written_to_or_beside_the_file(shared_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.sqlite"
    shutil.copyfile(shared_data / _REAL, path)
    before = path.read_bytes()
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        assert len(read_launches(path)) == 1106
        assert path.read_bytes() == before
        assert [p.name for p in tmp_path.iterdir()] == ["copy.sqlite"]
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.shared_data
def test_a_compressed_export_is_the_same(shared_data: Path, tmp_path: Path) -> None:
    packed = write_gzip(tmp_path / "export", (shared_data / _REAL).read_bytes())
    assert read_launches(packed).table.equals(read_launches(shared_data / _REAL).table)


# --- order ----------------------------------------------------------------------------------------


def _read(path: Path, options: ReadOptions | None = None) -> Launches:
    return read_launches(path, options or ReadOptions())


def test_launches_stand_in_the_order_of_their_calls(tmp_path: Path) -> None:
    kernels = [
        nsys_kernel(500, 3),
        nsys_kernel(300, 1, demangledName=2),
        nsys_kernel(200, 2, demangledName=3),
    ]
    calls = [nsys_call(10, 1), nsys_call(30, 3), nsys_call(20, 2), nsys_call(5, 99)]
    launches = _read(nsys_export(tmp_path / "x", kernels, calls))
    assert kernel_names(launches) == ["void second(float)", "third", "void first<int>(int*)"]
    assert launches.column("start_ns").tolist() == [300, 200, 500]
    assert launches.column("duration_ns").tolist() == [100, 100, 100]
    assert launches.column("shared_memory_bytes").tolist() == [1040] * 3
    assert launches.column("launch").tolist() == [0, 1, 2]
    shifted = _read(tmp_path / "x", ReadOptions(launch_offset=7))
    assert shifted.column("launch").tolist() == [7, 8, 9]


def test_correlations_repeat_across_processes(tmp_path: Path) -> None:
    other = PID + (1 << 24)
    kernels = [
        nsys_kernel(900, 1, globalPid=other),
        nsys_kernel(800, 2, globalPid=other),
        nsys_kernel(950, 1),
    ]
    calls = [nsys_call(50, 1), nsys_call(7, 1, globalTid=other + 5), nsys_call(6, 2, globalTid=other + 9)]
    launches = _read(nsys_export(tmp_path / "x", kernels, calls))
    # The other process launched first, so it is process 0 though its ID is greater.
    assert launches.column("process").tolist() == [0, 0, 1]
    assert launches.column("launch").tolist() == [0, 1, 0]
    assert launches.column("start_ns").tolist() == [800, 900, 950]


def test_a_launch_without_a_call_stands_by_its_start_and_is_counted(tmp_path: Path) -> None:
    kernels = [nsys_kernel(100, 1), nsys_kernel(60, 2), nsys_kernel(70, None)]
    launches = _read(nsys_export(tmp_path / "x", kernels, [nsys_call(65, 1)]))
    assert launches.column("start_ns").tolist() == [60, 100, 70]
    assert sentences(launches) == (
        "2 launches have no API call in the file: ordered by the start on the GPU",
    )
    without = _read(nsys_export(tmp_path / "y", kernels, None))
    assert without.column("start_ns").tolist() == [60, 70, 100]
    assert without.table["nvtx_id"].null_count == 3


def test_of_several_calls_with_one_correlation_the_first_counts(tmp_path: Path) -> None:
    kernels = [nsys_kernel(100, 1), nsys_kernel(200, 2)]
    calls = [nsys_call(40, 1), nsys_call(30, 2), nsys_call(20, 1)]
    assert _read(nsys_export(tmp_path / "x", kernels, calls)).column("start_ns").tolist() == [100, 200]


def test_graph_nodes_get_ordinals(tmp_path: Path) -> None:
    kernels = [
        nsys_kernel(100, 5, graphNodeId=71),
        nsys_kernel(110, 5, graphNodeId=70),  # the GPU ran the later node first
        nsys_kernel(50, 4),
        nsys_kernel(300, 6, graphNodeId=70),
        nsys_kernel(310, 6, graphNodeId=71),
        nsys_kernel(320, 6, graphNodeId=71),  # a node in a loop
    ]
    calls = [nsys_call(10, 4), nsys_call(20, 5), nsys_call(30, 6)]
    launches = _read(nsys_export(tmp_path / "x", kernels, calls))
    assert launches.column("start_ns").tolist() == [50, 100, 110, 300, 310, 320]
    assert launches.table["graph_launch"].to_pylist() == [None, 0, 0, 1, 1, 1]
    assert launches.table["graph_node"].to_pylist() == [None, 1, 0, 0, 1, 1]


_CALLS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 3), st.integers(0, 1), st.integers(0, 60)),
    min_size=1,
    max_size=25,
)
_NVTX = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(0, 1)), max_size=15)


@settings(deadline=None, max_examples=60)
@given(_CALLS, _NVTX, st.integers(1, 7), st.sampled_from([0, 2**31, 2**40]))
def test_any_recording_is_what_the_plain_query_finds(
    tmp_path_factory: pytest.TempPathFactory,
    launched: list[tuple[int, int, int, int]],
    ranges: list[tuple[int, int, int]],
    max_launches: int,
    first_correlation: int,
) -> None:
    kernels, calls, nvtx = [], [], [nsys_range(-1, None, "open"), nsys_range(0, 90, "all", eventType=60)]
    for correlation, (call, name, thread, delay) in enumerate(launched, first_correlation):
        kernels.append(nsys_kernel(call + delay, correlation, demangledName=name % 3 + 1))
        if name:
            calls.append(nsys_call(call, correlation, globalTid=TID + thread))
    # One start a range, so that the plain query's order is the only one.
    for start, (_, length, thread) in enumerate(ranges):
        nvtx.append(nsys_range(2 * start + 1, 2 * start + 1 + length, f"r{start}", globalTid=TID + thread))
    path = nsys_export(tmp_path_factory.mktemp("any") / "x", kernels, calls or [nsys_call(0, 999)], nvtx)
    rows = _plain_join(path)
    with open_recording(path) as recording:
        batches = list(recording.batches(max_launches))
    names = {k: v for batch in batches for k, v in batch.new_names.items()}
    read = [row for batch in batches for row in batch.records.to_pylist()]
    assert [(r["start_ns"], names[r["kernel_id"]], names.get(r["nvtx_id"])) for r in read] == [
        (row[1], row[5], row[15]) for row in rows
    ]
    assert [r["launch"] for r in read] == list(range(len(rows)))


def test_the_order_of_launches_takes_little_memory(tmp_path: Path) -> None:
    launches = 100_000
    write_nsys(tmp_path / "report.sqlite", launches)
    database = Database(tmp_path / "report.sqlite", tmp_path / "report.sqlite")
    launch_order(database)  # what is loaded once is not counted
    tracemalloc.start()
    order = launch_order(database)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(order.row) == launches
    assert held < 30 * launches and peak < 150 * launches


# --- NVTX -----------------------------------------------------------------------------------------


def test_the_path_is_of_the_launching_thread_by_the_time_of_the_call(tmp_path: Path) -> None:
    nvtx = [
        nsys_range(0, 100, "step"),
        nsys_range(10, 50, None, textId=3),
        nsys_range(20, 30, "marker", eventType=34),
        nsys_range(0, 100, "elsewhere", globalTid=TID + 1),
        nsys_range(60, None, "never closed"),
        nsys_range(55, 90, "start-end", eventType=60),
    ]
    kernels = [nsys_kernel(500 + i, i) for i in range(4)]
    calls = [nsys_call(20, 0), nsys_call(45, 1), nsys_call(70, 2), nsys_call(120, 3)]
    launches = _read(nsys_export(tmp_path / "x", kernels, calls, nvtx))
    # The second call outlasts the inner range, so that one does not contain it.
    assert texts(launches, "nvtx_id") == ["step/third", "step", "step/start-end", None]


# --- what may be absent ----------------------------------------------------------------------------


def test_columns_and_tables_that_are_absent_become_null(tmp_path: Path) -> None:
    kept = ("start", "end", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "shortName")
    kernel = {name: nsys_kernel(10, 1)[name] for name in kept}
    launches = _read(nsys_export(tmp_path / "x", [kernel, kernel | {"start": 5}], None))
    assert launches.column("start_ns").tolist() == [5, 10]
    for name in (
        "device",
        "stream",
        "registers_per_thread",
        "shared_memory_bytes",
        "graph_launch",
        "nvtx_id",
    ):
        assert launches.table[name].null_count == 2
    assert "kernels are known by their short names only" in sentences(launches)
    assert launches.metadata.tool_version == "" and launches.metadata.devices == ()


def test_the_newer_device_table_tells_which_gpu_a_kernel_ran_on(tmp_path: Path) -> None:
    gpus = [
        {
            "id": 0,
            "cuDevice": 0,
            "name": "Big",
            "uuid": "u0",
            "smCount": 132,
            "computeMajor": 9,
            "computeMinor": 0,
        },
        {
            "id": 1,
            "cuDevice": 0,
            "name": "Small",
            "uuid": "u1",
            "smCount": 0,
            "computeMajor": 0,
            "computeMinor": 0,
        },
    ]
    path = nsys_export(
        tmp_path / "x",
        [nsys_kernel(1, 1), nsys_kernel(2, 2, deviceId=1)],
        [nsys_call(0, 1)],
        extra={
            "TARGET_INFO_GPU": gpus,
            "TARGET_INFO_CUDA_DEVICE": [{"gpuId": 0, "cudaId": 1}, {"gpuId": 1, "cudaId": 0}],
            "META_DATA_EXPORT": [{"name": "EXPORT_PRODUCT_VERSION", "value": "2025.3.2"}],
        },
    )
    launches = _read(path)
    assert launches.device_labels() == ["Small", "Big"]
    assert [(d.sm_count, d.compute_capability) for d in launches.metadata.devices] == [
        (None, ""),
        (132, "9.0"),
    ]
    assert launches.metadata.tool_version == "2025.3.2"


def test_lost_events_and_whole_graphs_are_noted(tmp_path: Path) -> None:
    extra = {
        "DIAGNOSTIC_EVENT": [
            {"severity": 3, "text": "Number of CUDA events dropped: 12"},
            {"severity": 1, "text": "ok"},
        ],
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [{"start": 1, "end": 2}] * 4,
    }
    notes = sentences(_read(nsys_export(tmp_path / "x", [nsys_kernel(1, 1)], [nsys_call(0, 1)], extra=extra)))
    assert "the profiler says: Number of CUDA events dropped: 12" in notes
    assert any("4 graph launches were traced as a whole" in note for note in notes)


_API = {1: "void first<int>(int*)", 5: "cudaLaunchKernel_v7000", 6: "cudaMemcpyAsync_v3020",
        7: "cudaGraphLaunch_v10000", 8: "cuLaunchKernelEx", 9: "cudaLaunchCooperativeKernel_ptsz_v9000",
        10: "cudaLaunchHostFunc_v10000"}  # fmt: skip


def _named(start: int, correlation: int, name: int, **changed: Any) -> dict[str, Any]:
    return nsys_call(start, correlation, nameId=name, returnValue=0) | changed


@pytest.mark.parametrize(
    ("calls", "lost"),
    [
        ([_named(0, 1, 5)], 0),
        ([_named(0, 1, 5), _named(1, 2, 5), _named(2, 3, 8), _named(3, 4, 9)], 3),
        # Neither a copy nor a function on the host makes a kernel, nor does a call that failed.
        ([_named(0, 1, 5), _named(1, 2, 6), _named(2, 3, 10), _named(3, 4, 5, returnValue=98)], 0),
        # The same ID in another process is another call, whose graphs prove nothing of this one.
        ([_named(0, 1, 5), _named(1, 1, 5, globalTid=TID + (1 << 24))], 1),
        ([_named(0, 1, 5), _named(1, 2, 5), _named(2, 3, 7, globalTid=TID + (1 << 24))], 1),
        # What a graph captures is launched later.
        ([_named(0, 1, 5), _named(1, 2, 5), _named(2, 3, 7)], 0),
    ],
)
def test_launch_calls_without_a_kernel_are_lost_kernels(
    tmp_path: Path, calls: list[dict[str, Any]], lost: int
) -> None:
    notes = _read(nsys_export(tmp_path / "x", [nsys_kernel(1, 1)], calls, strings=_API)).notes
    assert notes == ((make_note("kernels_lost", calls=lost),) if lost else ())


def test_a_process_with_a_kernel_of_a_graph_proves_nothing(tmp_path: Path) -> None:
    kernels, calls = [nsys_kernel(1, 1, graphNodeId=4)], [_named(0, 1, 6), _named(1, 2, 5)]
    assert sentences(_read(nsys_export(tmp_path / "x", kernels, calls, strings=_API))) == ()


def test_a_doubt_of_the_profiler_is_told_and_is_no_loss(tmp_path: Path) -> None:
    text = "Not all CUDA events might have been collected."
    extra = {"DIAGNOSTIC_EVENT": [{"severity": 2, "text": text}, {"severity": 1, "text": "ok"}]}
    path = nsys_export(tmp_path / "x", [nsys_kernel(1, 1)], [nsys_call(0, 1)], extra=extra)
    assert sentences(_read(path)) == (f"the profiler warns: {text}",)


# --- bad input ------------------------------------------------------------------------------------


def _error(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        inspect_recording(path)
    assert str(path) in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("extra", "cause", "remedy"),
    [
        ({"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [{"start": 1}]}, "traced as a whole", "--cuda-graph-trace=node"),
        ({"PROCESSES": [{"pid": 1}]}, "no kernels were captured", "--trace=cuda"),
    ],
)
def test_an_export_without_kernels_says_why(tmp_path: Path, extra: Any, cause: str, remedy: str) -> None:
    error = _error(nsys_export(tmp_path / "x", [], None, extra=extra))
    assert cause in error.cause and remedy in error.remedy


def test_an_empty_kernel_table(tmp_path: Path) -> None:
    path = nsys_export(tmp_path / "x", [nsys_kernel(1, 1)])
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
    connection.commit()
    connection.close()
    assert "is empty" in _error(path).cause


def test_another_database_is_not_taken_for_an_export(tmp_path: Path) -> None:
    path = nsys_export(tmp_path / "x", [], None, strings={}, extra={"people": [{"name": "x"}]})
    assert "not an export of Nsight Systems" in _error(path).cause


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"end": 5}, "end"),
        ({"end": None}, "end"),
        ({"start": None}, "start"),
        ({"start": "soon"}, "start"),
        ({"end": 2**63 - 1}, "end"),
        ({"gridX": 0}, "gridX"),
        ({"gridY": None}, "gridY"),
        ({"blockZ": 1.5}, "blockZ"),
        ({"blockX": 2**40}, "blockX"),
    ],
)
def test_times_and_shapes_that_cannot_be_name_their_row(
    tmp_path: Path, changed: dict[str, Any], field: str
) -> None:
    kernels = [nsys_kernel(10, 1), nsys_kernel(20, 2) | changed]
    error = _error(nsys_export(tmp_path / "x", kernels, [nsys_call(0, 1)]))
    assert "row 2" in error.cause and error.field == field


@pytest.mark.parametrize(
    "kernel",
    [
        {"demangledName": 77},
        {"demangledName": None},
        {"registersPerThread": "many"},
        {"streamId": 1.5},
        {"correlationId": "x"},
        {"globalPid": b"x"},
    ],
)
def test_values_of_another_kind_are_errors(tmp_path: Path, kernel: dict[str, Any]) -> None:
    _error(nsys_export(tmp_path / "x", [nsys_kernel(10, 1, **kernel)], [nsys_call(0, 1)]))


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    kernel = {k: v for k, v in nsys_kernel(1, 1).items() if k != "gridZ"}
    assert _error(nsys_export(tmp_path / "x", [kernel])).field == "gridZ"


@pytest.mark.shared_data
@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 0.9999])
def test_a_cut_export_is_found_when_it_is_opened(shared_data: Path, tmp_path: Path, share: float) -> None:
    whole = (shared_data / _REAL).read_bytes()
    path = write(tmp_path / "cut", whole[: int(len(whole) * share)])
    with pytest.raises(InputError, match="cut off"):
        open_recording(path)


@pytest.mark.shared_data
def test_damage_within_the_file_is_an_input_error(shared_data: Path, tmp_path: Path) -> None:
    whole = bytearray((shared_data / _REAL).read_bytes())
    for start in range(4096, len(whole), 8192):
        whole[start : start + 64] = b"\xff" * 64
    _error(write(tmp_path / "damaged", bytes(whole)))


@pytest.mark.shared_data
def test_a_row_that_goes_while_the_export_is_read_is_missed(shared_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "export.sqlite"
    shutil.copy(shared_data / _REAL, path)
    with open_recording(path) as recording:
        batches = recording.batches(100)
        next(batches)
        connection = sqlite3.connect(path)
        connection.execute(f"DELETE FROM {KERNEL} WHERE rowid = (SELECT max(rowid) FROM {KERNEL})")
        connection.commit()
        connection.close()
        with pytest.raises(InputError, match="rows of the kernel table are missing"):
            list(batches)


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_an_unfinished_write_beside_the_file_is_refused(tmp_path: Path, suffix: str) -> None:
    path = nsys_export(tmp_path / "x", [nsys_kernel(1, 1)], [nsys_call(0, 1)])
    assert len(read_launches(path)) == 1
    write(tmp_path / f"x{suffix}", "something")
    assert "not finished" in _error(path).cause


def test_names_with_odd_characters_in_the_path(tmp_path: Path) -> None:
    folder = tmp_path / "a ?b#c%20"
    folder.mkdir()
    path = nsys_export(folder / "x?mode=rwc", [nsys_kernel(1, 1)], [nsys_call(0, 1)])
    assert len(read_launches(path)) == 1


def test_ten_thousand_launches_come_out_in_order(tmp_path: Path) -> None:
    count = 10_000
    order = np.random.default_rng(0).permutation(count).tolist()
    kernels = [nsys_kernel(10**6 + i, i, gridX=i + 1) for i in order]
    calls = [nsys_call(3 * i, i) for i in reversed(range(count))]
    launches = _read(nsys_export(tmp_path / "x", kernels, calls))
    assert launches.column("grid_x").tolist() == list(range(1, count + 1))


@pytest.mark.parametrize(
    ("calls_before", "wrong"), [(1, {"start": "soon"}), (1, {"end": 2.5}), (70_000, {"start": "soon"})]
)
def test_a_call_that_launches_nothing_at_a_time_that_is_no_whole_number_is_refused_in_any_batch(
    tmp_path: Path, calls_before: int, wrong: dict[str, object]
) -> None:
    calls = [nsys_call(number, 0) for number in range(calls_before)]
    error = _error(nsys_export(tmp_path / "x", [nsys_kernel(10, 0)], [*calls, nsys_call(0, 1) | wrong]))
    assert error.field == "CUPTI_ACTIVITY_KIND_RUNTIME"
    assert "not a whole number" in error.cause


def test_a_missing_value_among_whole_numbers_is_refused(tmp_path: Path) -> None:
    path = nsys_export(tmp_path / "x", [nsys_kernel(10, 1)], [nsys_call(0, 1)])
    database = Database(path, path)
    with pytest.raises(InputError, match="a value of graphNodeId is missing"):
        integers(database, KERNEL, ["start", "graphNodeId"])
    database.close()
