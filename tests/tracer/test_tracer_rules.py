"""The tracer under NVIDIA's rules: what still runs, what a reset loses, buffers a thread, graphs, workers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from assay_agent.profilers.cupti import tracer_environment
from assay_agent.tracer.build import compile_c, nvtx2_library
from assay_agent.tracer.receiver import Receiver
from tests.support.tracer.fake_builds import FLAGS, HERE
from tests.support.tracer.traced_runs import (
    SCHEMA,
    SECONDS,
    BuiltTracer,
    TracedRun,
    drain,
    expected_numbers,
    numbers,
    short_folder,
    trace,
)

pytestmark = [pytest.mark.tracer, pytest.mark.processes]


def run(tracer: BuiltTracer, switches: dict[str, object] | None = None, **arguments: object) -> TracedRun:
    return trace(tracer.library, tracer.workload, switches, **arguments)  # type: ignore[arg-type]


def test_kernels_that_run_when_the_process_ends_are_waited_for(each_tracer: BuiltTracer) -> None:
    found = run(each_tracer, {"FAKE_CUPTI_KERNEL_MS": 300}, launches=100)
    assert found.faults == []
    assert np.array_equal(numbers(found.table), expected_numbers(100))


def test_all_contexts_are_waited_for(tracer: BuiltTracer) -> None:
    found = run(tracer, {"FAKE_CUPTI_KERNEL_MS": 300}, launches=400, threads=4, devices=4)
    assert found.faults == []
    assert np.array_equal(numbers(found.table), expected_numbers(400))
    assert set(found.table["device"].to_pylist()) == {0, 1, 2, 3}


def test_a_reset_of_the_device_loses_nothing(tracer: BuiltTracer) -> None:
    found = run(tracer, {"FAKE_CUPTI_KERNEL_MS": 100}, launches=1000, reset=250)
    assert found.faults == []
    assert np.array_equal(numbers(found.table)[:2], [1, 2]) and len(found.table) == 1000


def test_a_reset_of_one_device_waits_for_no_other(tracer: BuiltTracer) -> None:
    # The first kernel of device 1 never ends; device 0 is reset four times.
    switches: dict[str, object] = {"FAKE_CUPTI_ENDLESS_DEVICE": 1, "ASSAY_TRACER_SYNC_MS": 1000}
    found = run(tracer, switches, launches=400, threads=2, devices=2, reset=50, reset_device=0)
    assert found.processes[0].totals["unsynchronised"] == 1, "at the end alone"
    of_first = found.table.filter(np.equal(found.table["device"].to_numpy(), 0))
    assert len(of_first) == 200 and of_first["duration_ns"].null_count == 0


def test_forty_threads_that_launch_have_buffers(tracer: BuiltTracer) -> None:
    found = run(tracer, launches=40_000, threads=40)
    assert found.faults == []
    assert np.array_equal(numbers(found.table), expected_numbers(40_000))


@pytest.mark.parametrize("end", ["exit", "reset"])
def test_a_kernel_that_never_ends_is_waited_for_until_the_limit_and_said(
    tracer: BuiltTracer, end: str
) -> None:
    switches: dict[str, object] = {"FAKE_CUPTI_ENDLESS": 500, "ASSAY_TRACER_SYNC_MS": 300}
    began = time.monotonic()
    found = run(tracer, switches, launches=500, **({"reset": 500} if end == "reset" else {}))
    assert time.monotonic() - began < 30 and found.exit_code == 0
    (process,) = found.processes
    assert process.ended and process.totals["unsynchronised"] == 1
    assert process.totals["launches"] == 500
    assert list(process.faults()) == []
    (missing,) = process.missing()
    assert "ASSAY_TRACER_SYNC_MS" in missing and "had not ended" in missing


def test_resets_do_not_wait_again_for_a_helper_that_is_late(tracer: BuiltTracer) -> None:
    switches: dict[str, object] = {"FAKE_CUPTI_ENDLESS": 5, "ASSAY_TRACER_SYNC_MS": 1000}
    began = time.monotonic()
    found = run(tracer, switches, launches=100, reset=10)
    assert time.monotonic() - began < 8
    assert 1 <= found.processes[0].totals["unsynchronised"] <= 10


@pytest.mark.parametrize("graph", ["plain", "nested"])
def test_kernels_of_a_graph_launch_that_are_lost_are_missed(tracer: BuiltTracer, graph: str) -> None:
    first = 2 if graph == "nested" else 1  # adding the child is a call, too
    whole = run(tracer, launches=2000, graphs=10, nodes=6, graph=graph)
    assert whole.faults == [] and whole.processes[0].totals["graph_kernels_expected"] == 200 * 6
    assert np.array_equal(numbers(whole.table), expected_numbers(2000, graphs=10, nodes=6, first=first))
    found = run(tracer, {"FAKE_CUPTI_LOSE_EVERY": 300}, launches=500, graphs=1, nodes=6, graph=graph)
    assert any("graph launches should have" in fault for fault in found.faults), found.faults


@pytest.mark.parametrize("graph", ["conditional", "disabled"])
def test_graphs_whose_kernels_cannot_be_counted_are_told(tracer: BuiltTracer, graph: str) -> None:
    found = run(tracer, launches=300, graphs=3, nodes=4, graph=graph)
    assert found.faults == []
    totals = found.processes[0].totals
    assert (totals["graph_launches"], totals["graph_launches_uncounted"]) == (100, 100)
    first, nodes = (2, 3) if graph == "disabled" else (1, 4)
    assert np.array_equal(numbers(found.table), expected_numbers(300, graphs=3, nodes=nodes, first=first))


def test_a_counted_graph_launch_is_handed_on_without_waiting_for_flushes(tracer: BuiltTracer) -> None:
    # One flush in ten seconds: only full buffers come before the end.
    switches: dict[str, object] = {"ASSAY_TRACER_FLUSH_MS": 10_000, "FAKE_CUPTI_IN_STREAMS": 1}
    found = run(tracer, switches, launches=60_000, graphs=10)
    assert found.faults == []
    assert np.array_equal(numbers(found.table), expected_numbers(60_000, graphs=10))
    assert sum(batch.num_rows for batch in found.batches[:-1]) > len(found.table) / 2


def test_ranges_of_nvtx_version_2_are_those_of_version_3(tracer: BuiltTracer) -> None:
    library = nvtx2_library()
    if not library.is_file():
        pytest.skip(f"NVTX version 2 was not fetched: {library} ('make tracer' does)")
    found = run(tracer, {"NVTX2_LIBRARY": library}, launches=12, threads=2, nvtx=2)
    assert found.faults == []
    assert sorted(filter(None, found.texts("nvtx_id"))) == ["backward"] * 6 + ["forward"] * 6


@pytest.mark.parametrize("end", ["exit", "_exit", "_Exit", "quick_exit"])
def test_forked_workers_that_use_cuda_are_traced_however_they_end(tracer: BuiltTracer, end: str) -> None:
    found = run(tracer, launches=500, child="worker", children=3, end=end)
    assert found.faults == [] and found.exit_code == 0
    assert [process.handed_on for process in found.processes] == [500, 500, 500]


_POOL = """
import ctypes, multiprocessing, sys

