"""The recorded profiler gives exactly the launches of a file, under the run's condition and mark."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from assay_agent.execution.errors import ProfilerError
from assay_agent.profilers.pacing import Pace
from assay_agent.profilers.recorded import RecordedMeasurement, RecordedProfiler
from assay_core.files.launch_file import new_launch_file
from assay_core.records.attempt import AttemptKey
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import RecordedSource, Work
from assay_sampling.launches.checks import check_names
from assay_sampling.launches.table import (
    BASELINE,
    Condition,
    LaunchBatch,
    Names,
    table_metadata,
    with_metadata,
)
from assay_sampling.running.failures import FailureClass
from tests.support.agent.fake_server import batches_of, table_of
from tests.support.sampling.reader_files import raw_page, raw_row


def write(path: Path, batches: list[LaunchBatch], **metadata: Any) -> Path:
    schema = batches[0].records.schema
    schema = with_metadata(schema, replace(table_metadata(schema), condition=Condition(), **metadata))
    with new_launch_file(path, schema) as writer:
        for batch in batches:
            records = pa.RecordBatch.from_arrays(batch.records.columns, schema=schema)
            writer.write(LaunchBatch(records, batch.new_names))
    return path


def work(path: Path | None, **fields: Any) -> Work:
    recorded_time = fields.pop("recorded_time", False)
    return Work(
        key=AttemptKey("c-1.0000", 0, 1, 1),
        campaign_id="c-1",
        workload="w",
        device_kind="V100",
        profiler="recorded",
        recorded=RecordedSource(path, recorded_time) if path else None,
        **{"level": "light", "condition": BASELINE, **fields},
    )


def played(
    assignment: Work, cancelled: threading.Event | None = None
) -> tuple[pa.Table, RecordedMeasurement]:
    """All launches, with every name checked to come before its use."""
    names, batches = Names(), []
    with RecordedProfiler().run(assignment, cancelled or threading.Event()) as measurement:
        for batch in measurement.batches():
            assert not set(batch.new_names) & {i for i, _ in names.items()}
            names.update(dict(batch.new_names))
            check_names([batch.records], names)
            batches.append(batch.records)
    return pa.Table.from_batches(batches).combine_chunks(), measurement


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write(tmp_path / "recording.parquet", batches_of(150_000, 50_000))


def test_a_whole_recording_under_the_runs_condition(recording: Path) -> None:
    condition = Condition("all", "base", 50.0)
    found, measurement = played(work(recording, condition=condition, synthetic=True))
    assert found.equals(table_of(batches_of(150_000, 50_000)))
    metadata = table_metadata(found.schema)
    assert (metadata.condition, metadata.synthetic, metadata.level) == (condition, True, "light")
    assert measurement.log.text.splitlines() == [
        f"played back {recording} (assay-parquet)",
        "150,000 launches",
    ]
    assert RecordedProfiler().plan(work(recording)) is None


@pytest.mark.parametrize(
    ("skip", "count", "first", "last"),
    [
        (0, 10, 0, 10),
        (70_000, 0, 70_000, 150_000),
        (49_999, 20_002, 49_999, 70_001),
        (149_999, 5, 149_999, 150_000),
    ],
)
def test_a_window_of_launches(recording: Path, skip: int, count: int, first: int, last: int) -> None:
    found, _ = played(work(recording, launch_skip=skip, launch_count=count))
    assert found.equals(table_of(batches_of(150_000, 50_000)).slice(first, last - first))


def test_a_window_behind_the_end_is_nothing_profiled(recording: Path) -> None:
    with pytest.raises(ProfilerError, match="none in the window") as caught:
        played(work(recording, launch_skip=150_000))
    assert caught.value.failure_class is FailureClass.NOTHING_PROFILED


def test_launches_without_grid_shape_and_counters_without_value_are_flagged(tmp_path: Path) -> None:
    batches = batches_of(100, 50, counters=2)
    schema = batches[0].records.schema
    position = schema.get_field_index("counter_1")
    values = pa.array([None] * 7 + [1.0] * 43, pa.float64())
    records = batches[0].records.set_column(position, schema.field("counter_1"), values)
    position = schema.get_field_index("block_y")
    records = records.set_column(position, schema.field("block_y"), pa.nulls(50, pa.int32()))
    batches[0] = replace(batches[0], records=records)
    path = write(tmp_path / "x.parquet", batches, units_assumed=True)
    _, measurement = played(work(path, level="detailed"))
    assert measurement.flags == (
        ValidityFlag("counters_nan", "not measured (n/a or NaN): counter_1: 7 of 100 launches"),
        ValidityFlag(
            "shapes_totals_only",
            "50 of 100 launches have only the total of blocks or threads, not the three dimensions",
        ),
        ValidityFlag("units_assumed", "the file gives no units; base units were assumed"),
    )


def nsys_with(shared_data: Path, tmp_path: Path, *statements: str) -> Path:
    path = tmp_path / "changed.sqlite"
    shutil.copy(shared_data / "nsys" / "a100_nerf_1106_kernels.sqlite", path)
    path.chmod(0o600)
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)
    return path


def test_dropped_events_and_unopened_graphs_of_a_recording_invalidate(
    shared_data: Path, tmp_path: Path
) -> None:
    path = nsys_with(
        shared_data,
        tmp_path,
        "CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, severity INTEGER, text TEXT)",
        "INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 2, 'Number of CUDA events dropped: 17')",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1)",
    )
    _, measurement = played(work(path))
    flags = {flag.name: flag for flag in measurement.flags if flag.invalidates}
    assert set(flags) == {"launches_dropped", "launches_missing"}
    assert flags["launches_dropped"].detail == "the profiler says: Number of CUDA events dropped: 17"
    assert "1 graph launch was traced as a whole" in flags["launches_missing"].detail
    assert "note: the profiler says: Number of CUDA events dropped: 17" in measurement.log.text.splitlines()


def test_a_recording_that_lacks_a_kernel_of_a_call_is_invalid(shared_data: Path, tmp_path: Path) -> None:
    path = nsys_with(
        shared_data, tmp_path, "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid IN (7, 300, 1000)"
    )
    _, measurement = played(work(path))
    (flag,) = (flag for flag in measurement.flags if flag.invalidates)
    assert (flag.name, flag.detail) == (
        "launches_dropped", "the profiler lost kernels: 3 launch calls have no kernel in the file",
    )  # fmt: skip


def test_a_recording_of_a_window_that_its_end_cut_is_valid(shared_data: Path) -> None:
    _, measurement = played(work(shared_data / "nsys" / "h100_2gpu_window_4010_kernels.sqlite.gz"))
    (flag,) = (flag for flag in measurement.flags if flag.name in ("capture_cut", "launches_dropped"))
    assert (flag.name, flag.invalidates) == ("capture_cut", False)
    assert "its last 20 launch calls" in flag.detail


def test_a_recording_with_fewer_launches_than_announced_is_invalid(shared_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.csv"
    announced = "".join(f'==PROF== Profiling "k" - {i}: 0%....100% - 1 pass\n' for i in range(60))
    path.write_text(announced + (shared_data / "ncu" / "edge_trailing_text.csv").read_text())
    _, measurement = played(work(path, level="detailed"))
    (flag,) = (flag for flag in measurement.flags if flag.invalidates)
    assert flag.name == "launches_missing"
    assert flag.detail.startswith("the profiler announced 60 launches, but the file holds 50")


def refused(assignment: Work) -> ProfilerError:
    with pytest.raises(ProfilerError) as caught:
        played(assignment)
    return caught.value


def test_a_file_that_is_not_what_the_run_needs_is_refused(tmp_path: Path, recording: Path) -> None:
    detailed = write(tmp_path / "d.parquet", batches_of(10, 10, counters=1))
    synthetic = write(tmp_path / "s.parquet", batches_of(10, 10), origin="synthetic")
    simulated = write(tmp_path / "z.parquet", batches_of(10, 10), origin="simulated")
    cases = {
        "its level is detailed, but the campaign says light": work(detailed),
        "its level is light, but the campaign says detailed": work(recording, level="detailed"),
        "its origin is synthetic, but the campaign says measured": work(synthetic),
        "its origin is simulated, but the campaign says measured": work(simulated),
        "its origin is simulated, but the campaign says synthetic": work(simulated, synthetic=True),
        "there is no such file": work(tmp_path / "absent"),
        "needs the absolute path of a recording, but none was given": work(None),
        "needs the absolute path of a recording, but 'here.csv' was given": work(Path("here.csv")),
    }
    for cause, assignment in cases.items():
        error = refused(assignment)
        assert error.failure_class is FailureClass.INPUT_UNREADABLE
        assert cause in error.cause
        assert error.failure.remedy and not error.failure.retryable
    flushed = batches_of(10, 10)
    schema = flushed[0].records.schema
    path = tmp_path / "flushed.parquet"
    marked = with_metadata(schema, replace(table_metadata(schema), condition=Condition("all", "none", 100)))
    with new_launch_file(path, marked) as writer:
        writer.write(
            replace(flushed[0], records=pa.RecordBatch.from_arrays(flushed[0].records.columns, schema=marked))
        )
    assert "its condition (cache) is all, but the campaign says none" in refused(work(path)).cause
    half = Condition("none", "none", 50.0)
    marked = with_metadata(
        schema, replace(table_metadata(schema), condition=replace(half, sm_share="partition"))
    )
    with new_launch_file(path, marked) as writer:
        writer.write(
            replace(flushed[0], records=pa.RecordBatch.from_arrays(flushed[0].records.columns, schema=marked))
        )
    cause = refused(replace(work(path), condition=half)).cause
    assert "its condition (sm_share) is partition, but the campaign says limit" in cause


def test_a_damaged_file_is_refused_with_the_readers_words(recording: Path) -> None:
    data = bytearray(recording.read_bytes())
    data[len(data) // 3] ^= 0xFF
    recording.write_bytes(data)
    error = refused(work(recording))
    assert error.failure_class is FailureClass.INPUT_UNREADABLE
    assert error.subject == str(recording)
    assert "damaged" in error.cause


def test_a_name_beyond_all_reason_fails_the_attempt_as_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    page = tmp_path / "page.csv"
    page.write_text(raw_page([raw_row(0), raw_row(1, Kernel_Name="k" * (60 << 20))]))
    error = refused(work(page, level="detailed"))
    assert error.failure_class is FailureClass.INPUT_UNREADABLE
    assert error.subject.startswith(f"{page}:4")
    assert "62,914,560 bytes, and one may have 1,048,576" in error.cause


def test_a_negative_window_is_refused(recording: Path) -> None:
    assert refused(work(recording, launch_skip=-1)).failure_class is FailureClass.SERVER_REFUSED


def test_cancelling_ends_the_playing(recording: Path) -> None:
    cancelled = threading.Event()
    with RecordedProfiler().run(work(recording), cancelled) as measurement:
        batches = measurement.batches()
        next(batches)
        cancelled.set()
        assert sum(1 for _ in batches) <= 1


def timed(start_ns: list[int | None]) -> LaunchBatch:
    (batch,) = batches_of(len(start_ns), len(start_ns))
    schema = batch.records.schema
    position = schema.get_field_index("start_ns")
    column = pa.array(start_ns, pa.int64())
    return replace(batch, records=batch.records.set_column(position, schema.field("start_ns"), column))


def test_recorded_time_gives_launches_no_earlier_than_they_happened(tmp_path: Path) -> None:
    begin = 5_000_000_000_000
    start_ns = [begin, begin + 10, None, begin + 150_000_000, begin + 20, begin + 450_000_000]
    path = write(tmp_path / "timed.parquet", [timed(start_ns)])
    began = time.monotonic()
    sizes, times = [], []
    with RecordedProfiler().run(work(path, recorded_time=True), threading.Event()) as measurement:
        for batch in measurement.batches():
            sizes.append(batch.records.num_rows)
            times.append(time.monotonic() - began)
    assert sizes == [3, 2, 1]
    assert times[1] >= 0.15 and times[2] >= 0.45
    assert measurement.flags == ()


def test_a_recording_without_times_is_played_at_full_speed_and_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "untimed.parquet", [timed([None] * 5)])
    found, measurement = played(work(path, recorded_time=True))
    assert found.num_rows == 5
    assert [f.name for f in measurement.flags] == ["recorded_time_unavailable"]


def test_pace_is_kept_from_batch_to_batch_and_cancelled_at_once() -> None:
    cancelled = threading.Event()
    pace = Pace(cancelled)
    hour = 3_600_000_000_000
    assert [p.num_rows for p in pace.pieces(timed([0, 1]).records)] == [2]
    assert [p.num_rows for p in pace.pieces(timed([0, None]).records)] == [2]
    threading.Timer(0.1, cancelled.set).start()
    assert [p.num_rows for p in pace.pieces(timed([2, hour]).records)] == [1]


def test_real_recordings_are_played_back(shared_data: Path) -> None:
    source = shared_data / "nsys" / "a100_nerf_1106_kernels.sqlite"
    found, measurement = played(work(source))
    assert found.num_rows == 1_106
    assert len(np.unique(found["kernel_id"])) == 116
    assert table_metadata(found.schema).condition == BASELINE
    assert not [flag for flag in measurement.flags if flag.invalidates]


def test_a_window_of_a_real_detailed_recording(shared_data: Path) -> None:
    source = shared_data / "ncu" / "synthetic_v100_5000_raw_page.csv.gz"
    found, measurement = played(
        work(source, level="detailed", synthetic=True, launch_skip=900, launch_count=100)
    )
    assert found["launch"].to_pylist() == list(range(900, 1000))
    assert table_metadata(found.schema).synthetic
    assert measurement.log.text.splitlines()[1] == "100 launches"
