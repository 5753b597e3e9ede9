"""Processes that are forked without exec and use CUDA: nsys misses them, and runs again with its option."""

from __future__ import annotations

import shlex
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.nsys.profiler import NsightSystemsProfiler
from assay_agent.provenance.forked import ForkedProcess, forked_process, missed
from assay_agent.provenance.libraries import LoadedLibraries
from assay_core.records.work import CommandSource
from assay_sampling.launches.table import Device
from assay_sampling.readers.nsys.processes import first_calls_ns
from assay_sampling.running.failures import FailureClass
from tests.support.agent.assignments import WORK
from tests.support.sampling.reader_files import PID, nsys_call, nsys_export, nsys_kernel

SECOND = 1_000_000_000
# It maps the library (the first argument) and forks a child, or execs one, which maps it too.
PROGRAM = """
import mmap, os, subprocess, sys, time
def load():
    with open(sys.argv[1], "rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
if sys.argv[2] == "exec":
    child = subprocess.Popen([sys.executable, "-I", "-S", __file__, sys.argv[1], "alone"])
    print("ready", flush=True); child.wait()
elif sys.argv[2] == "alone":
    kept = load(); time.sleep(1.0)
elif child := os.fork():
    print(os.getpid(), child, flush=True); os.waitpid(child, 0)
else:
    kept = load(); time.sleep(1.0)
"""
# It runs the workload (its last words, from Python on) and exports a recording made beforehand.
NSYS = """#!/bin/sh
case "$1" in
--version) echo "NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0" ;;
profile)
    [ "$2" = --help ] && {{ echo "  --trace=  --sample=  --output= {option}"; exit 0; }}
    for word in "$@"; do case "$word" in --output=*) stem="${{word#--output=}}" ;; esac; done
    while [ "$1" != {python} ]; do shift; done
    "$@" || exit $?
    echo report > "$stem.nsys-rep" ;;
export)
    while [ "$1" != -o ]; do shift; done
    cp {recording} "$2" ;;
esac
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "libcuda.so.1").write_bytes(b"\x7fELF" + b"\0" * 60)
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def ended(program: Path, how: str, *, option: str = "") -> tuple[list[str], ProfilerError | None, int]:
    """The commands of nsys that traced, the failure, and the launches of a light run of the program."""
    folder = program.parent
    (folder / "tools").mkdir()
    recording = nsys_export(folder / "light.sqlite", [nsys_kernel(10, 1)], [nsys_call(5, 1)])
    script = NSYS.format(
        option=option and f"\n  {option}=", python=shlex.quote(sys.executable), recording=recording
    )
    (folder / "tools" / "nsys").write_text(script)
    (folder / "tools" / "nsys").chmod(0o755)
    device = Device(0, "Tesla V100-SXM2-16GB", f"GPU-{uuid.uuid4()}", "7.0", 80)
    gpu = MeasuredGPU(device, path=f"{folder / 'tools'}:/usr/bin:/bin")
    argv = (sys.executable, "-I", "-S", str(program), str(folder / "libcuda.so.1"), how)
    command = CommandSource(argv, {}, str(folder), 30.0)
    work = replace(WORK, level="light", profiler="nsight_systems", command=command)
    failure, launches = None, 0
    with NsightSystemsProfiler(gpu, ToolBox(), folder / "state").run(work, threading.Event()) as measurement:
        try:
            launches = sum(batch.records.num_rows for batch in measurement.batches())
        except ProfilerError as error:
            failure = error
    traced = [
        line for line in measurement.log.text.splitlines() if line.startswith("$ ") and " profile " in line
    ]
    return traced, failure, launches


@pytest.mark.processes
def test_a_forked_child_that_the_trace_lacks_makes_it_run_again_with_the_option(program: Path) -> None:
    traced, failure, launches = ended(program, "fork", option="--trace-fork-before-exec")
    assert (failure, launches) == (None, 1)
    assert ["--trace-fork-before-exec=true" in line for line in traced] == [False, True]


@pytest.mark.processes
def test_without_the_option_such_a_run_is_refused(program: Path) -> None:
    traced, failure, launches = ended(program, "fork")
    assert failure is not None
    assert (len(traced), launches) == (1, 0)
    assert failure.failure_class is FailureClass.NOTHING_PROFILED
    assert "forked without exec have loaded CUDA's library" in failure.cause
    assert failure.cause.endswith("Nsight Systems 2023.4.4.54 has no --trace-fork-before-exec")


@pytest.mark.processes
def test_a_child_that_calls_exec_is_followed_anyway(program: Path) -> None:
    traced, failure, launches = ended(program, "exec", option="--trace-fork-before-exec")
    assert (len(traced), failure, launches) == (1, None, 1)


@pytest.mark.processes
def test_a_forked_process_is_known_with_its_parent_and_its_beginning(program: Path) -> None:
    library = program.parent / "libcuda.so.1"
    before_ns = time.time_ns()
    command = [sys.executable, "-I", "-S", str(program), str(library), "fork"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"TMPDIR": str(program.parent)})
    try:
        assert run.stdout is not None
        parent, child = map(int, run.stdout.readline().split())
        loaded = LoadedLibraries(program.parent)
        loaded.begin()
        time.sleep(0.2)
        loaded.tick()
        [found] = loaded.forked
        assert forked_process(Path("/proc"), parent) is None  # it called exec
    finally:
        run.kill()
        run.communicate()
    assert (found.process, found.parent) == (child, parent)
    assert before_ns - SECOND // 10 <= found.began_ns <= time.time_ns()
    assert forked_process(Path("/proc"), 2**22 + 1) is None


def test_children_of_a_parent_that_had_used_cuda_cannot_use_it() -> None:
    child, grandchild = ForkedProcess(11, 10, 5 * SECOND), ForkedProcess(12, 11, 6 * SECOND)
    forked = [child, grandchild]
    assert missed(forked, {}) == forked
    assert missed(forked, {11: 7 * SECOND, 12: 7 * SECOND}) == []
    # The parent used CUDA before it forked, as PyTorch does that has data loaders.
    assert missed(forked, {10: 4 * SECOND}) == []
    # It forked first: both may use CUDA.
    assert missed(forked, {10: 8 * SECOND}) == forked
    assert missed(forked, {10: 8 * SECOND, 11: int(5.5 * SECOND)}) == []


def test_the_first_calls_of_an_export(tmp_path: Path) -> None:
    other = nsys_call(30, 2, globalTid=PID + (1 << 24) + 1)
    calls = [nsys_call(50, 1), nsys_call(20, 3), other]
    begin = {"TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 7 * SECOND}]}
    process = PID >> 24 & 0xFFFFFF
    path = nsys_export(tmp_path / "a.sqlite", [nsys_kernel(60, 1)], calls, extra=begin)
    assert first_calls_ns(path) == {process: 7 * SECOND + 20, process + 1: 7 * SECOND + 30}
    assert first_calls_ns(nsys_export(tmp_path / "b.sqlite", [nsys_kernel(60, 1)], calls[:1])) == {process: 0}
    assert first_calls_ns(nsys_export(tmp_path / "c.sqlite", [nsys_kernel(60, 1)])) == {}
