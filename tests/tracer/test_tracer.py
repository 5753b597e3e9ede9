"""The tracer from its C library to launch batches, fed by a fake CUPTI: nothing lost or twice, in order."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from assay_agent.tracer.protocol import ProblemCode
from assay_agent.tracer.receiver import Receiver
from assay_sampling.launches.table import LaunchBatch
from tests.support.tracer.traced_runs import (
    SCHEMA,
    SECONDS,
    BuiltTracer,
    TracedRun,
    expected_numbers,
    numbers,
    short_folder,
    start,
    trace,
)

pytestmark = [pytest.mark.tracer, pytest.mark.processes]


def run(tracer: BuiltTracer, switches: dict[str, object] | None = None, **arguments: object) -> TracedRun:
    return trace(tracer.library, tracer.workload, switches, **arguments)  # type: ignore[arg-type]


def test_every_launch_comes_once_and_in_the_order_of_the_calls(each_tracer: BuiltTracer) -> None:
    found = run(each_tracer, launches=20_000)
    assert found.exit_code == 0 and found.faults == []
    assert np.array_equal(numbers(found.table), expected_numbers(20_000))
    assert np.array_equal(found.table["launch"].to_numpy(), np.arange(20_000))
    row = found.table.slice(4, 1).to_pylist()[0]
    assert (row["grid_y"], row["grid_z"], row["block_x"], row["registers_per_thread"]) == (2, 3, 128, 32)
    assert (row["start_ns"], row["duration_ns"], row["stream"]) == (1_000_000_005_000, 505, 9)
    assert row["shared_memory_bytes"] == 1024
    assert found.texts("kernel_id")[4] == "kernel_5(float *, int)"
    assert found.processes[0].hello["cupti_version"] == each_tracer.newest


def test_a_million_launches_lose_none_in_bounded_memory(
    tracer: BuiltTracer, capsys: pytest.CaptureFixture[str]
) -> None:
    check_many(tracer, int(os.environ.get("ASSAY_TRACER_LAUNCHES", "1000000")), capsys)


def check_many(tracer: BuiltTracer, launches: int, capsys: pytest.CaptureFixture[str]) -> None:
    expected = 0
    batches = 0

    def check(batch: LaunchBatch) -> None:
        nonlocal expected, batches
        found = numbers(batch.records)
        assert np.array_equal(found, np.arange(expected + 1, expected + 1 + len(found)))
        expected += len(found)
        batches += 1

    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, cpu = time.perf_counter(), time.process_time()
    # The fake launches many times faster than a GPU could, so the waits that are allowed would not do.
    found = run(tracer, {"ASSAY_TRACER_WAIT_MS": 600_000}, launches=launches, on_batch=check)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    agent_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024
    workload_mib = (found.said["peak_kib"] - found.said["before_kib"]) / 1024
    assert found.faults == [] and expected == launches
    totals = found.processes[0].totals
    assert totals["launches"] == totals["kernels"] == launches
    # 32 MiB of buffers, 2.5 MiB of launches on their way, and names; in the agent what waits for its turn.
    assert workload_mib < 48
    assert agent_mib < 200
    assert batches > launches / 400_000, "batches come while the workload runs"
    with capsys.disabled():
        print(
            f"\ntracer: {launches:,} launches in {seconds:.1f} s ({launches / seconds:,.0f}/s; "
            f"the agent used {cpu:.1f} s of CPU, {launches / cpu:,.0f}/s; launches waited "
            f"{totals['waited_ns'] / 1e9:.1f} s); more memory than at the start: workload "
            f"{workload_mib:.0f} MiB, agent {agent_mib:.0f} MiB"
        )


def test_threads_graphs_captures_and_failing_calls_are_told_apart(tracer: BuiltTracer) -> None:
    found = run(tracer, launches=40_000, threads=4, graphs=100, nodes=7, captured=37, failing=41)
    expected = expected_numbers(40_000, graphs=100, nodes=7, captured=37, failing=41)
    assert found.faults == []
    assert np.array_equal(numbers(found.table), expected)
    totals = found.processes[0].totals
    assert (totals["graph_launches"], totals["graph_kernels"]) == (400, 2800)
    graph = found.table["graph_launch"].to_numpy(zero_copy_only=False)
    of_graphs = expected % 100 == 0
    assert np.array_equal(np.isnan(graph), ~of_graphs)
    assert np.array_equal(graph[of_graphs], np.repeat(np.arange(400), 7))
    nodes = found.table["graph_node"].to_numpy(zero_copy_only=False)[of_graphs]
    assert np.array_equal(nodes, np.tile(np.arange(7), 400))
    assert np.array_equal(found.table["block_x"].to_numpy()[of_graphs], 129 + np.tile(np.arange(7), 400))


def test_graph_launches_are_handed_on_while_the_workload_runs(tracer: BuiltTracer) -> None:
    switches: dict[str, object] = {"ASSAY_TRACER_FLUSH_MS": 10, "FAKE_CUPTI_IN_STREAMS": 1}
    found = run(tracer, switches, launches=6000, graphs=10, pause_us=20_000, every=100)
    assert found.faults == []
    assert np.array_equal(numbers(found.table), expected_numbers(6000, graphs=10))
    assert len(found.batches) > 5
    assert sum(batch.num_rows for batch in found.batches[:-1]) > len(found.table) / 2


def test_nvtx_ranges_of_the_calling_thread_name_operators_and_shapes(tracer: BuiltTracer) -> None:
    found = run(tracer, launches=12, threads=2, nvtx=1)
    assert found.faults == []
    expected = [
        f"{'backward' if i % 2 else 'forward'}/aten::mm, sizes = [[2, {i % 3}], [{i % 3}, 4]]"
        for i in range(6)
    ]
    assert sorted(filter(None, found.texts("nvtx_id"))) == sorted(expected * 2)
    assert set(found.texts("operator_id")) == {"aten::mm"}
    assert sorted(filter(None, found.texts("input_shapes_id"))) == sorted(
        [f"[[2, {i % 3}], [{i % 3}, 4]]" for i in range(6)] * 2
    )


def test_correlation_ids_may_wrap(tracer: BuiltTracer) -> None:
    found = run(tracer, {"FAKE_CUPTI_FIRST": 2**32 - 5000}, launches=10_000)
    assert found.faults == []
    assert np.array_equal(numbers(found.table)[5001:], np.arange(1, 5000))
    assert np.array_equal(found.table["launch"].to_numpy(), np.arange(10_000))


def test_an_executed_child_is_a_process_of_its_own_and_a_forked_one_is_silent(tracer: BuiltTracer) -> None:
    found = run(tracer, launches=1000, child="exec")
    assert found.faults == []
    rows = {ordinal: int((found.table["process"].to_numpy() == ordinal).sum()) for ordinal in (0, 1)}
    assert sorted(rows.values()) == [100, 1000]
    assert [p.hello["parent_process"] == found.said["process"] for p in found.processes] == [False, True]
    alone = run(tracer, launches=1000, child="fork")
    assert alone.faults == [] and len(alone.processes) == 1 and alone.processes[0].handed_on == 1000


def test_a_process_that_is_killed_is_told(tracer: BuiltTracer) -> None:
    found = run(tracer, launches=1000, end="kill")
    assert found.exit_code == -signal.SIGKILL
    (fault,) = found.faults
    assert "without sending its last records" in fault and "close() and join(), not terminate()" in fault


def test_records_that_cupti_drops_are_counted(tracer: BuiltTracer) -> None:
    found = run(tracer, {"FAKE_CUPTI_DROP_EVERY": 1000}, launches=30_000)
    assert found.processes[0].totals["dropped_cupti"] == 30
    assert "dropped 30 records (30 by CUPTI" in found.faults[0]
    lost = numbers(found.table)
    assert len(lost) == 29_970 and (np.diff(lost) > 0).all()


def test_records_that_nobody_counts_are_missed_by_the_count_of_launches(tracer: BuiltTracer) -> None:
    found = run(tracer, {"FAKE_CUPTI_LOSE_EVERY": 7000}, launches=30_000)
    assert found.processes[0].totals["dropped_cupti"] == 0
    assert "launched 30,000 kernels, and CUPTI gave 29,996" in found.faults[0]


@pytest.mark.parametrize(
    ("switches", "code", "words"),
    [
        (
            {"FAKE_CUPTI_VERSION": 130600, "FAKE_CUPTI_RECORD_BYTES": 256},
            ProblemCode.CUPTI_NEWER,
            "has version 130600 with kernel records of 256 bytes, and this build knows versions up to 130500",
        ),
        (
            {"FAKE_CUPTI_VERSION": 130501, "FAKE_CUPTI_RECORD_BYTES": 256},
            ProblemCode.LAYOUT,
            "has 256 bytes, and 248 are expected",
        ),
        ({"FAKE_CUPTI_VERSION": 17}, ProblemCode.CUPTI_OLDER, "the oldest that is read is 18"),
        ({"FAKE_CUPTI_RECORD_BYTES": 256}, ProblemCode.LAYOUT, "has 256 bytes, and 248 are expected"),
        ({"FAKE_CUPTI_SUBSCRIBE": 39}, ProblemCode.SUBSCRIBED, "MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
        ({"FAKE_CUPTI_SUBSCRIBE": 35}, ProblemCode.PRIVILEGES, "INSUFFICIENT_PRIVILEGES"),
        ({"FAKE_CUPTI_SUBSCRIBE": 14}, ProblemCode.MIXED_CALLS, "cuptiSubscribe: CUPTI_ERROR_NOT_COMPATIBLE"),
        (
            {"FAKE_CUPTI_ENABLE": 14},
            ProblemCode.MIXED_CALLS,
            "cuptiActivityEnable: CUPTI_ERROR_NOT_COMPATIBLE",
        ),
        ({"FAKE_CUPTI_SUBSCRIBE": 999}, ProblemCode.CUPTI_FAILED, "cuptiSubscribe"),
    ],
)
def test_what_keeps_a_process_from_being_traced_is_said_and_the_process_runs_on(
    tracer: BuiltTracer, switches: dict[str, object], code: ProblemCode, words: str
) -> None:
    found = run(tracer, switches, launches=1000)
    assert found.exit_code == 0 and found.batches == []
    assert found.processes[0].problem is not None
    assert found.processes[0].problem[0] == code and words in found.processes[0].problem[1]


@pytest.mark.parametrize(
    ("version", "layout"),
    [
        (18, 8),
        (19, 8),
        (20, 9),
        (28, 9),
        (130000, 10),
        (130100, 11),
        (130201, 11),
        (130300, 12),
        (130301, 12),
        (130400, 13),
        (130401, 13),
        # Updates of one release, and the next release where it says that its record has the same size.
        (130501, 13),
        (130600, 13),
    ],
)
def test_each_version_is_read_by_its_layout(tracer: BuiltTracer, version: int, layout: int) -> None:
    found = run(tracer, {"FAKE_CUPTI_VERSION": version}, launches=500)
    assert found.faults == [] and found.processes[0].hello["layout"] == layout
    assert np.array_equal(numbers(found.table), expected_numbers(500))


def test_without_an_agent_the_workload_runs_on(tracer: BuiltTracer, tmp_path: Path) -> None:
    with start(tracer.library, tracer.workload, tmp_path / "nobody", {"launches": 1000}, {}) as process:
        output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (0, "") and json.loads(output)["recorded"] == 0


_DYING_AGENT = """
import os, sys
from tests.support.tracer.traced_runs import SCHEMA
from pathlib import Path
from assay_agent.tracer.receiver import Receiver
rows = 0
with Receiver(Path(sys.argv[1]), lambda hello: SCHEMA) as receiver:
    print("listening", flush=True)
    while True:
        for batch in receiver.batches(1.0):
            rows += batch.records.num_rows
            if rows > 50_000:
                print(rows, flush=True)
                while True:
                    receiver.batches(1.0)
