"""What the words of the tools mean: the tables alone."""

from __future__ import annotations

import pytest

from assay_agent.execution.classify import (
    application_failure,
    classify,
    failure_in,
    flags_in,
    own_lines,
    workload_failed,
)
from assay_agent.execution.errors import ProfilerError
from assay_agent.profilers.ncu.log import NcuLog, require_clean
from assay_core.processes.tool_run import ToolResult
from assay_sampling.running.failures import FailureClass as F
from assay_sampling.running.failures import Fault

LINES = [
    ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU", F.PERMISSION),
    ("==ERROR== Profiling failed because a driver resource was unavailable. Ensure that", F.COUNTER_BUSY),
    ("==ERROR== Failed to open/create lock file /tmp/nsight-compute-lock. Please check", F.LOCK_FILE),
    ("==ERROR== Failed to acquire the interprocess lock at /nfs/x.", F.LOCK_FILE),
    ("==ERROR== Failed to find metric nosuch.sum", F.METRIC_UNKNOWN),
    ("==ERROR== Failed to access the following metrics. When profiling on a MIG instance", F.METRIC_UNKNOWN),
    ("==ERROR== The application returned an error code (7).", F.APPLICATION_FAILED),
    ("==ERROR== './train' does not exist or is not an executable.", F.APPLICATION_FAILED),
    ("==ERROR== Nsight Compute failed to connect to the CUDA driver (stub libcuda.so", F.DRIVER_UNUSABLE),
    ("==ERROR== Failed to create temporary file. Specify the TMPDIR environment", F.DISK_FULL),
    ("==ERROR== Failed to write /x/report.ncu-rep: Read-only file system", F.DISK_FULL),
    ("ERROR: /x/trace.nsys-rep: Input/output error", F.DISK_FULL),
    ("the tool cannot be run ([Errno 5] Input/output error: 'ncu')", F.DISK_FULL),
    ("==ERROR== Could not open report file 'x'.", F.REPORT_SHORT),
    ("==ERROR== Failed to load report file 'x'.", F.REPORT_SHORT),
    ("==ERROR== unrecognised option '--bogus'. Use --help for further details.", F.INTERNAL),
    ("Importer error status: An unknown error occurred.", F.IMPORTER_FAILED),
    ("Unable to retrieve the importer version: skipping importation of the QDSTRM file.", F.IMPORTER_FAILED),
    ("Wrong event order has been detected when adding events to the collection", F.IMPORTER_FAILED),
    ("Failed to create '/x/a.nsys-rep': File exists.", F.LOCK_FILE),
    ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded. Check that a compatible", F.PERMISSION),
    ("==ERROR== Failed to prepare kernel for profiling", F.INTERNAL),
    ("NVRM: GPU at PCI:0000:3b:00: GPU has fallen off the bus.", F.GPU_UNHEALTHY),
    ("==ERROR== Cuda driver is not compatible with Nsight Compute.", F.TOOL_UNUSABLE),
]


@pytest.mark.parametrize(("line", "failure_class"), LINES)
def test_each_line_has_its_class(line: str, failure_class: F) -> None:
    with pytest.raises(ProfilerError) as caught:
        failure_in("run", ["==PROF== Connected to process 7 (/x)", line])
    assert caught.value.failure_class is failure_class
    assert caught.value.cause == f"the tool says: {line}"


@pytest.mark.parametrize(
    "line",
    [
        '==PROF== Profiling "lock_file_permission" - 0: 0%....50%....100% - 1 pass',
        '==PROF== Profiling "on_Xid (LaunchFailed)" - 1: 0%....50%....100% - 1 pass',
        "==WARNING== No kernels were profiled.",
        "==PROF== Report: /x/report.ncu-rep",
    ],
)
def test_other_lines_mean_no_failure(line: str) -> None:
    assert classify([line]) is None


def test_the_cause_counts_before_what_follows_from_it() -> None:
    lines = ["==ERROR== The application returned an error code (9).", "==ERROR== Failed to find metric x"]
    found = classify(lines)
    assert found is not None and found[0].failure_class is F.METRIC_UNKNOWN


# Where a profile fails, Nsight Compute ends the workload, and tells of its end last.
SHUT_DOWN = [
    '==ERROR== Failed to profile "gemm" in process 24701',
    "==PROF== Trying to shutdown target application",
    "==ERROR== The application returned an error code (9).",
    "==ERROR== An error occurred while trying to profile.",
    "==WARNING== No kernels were profiled.",
]


@pytest.mark.parametrize(
    ("first", "failure_class"),
    [
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded. Check that a", F.PERMISSION),
        ("==ERROR== Profiling failed because a driver resource was unavailable. Ensure", F.COUNTER_BUSY),
        ("==ERROR== Unknown Error on device 0.", F.INTERNAL),
    ],
)
def test_a_workload_that_the_tool_ended_is_not_blamed(first: str, failure_class: F) -> None:
    with pytest.raises(ProfilerError) as caught:
        failure_in("run", [first, *SHUT_DOWN], ignoring=(F.APPLICATION_FAILED,))
    assert caught.value.failure_class is failure_class