def work(number):
    fake = ctypes.CDLL(sys.argv[1])
    rule = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32)(lambda correlation: 0)
    fake.fake_init()
    for _ in range(100 + number):
        fake.fake_call(rule)

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(max(worker.exitcode for worker in workers))
"""


def test_workers_of_pythons_multiprocessing_are_traced(tracer: BuiltTracer) -> None:
    (fake,) = tracer.workload.parent.glob("libcupti.so.*")
    with short_folder() as folder, Receiver(folder / "socket", lambda hello: SCHEMA) as receiver:
        command = [sys.executable, "-c", _POOL, str(fake)]
        environment = tracer_environment(tracer.library, folder / "socket")
        with subprocess.Popen(command, env=environment) as process:
            drain(receiver, process)
    assert process.returncode == 0
    assert sorted(traced.handed_on for traced in receiver.processes) == [100, 101, 102]
    assert [fault for traced in receiver.processes for fault in traced.faults()] == []


@pytest.mark.parametrize("aside", ["fork", "vfork"])
def test_children_made_while_threads_launch_neither_hang_nor_hand_over(
    tracer: BuiltTracer, aside: str
) -> None:
    # CUPTI holds a lock of its own at a fork, and when it asks for a buffer, which it does after each flush.
    # A vfork child has its parent's memory.
    switches: dict[str, object] = {"ASSAY_TRACER_FLUSH_MS": 1, "FAKE_CUPTI_KERNEL_MS": 0}
    found = run(tracer, switches, launches=20_000, threads=4, aside=aside, alarm_ms=60_000)
    assert found.exit_code == 0 and found.faults == []
    assert len(found.processes) == 1
    assert np.array_equal(np.sort(numbers(found.table)), expected_numbers(20_000))


def test_a_thread_that_stands_still_between_its_number_and_its_call_loses_no_launch(
    tracer: BuiltTracer,
) -> None:
    # Other threads' later kernels have long been handed on when the call of such a thread is told.
    switches: dict[str, object] = {
        "ASSAY_TRACER_FLUSH_MS": 1, "FAKE_CUPTI_KERNEL_MS": 0, "FAKE_CUDA_LATE_EVERY": 501,
    }  # fmt: skip
    found = run(tracer, switches, launches=20_000, threads=4, pause_us=1000, every=100)
    assert found.exit_code == 0 and found.faults == []
    assert np.array_equal(np.sort(numbers(found.table)), expected_numbers(20_000))
    assert np.array_equal(found.table["launch"].to_numpy(), np.arange(20_000))


_FAILING_CHILDREN = """
import ctypes, os, subprocess, sys
fake = ctypes.CDLL(sys.argv[1])
rule = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32)(lambda correlation: 0)
fake.fake_init()
for _ in range(10):
    fake.fake_call(rule)
    for options in ({}, {"preexec_fn": os.getpid}):
        try:
            subprocess.run(["/nobody"], **options)
        except FileNotFoundError:
            pass
    subprocess.run(["true"], check=True)
