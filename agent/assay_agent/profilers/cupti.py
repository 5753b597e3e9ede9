"""The CUPTI profiler: a light run with our own tracer injected; its launches arrive while it runs.

There is no report: kernels come over a Unix socket in the run's private folder, and counts of launch calls
prove that none is missing. A run that lost a kernel fails. Source: docs/tracer.md.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from assay_agent.execution.classify import failure_in, quoted, refuse_killed, workload_failed
from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.live import LiveMeasurement
from assay_agent.profilers.requirements import require_one_gpu, require_processes, whole_light_command
from assay_agent.tracer.build import find_tracer, why_unavailable
from assay_agent.tracer.protocol import ProblemCode
from assay_agent.tracer.receiver import Receiver, TracedProcess
from assay_core.processes.tool_run import ToolResult
from assay_core.records.work import Work
from assay_sampling.launches.table import LaunchBatch, TableMetadata, launch_schema
from assay_sampling.running.failures import FailureClass

FORMAT = "cupti-tracer"
_LOOK_SECONDS = 0.1
# The kernel closes the sockets of a workload that has ended; what they still hold is read at once.
_LEFTOVER_SECONDS = 30.0
_BUILD = "build the tracer on the box: python -m assay_agent.tracer.build"
# Class and remedy of each reason why a process is not traced.
_PROBLEMS: dict[ProblemCode, tuple[FailureClass, str]] = {
    ProblemCode.NO_CUPTI: (
        FailureClass.SERVER_REFUSED,
        "install CUPTI (the Python package nvidia-cuda-cupti, say), or name it in ASSAY_CUPTI",
    ),
    ProblemCode.CUPTI_NEWER: (
        FailureClass.SERVER_REFUSED,
        "use a newer release of Assay, or name an older CUPTI in ASSAY_CUPTI, or measure with nsys",
    ),
    ProblemCode.CUPTI_OLDER: (
        FailureClass.SERVER_REFUSED,
        "install CUPTI of CUDA 11.8 or newer, or measure with nsys",
    ),
    ProblemCode.LAYOUT: (
        FailureClass.SERVER_REFUSED,
        "measure with nsys, and report it to the authors of Assay",
    ),
    ProblemCode.SUBSCRIBED: (
        FailureClass.SERVER_REFUSED,
        "CUPTI serves one profiler a process: switch off the workload's own (torch.profiler, a debugger)",
    ),
    ProblemCode.PRIVILEGES: (FailureClass.PERMISSION, ""),
    ProblemCode.CUPTI_FAILED: (
        FailureClass.SERVER_REFUSED,
        "check that CUPTI is not newer than the driver (nvidia-smi), or measure with nsys",
    ),
    ProblemCode.MIXED_CALLS: (
        FailureClass.SERVER_REFUSED,
        "switch off the profiler that the workload starts (XLA's and JAX's use the second interface from "
        "CUPTI 13.2 on), or measure with nsys, or by a Kineto trace (the workload's key 'kineto')",
    ),
    ProblemCode.NO_MEMORY: (FailureClass.BOX_MEMORY, "give the workload's box more memory"),
}


class CuptiProfiler:
    """Light runs on one GPU; see :class:`assay_agent.profilers.seam.Profiler`."""

    name = "cupti"

    def __init__(self, gpu: MeasuredGPU, tools: ToolBox, state: Path) -> None:
        self._gpu, self._tools, self._state = gpu, tools, state

    def plan(self, work: Work) -> list[str] | None:
        """The workload's own command: its environment injects the tracer."""
        require_one_gpu(work, "Assay's tracer", "it has not been shown to record several")
        return whole_light_command(work, self._gpu, "the CUPTI tracer")

    def run(self, work: Work, cancelled: threading.Event) -> CuptiMeasurement:
        self.plan(work)
        return CuptiMeasurement(work, self._gpu, self._tools, self._state, cancelled)


