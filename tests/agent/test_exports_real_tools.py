"""Reports that NVIDIA's own tools export for us: of a real GPU, and what they say of damaged ones."""

from __future__ import annotations

import sys
import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.nsys.profiler import NsightSystemsProfiler
from assay_client.recordings import analyses
from assay_core.records.work import CommandSource
from assay_sampling.errors import InputError, NoLaunchesError
from assay_sampling.launches.table import Device
from assay_sampling.running.failures import FailureClass
from tests.support.agent.assignments import WORK
from tests.support.agent.nvidia_tools import RealTools

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def _tools(nvidia: RealTools, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in nvidia.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("assay_sampling.readers.opening.can_read_reports", lambda: False)


def test_a_report_of_a_gpu_is_imported_by_ncu(shared_data: Path) -> None:
    """An RTX 3070, Nsight Compute 2022.3."""
    found = analyses.inspect(shared_data / "ncu" / "rtx3070_daxpy_3_kernels.ncu-rep", top=1)
    assert (found["format"], found["launches"], found["synthetic"]) == ("ncu-raw-csv", 3, False)
    assert found["devices"] == ["NVIDIA GeForce RTX 3070"]
    (kernel,) = found["top"]["kernels"]
    assert (kernel["name"], kernel["cost"]) == ("daxpy_kernel(int, double, double *, double *)", 249_216)


def make_report(nvidia: RealTools, report: Path) -> None:
    """A report without launches. nsys 2022.4 hangs now and then when it generates one: it is tried again."""
    profile = ("profile", "-t", "nvtx", "-s", "none", "-f", "true", "-o", report, "/bin/true")
    for _ in range(10):
        tried = nvidia.run(Path("/usr/bin/timeout"), "-k", "2", "10", nvidia.generation.nsys, *profile)
        if tried.status == 0 and report.exists():
            return
    raise AssertionError(f"nsys made no report: {tried}")


def test_reports_of_nsys_are_exported(nvidia: RealTools, tmp_path: Path) -> None:
    report = tmp_path / "true.nsys-rep"
    make_report(nvidia, report)
    with pytest.raises(NoLaunchesError) as nothing:
        analyses.inspect(report)
    assert nothing.value.path == str(report)
    report.write_bytes(report.read_bytes()[:100])
    with pytest.raises(InputError) as cut:
        analyses.inspect(report)
    assert "failed (exit status 1); it says: Exportation error" in cut.value.cause


def test_nsys_follows_forks_where_the_trace_lacks_one(nvidia: RealTools, tmp_path: Path) -> None:
    """Without a GPU nothing is launched: what counts is that nsys takes the option and its trace is read."""
    library = nvidia.generation.driver / "libcuda.so.1"
    program = tmp_path / "program.py"
    program.write_text(
        "import mmap, os, sys, time\n"
        "if child := os.fork():\n    os.waitpid(child, 0)\n"
        "else:\n    file = open(sys.argv[1], 'rb')\n"
        "    kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); time.sleep(3)\n"
    )
    device = Device(0, "RTX 3070", f"GPU-{uuid.uuid4()}", "8.6", 46)
    gpu = MeasuredGPU(device, path=f"{nvidia.generation.folder / 'bin'}:/usr/bin:/bin")
    command = CommandSource((sys.executable, "-I", str(program), str(library)), {}, str(tmp_path), 60.0)
    work = replace(WORK, level="light", profiler="nsight_systems", command=command)
    profiler = NsightSystemsProfiler(gpu, ToolBox(), tmp_path / "state")
    with profiler.run(work, threading.Event()) as measurement, pytest.raises(ProfilerError) as caught:
        list(measurement.batches())
    traced = [line for line in measurement.log.text.splitlines() if line.startswith("$ ") and "=cuda" in line]
    assert ["--trace-fork-before-exec=true" in line for line in traced] == [False, True], caught.value
    assert caught.value.failure_class is FailureClass.NOTHING_PROFILED