"""


def test_pythons_subprocesses_leave_the_records_of_their_parent_alone(tracer: BuiltTracer) -> None:
    (fake,) = tracer.workload.parent.glob("libcupti.so.*")
    with short_folder() as folder, Receiver(folder / "socket", lambda hello: SCHEMA) as receiver:
        command = [sys.executable, "-c", _FAILING_CHILDREN, str(fake)]
        environment = {**os.environ, **tracer_environment(tracer.library, folder / "socket")}
        with subprocess.Popen(command, env=environment) as process:
            drain(receiver, process)
    assert process.returncode == 0
    assert [traced.handed_on for traced in receiver.processes] == [10]
    assert [fault for traced in receiver.processes for fault in traced.faults()] == []


def test_a_signal_handler_that_ends_the_process_within_a_call_of_cupti_does_not_hang(
    tracer: BuiltTracer,
) -> None:
    switches: dict[str, object] = {"ASSAY_TRACER_SYNC_MS": 300, "ASSAY_TRACER_WAIT_MS": 300}
    found = run(tracer, switches, launches=100, end="within", alarm_ms=60_000)
    assert found.exit_code == 0
    assert "without sending its last records" in found.faults[0]


def test_a_library_that_is_half_linked_when_a_context_is_made_is_left_alone_until_it_is_whole(
    tracer: BuiltTracer,
) -> None:
    library = tracer.workload.parent / "libslow.so"
    compile_c([HERE / "slow_library.c"], library, [], (*FLAGS, "-fPIC", "-shared", "-Wl,-z,lazy"))
    # The tracer looks at the library soon after it is whole: two seconds are left for that.
    found = run(tracer, launches=100, loads=library, end="library", pause_us=200_000, every=10)
    assert found.exit_code == 0 and found.faults == []
    assert len(found.table) == 101, "one is launched while it is linked"


def test_a_signal_handler_that_ends_the_process_within_a_reset_does_not_hang(tracer: BuiltTracer) -> None:
    began = time.monotonic()
    found = run(tracer, {"FAKE_CUPTI_ENDLESS": 50}, launches=100, reset=100, alarm_ms=2000)
    assert found.exit_code == 7 and time.monotonic() - began < 25, "not the limit of 30 seconds"
    assert "without sending its last records" in found.faults[0]


def test_forked_children_of_threads_that_push_ranges_never_hang(tracer: BuiltTracer, forks: Path) -> None:
    environment = tracer_environment(tracer.library, Path("/nobody"))
    done = subprocess.run(
        [str(forks), str(fork_count())],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == (f"0 of {fork_count()} hung\n", "", 0)


def fork_count() -> int:
    return int(os.environ.get("ASSAY_TRACER_FORKS", "60"))