def test_a_driver_older_than_nsight_compute_is_the_boxs_fault_and_not_the_workloads() -> None:
    lines = [
        "==ERROR== Cuda driver is not compatible with Nsight Compute",
        "==ERROR== The application returned an error code (11).",
    ]
    for ignoring in ((), (F.APPLICATION_FAILED,)):
        with pytest.raises(ProfilerError) as caught:
            failure_in("run", lines, ignoring=ignoring)
        assert caught.value.failure_class is F.TOOL_UNUSABLE
        assert caught.value.failure_class.fault is Fault.BOX
        assert "driver" in caught.value.remedy and "Nsight Compute" in caught.value.remedy
    result = ToolResult(("ncu",), 11, None, "", "", 1.0)
    with pytest.raises(ProfilerError) as caught:
        require_clean("run", NcuLog.of(result, "\n".join(lines)), result, [], 0)
    assert caught.value.failure_class is F.TOOL_UNUSABLE


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "saxpy: CUDA error 46 at line 12",
        "cudaGetDeviceCount: cudaErrorDevicesUnavailable",
        "MPS client failed to connect to the MPS control daemon or the MPS server",
        "saxpy: CUDA error 805",
        "CUDA_ERROR_MPS_SERVER_NOT_READY",
    ],
)
def test_a_workload_that_gets_no_gpu_is_tried_again_at_the_boxs_cost(line: str) -> None:
    found = workload_failed("run", "it ended", f"step 1\n{line}\n")
    assert found.failure_class is F.GPU_BUSY and found.tool_said == line
    assert found.failure.retryable and found.failure_class.fault is Fault.BOX


@pytest.mark.parametrize(
    ("line", "failure_class"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB", F.GPU_MEMORY),
        ("GPUassert: out of memory saxpy.cu 31", F.GPU_MEMORY),
        ("saxpy: CUDA error 2 at line 12", F.GPU_MEMORY),
        ("jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 17179869184", F.GPU_MEMORY),
        ("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY", F.GPU_MEMORY),
        # The memory of the host, in the words of the kernel, of Go, and of Java.
        ("fork: Cannot allocate memory", F.APPLICATION_FAILED),
        ("fatal error: runtime: out of memory", F.APPLICATION_FAILED),
        ("java.lang.OutOfMemoryError: Java heap space", F.APPLICATION_FAILED),
    ],
)
def test_memory_of_the_gpu_that_runs_out_has_a_class_of_its_own(line: str, failure_class: F) -> None:
    found = workload_failed("run", "it ended", f"{line}\n")
    assert found.failure_class is failure_class
    assert found.failure_class.fault is Fault.RUN and not found.failure.retryable


PROFILED = [f'==PROF== Profiling "k" - {n}: 0%....50%....100% - 1 pass' for n in range(3)]


def test_how_a_workload_ends_counts_only_until_its_slice_is_complete() -> None:
    result = ToolResult(("ncu",), 9, None, "", "", 1.0)
    killed = NcuLog.of(
        result, "\n".join([*PROFILED, "==ERROR== The application returned an error code (9)."])
    )
    require_clean("run", killed, result, [], 3)
    for count in (0, 4):
        with pytest.raises(ProfilerError) as caught:
            require_clean("run", killed, result, [], count)
        assert caught.value.failure_class is F.APPLICATION_FAILED


def test_what_a_workload_says_of_its_gpu_counts_before_its_status() -> None:
    lines = ["==ERROR== The application returned an error code (1)."]
    with pytest.raises(ProfilerError, match="Xid 79") as caught:
        application_failure("run", lines, "step 3\nfatal: Xid 79, GPU lost\n")
    assert caught.value.failure_class is F.GPU_UNHEALTHY
    with pytest.raises(ProfilerError, match="the last words of its output: KeyError: 'x'") as caught:
        application_failure("run", lines, "Traceback\nKeyError: 'x'\n\n")
    assert caught.value.failure_class is F.APPLICATION_FAILED
    application_failure("run", ["==PROF== fine"], "KeyError")


def test_long_lines_are_quoted_short() -> None:
    with pytest.raises(ProfilerError) as caught:
        failure_in("run", ["==ERROR== ERR_NVGPUCTRPERM " + "x" * 5000])
    assert len(caught.value.cause) < 500


def test_lines_of_the_workload_are_not_the_tools() -> None:
    text = "No such file or directory\n==ERROR== one\nstep: ERROR: bad\nImporter error status: x\n"
    assert own_lines(text) == ["==ERROR== one", "Importer error status: x"]


def test_warnings_become_flags_once() -> None:
    lines = [
        "==WARNING== Failed to lock GPU clock frequencies! Try locking the clocks externally",
        "==WARNING== Profiling without locked clocks. Results might be less stable.",
    ]
    assert [(flag.name, flag.invalidates) for flag in flags_in(lines)] == [("clock_unlocked", False)]
    assert list(flags_in(["==PROF== fine"])) == []


@pytest.mark.parametrize(
    ("output", "failure_class"),
    [
        ("OSError: [Errno 28] No space left on device: '/data/x'\n", F.DISK_FULL),
        ("cp: error writing 'x': Input/output error\n", F.DISK_FULL),
        ("write: Disk quota exceeded\n", F.DISK_FULL),
        # What a workload meets also where nobody meant it to write.
        ("OSError: [Errno 30] Read-only file system: '/usr/x'\n", F.APPLICATION_FAILED),
        ("inotify: No space left on device\n" + "step\n" * 60 + "KeyError: 'x'\n", F.APPLICATION_FAILED),
        ("No space left on device\nfatal: Xid 79, GPU lost\n", F.GPU_UNHEALTHY),
    ],
)
def test_a_workload_that_ends_for_its_disk_is_tried_again_elsewhere(output: str, failure_class: F) -> None:
    found = workload_failed("run", "it ended", output)
    assert found.failure_class is failure_class
    if failure_class is F.DISK_FULL:
        assert found.tool_said and found.tool_said in found.cause and found.failure.retryable