class CuptiMeasurement(LiveMeasurement):
    """One light run with the tracer injected."""

    def __init__(
        self, work: Work, gpu: MeasuredGPU, tools: ToolBox, state: Path, cancelled: threading.Event
    ) -> None:
        self._ending = _Ending(cancelled)
        super().__init__(work, gpu, tools, state, self._ending)

    def require(self) -> None:
        require_tracer()

    def readable(self) -> tuple[str, ...]:
        tracer = find_tracer()
        return () if tracer is None else (str(tracer.resolve()), str(tracer))

    def batches(self) -> Iterator[LaunchBatch]:
        assert self.work.command is not None
        self.warm_up()  # launches are handed on while it runs, so that it cannot run again
        path = self.space.temporary / "tracer"
        self.environment |= tracer_environment(
            require_tracer(), path, self.gpu.device.compute_capability or ""
        )
        with Receiver(path, self._schema) as receiver, ThreadPoolExecutor(1) as executor:
            self.give(path)
            run = executor.submit(self.measure, self.work.command.argv)
            try:
                yield from self._follow(receiver, run)
            finally:
                self._ending.set()  # ends the workload if the caller wants no more
        result = run.result()
        self.take_notes(())
        for process in receiver.processes:
            self.note(described(process))
        with_kernels = [process.handed_on for process in receiver.processes if process.handed_on]
        self.flag_window(sum(with_kernels), len(with_kernels))
        if not self.cancelled:
            self._judge(result, receiver.processes)

    @property
    def cancelled(self) -> bool:
        return self._ending.by_others

    def _follow(self, receiver: Receiver, run: Future[ToolResult]) -> Iterator[LaunchBatch]:
        until = None
        limit = self.light_limit_seconds
        end = time.monotonic() + limit if limit else float("inf")
        while not self.cancelled and (until is None or (receiver.connected and time.monotonic() < until)):
            ended = run.done()
            if not ended and time.monotonic() >= end:
                self.reached_limit = True
                return  # what was handed on has no gaps; the rest is left out
            yield from receiver.batches(_LOOK_SECONDS)
            if ended and until is None:
                # Processes that connected before the workload ended still wait to be accepted.
                yield from receiver.batches(0)
                until = time.monotonic() + _LEFTOVER_SECONDS

    def _schema(self, hello: Mapping[str, Any]) -> pa.Schema:
        version = cupti_release(hello["cupti_version"])
        metadata = TableMetadata(level="light", format=FORMAT, tool="CUPTI", tool_version=version)
        return self.labelled(launch_schema(metadata), version)

    def _judge(self, result: ToolResult, processes: list[TracedProcess]) -> None:
        """Raises ProfilerError if the workload failed or nothing came; flags a loss that the counts show."""
        subject = str(self.work.key)
        if not self.reached_limit:
            refuse_killed(subject, result)
        if result.exit_code != 0 and not self.reached_limit:
            failure_in(subject, [result.problem] if result.problem else [])
            output = f"{result.stdout}\n{result.stderr}"
            raise workload_failed(subject, f"under the CUPTI tracer: {result.ending}", output)
        for process in processes:
            if process.problem is not None:
                raise problem_of(subject, process)
        missing = [detail for process in processes for detail in process.missing()]
        if missing:
            self.flag("launches_missing", "; ".join(missing))
        cut = self.reached_limit
        faults = [fault for process in processes for fault in process.faults(cut=cut)]
        untimed = sum(process.untimed for process in processes)
        if untimed and not missing:
            faults.append(f"CUPTI gave {untimed:,} kernels without their times")
        broken = any(process.broken for process in processes)
        if faults and (broken or not any(process.handed_on for process in processes)):
            raise ProfilerError(FailureClass.DROPPED_EVENTS, subject, quoted(faults[0]))
        if faults:  # the server tries again, and keeps the records of the last try
            self.flag("launches_dropped", quoted("; ".join(faults)))
        with_kernels = [number for number, process in enumerate(processes) if process.handed_on]
        if with_kernels:
            require_processes(self.work, with_kernels)
        else:
            raise ProfilerError(
                FailureClass.NOTHING_PROFILED, subject, _nothing(processes) + self.told_of_background
            )