"""


def test_an_agent_killed_in_the_middle_leaves_the_workload_unharmed(tracer: BuiltTracer) -> None:
    folder_of_tests = str(Path(__file__).parent)
    with short_folder() as folder:
        path = folder / "socket"
        agent = subprocess.Popen(
            [sys.executable, "-c", _DYING_AGENT, str(path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": folder_of_tests},
        )
        assert agent.stdout is not None and agent.stdout.readline() == "listening\n"
        calls = 2_000_000
        workload = start(
            tracer.library, tracer.workload, path, {"launches": calls, "every": 10_000, "pause_us": 1000}, {}
        )
        assert int(agent.stdout.readline()) > 50_000  # it is busy with a batch, so the tracer has to wait
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        agent.stdout.close()
        output, errors = workload.communicate(timeout=SECONDS)
    said = json.loads(output)
    assert (workload.returncode, errors) == (0, "")
    assert said["recorded"] < calls, "collecting ends with the agent"
    assert (said["peak_kib"] - said["before_kib"]) / 1024 < 48


def test_an_agent_that_goes_away_between_two_frames_leaves_the_workload_unharmed(
    tracer: BuiltTracer,
) -> None:
    switches: dict[str, object] = {"ASSAY_TRACER_FLUSH_MS": 10}
    arguments: dict[str, object] = {"launches": 2000, "every": 10, "pause_us": 2000}
    with short_folder() as folder:
        path = folder / "socket"
        with (
            Receiver(path, lambda hello: SCHEMA) as receiver,
            start(tracer.library, tracer.workload, path, arguments, switches) as process,
        ):
            while not list(receiver.batches(0.02)):
                assert process.poll() is None
            receiver.close()
            output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (0, "") and json.loads(output)["recorded"] < 2000


def test_an_agent_that_stops_reading_costs_a_bounded_time_and_counted_records(tracer: BuiltTracer) -> None:
    switches: dict[str, object] = {"ASSAY_TRACER_WAIT_MS": 300, "ASSAY_TRACER_STALL_MS": 60_000}
    with short_folder() as folder:
        path = folder / "socket"
        with (
            Receiver(path, lambda hello: SCHEMA) as receiver,
            start(tracer.library, tracer.workload, path, {"launches": 1_000_000}, switches) as process,
        ):
            # Nothing is read until the workload has launched all: it may wait 0.3 s in all, then it drops.
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            rows = 0
            while process.poll() is None or receiver.connected:
                rows += sum(batch.records.num_rows for batch in receiver.batches(0.02))
        (traced,) = receiver.processes
    totals = traced.totals
    assert process.returncode == 0 and said["dropped"] > 0
    assert totals["dropped_cupti"] == said["dropped"] or totals["dropped_cupti"] >= said["dropped"]
    assert (
        totals["kernels"] + totals["dropped_cupti"] + totals["dropped_tracer"]
        == totals["launches"]
        == 1_000_000
    )
    assert rows == totals["kernels"] and traced.late == 0
    assert 0.3e9 <= totals["waited_ns"] < 2e9
    assert "dropped" in next(iter(traced.faults()))


def test_an_agent_that_hangs_is_left_alone_after_a_while(tracer: BuiltTracer) -> None:
    switches: dict[str, object] = {"ASSAY_TRACER_WAIT_MS": 100, "ASSAY_TRACER_STALL_MS": 200}
    with short_folder() as folder:
        path = folder / "socket"
        with (
            Receiver(path, lambda hello: SCHEMA),
            start(tracer.library, tracer.workload, path, {"launches": 300_000}, switches) as process,
        ):
            output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (0, "") and json.loads(output)["seconds"] < SECONDS