def require_tracer() -> Path:
    """The library to inject; raises ProfilerError if it is not built."""
    path = find_tracer()
    if path is None:
        why = why_unavailable()
        raise ProfilerError(
            FailureClass.SERVER_REFUSED,
            "the CUPTI tracer",
            f"this box has none{f' ({why})' if why else ''}",
            _BUILD,
        )
    return path


def tracer_environment(tracer: Path, path: Path, compute_capability: str = "") -> dict[str, str]:
    """The variables that make CUDA and NVTX load the tracer in every process of the workload.

    ``compute_capability`` of the GPU, such as "7.0": CUPTI of CUDA 13 is skipped if it does not know that
    GPU.
    """
    cupti = os.environ.get("ASSAY_CUPTI")
    packaged = ":".join(map(str, cupti_of_packages(sys.path)))
    return {
        "CUDA_INJECTION64_PATH": str(tracer),
        "NVTX_INJECTION64_PATH": str(tracer),
        "ASSAY_TRACER_SOCKET": str(path),
        **({"ASSAY_TRACER_COMPUTE_CAPABILITY": compute_capability} if compute_capability else {}),
        **({"ASSAY_TRACER_CUPTI": cupti} if cupti else {}),
        **({"ASSAY_TRACER_CUPTI_ELSE": packaged} if packaged else {}),
    }


def cupti_of_packages(folders: Sequence[str]) -> list[Path]:
    """The libcupti of NVIDIA's Python packages in these folders, the newest first."""
    pattern = "nvidia/cu*/lib/libcupti.so.1[123]"
    libraries = [path for folder in folders if folder for path in Path(folder).glob(pattern)]
    return sorted(libraries, key=lambda path: path.name, reverse=True)


def problem_of(subject: str, process: TracedProcess) -> ProfilerError:
    """The failure for a process's problem."""
    assert process.problem is not None
    code, text = process.problem
    try:
        failure_class, remedy = _PROBLEMS[ProblemCode(code)]
    except ValueError:
        failure_class, remedy = FailureClass.INTERNAL, ""
    return ProfilerError(failure_class, subject, f"{process.label} is not traced: {quoted(text)}", remedy)


def cupti_release(version: int) -> str:
    """CUPTI's version as people write it: 130500 is 13.5; up to CUDA 12.9 it is a plain counter."""
    return f"{version // 10000}.{version // 100 % 100}" if version >= 130000 else f"API {version}"


def described(process: TracedProcess) -> str:
    """What the tracer did in a process, for the log of the attempt."""
    totals = process.totals
    driver, unnamed = process.hello.get("driver_version", 0), totals.get("names_unsent", 0)
    return (
        f"{process.label}: CUPTI {cupti_release(process.hello.get('cupti_version', 0))}, driver for CUDA "
        f"{driver // 1000}.{driver % 1000 // 10}, {totals.get('launches', 0):,} launches and "
        f"{totals.get('graph_launches', 0):,} graph launches "
        f"({totals.get('graph_launches_uncounted', 0):,} whose kernels cannot be counted), "
        f"{process.handed_on:,} kernels handed on; "
        f"launches waited {totals.get('waited_ns', 0) / 1e9:.3f} s for the agent, {unnamed:,} "
        f"NVTX ranges without a name, {process.order.device_launched:,} kernels launched by kernels left out"
    )


def _nothing(processes: list[TracedProcess]) -> str:
    if processes:
        return "no process of the workload launched a kernel"
    return "no process of the workload initialised CUDA, or its driver did not load the tracer"


class _Ending(threading.Event):
    """Set by us, or when others cancel the attempt."""

    def __init__(self, cancelled: threading.Event) -> None:
        super().__init__()
        self._cancelled = cancelled

    @property
    def by_others(self) -> bool:
        return self._cancelled.is_set()

    def is_set(self) -> bool:
        return super().is_set() or self.by_others

    def wait(self, timeout: float | None = None) -> bool:
        return self._cancelled.wait(timeout) or self.is_set()
