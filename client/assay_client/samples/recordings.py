"""Recordings of the sample workload on virtual GPUs, by the stand-ins of Nsight Compute and Nsight Systems.

The stand-ins are given the options that ``assay metrics pks`` prints for the real tools.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

from assay_sampling.counters.definitions import COST_COUNTERS, metric_of
from assay_sampling.errors import StorageError
from assay_sampling.nsight.commands import WHOLE, Window, ncu_import, ncu_profile, nsys_export, nsys_trace
from assay_sampling.nsight.measuring import measuring
from assay_sampling.nsight.tool import tool_of_release
from assay_virtual.architectures import architecture
from assay_virtual.tools.announced import EMIT_NVTX
from assay_virtual.tools.environment import DEFAULT_NCU_VERSION, DEFAULT_NSYS_VERSION, GPU_VARIABLE
from assay_virtual.tools.ncu.command import run_ncu
from assay_virtual.tools.nsys.command import run_nsys

StandIn = Callable[[Sequence[str], Mapping[str, str], TextIO, TextIO], int]

_NCU = DEFAULT_NCU_VERSION
GPU, OTHER_GPU = "V100", "RTX 3070"
# Counters of so many launches are in the window of the detailed level.
WINDOW_LAUNCHES = 100


class VirtualRecordings:
    """Recordings of a workload file. A context manager, which keeps the tools' reports while needed."""

    def __init__(self, workload: Path) -> None:
        self._workload = workload
        self._folder = TemporaryDirectory(prefix="assay-samples-")

    def __enter__(self) -> VirtualRecordings:
        return self

    def __exit__(self, *_error: object) -> None:
        self._folder.cleanup()

    def counters(self) -> str:
        """A raw page with the counters of every launch that PKS needs."""
        return self._page(GPU, _pks_metrics())

    def window(self) -> str:
        """A raw page with the same counters of the first launches, and the operators that made them."""
        return self._page(GPU, _pks_metrics(), Window(0, WINDOW_LAUNCHES), operations=True)

    def other_gpu(self) -> str:
        """A raw page with the cycles of every launch on the other GPU."""
        capability = architecture(OTHER_GPU).compute_capability
        return self._page(OTHER_GPU, [metric_of(name, capability, _NCU) for name in COST_COUNTERS])

    def trace(self, database: Path) -> None:
        """Write a database of Nsight Systems with every launch, its time, ranges and operators."""
        tool = tool_of_release("nsys", DEFAULT_NSYS_VERSION)
        stem = str(Path(self._folder.name) / "light")
        program = [str(self._workload), EMIT_NVTX]
        self._run(run_nsys, nsys_trace(tool, stem, program, operations=True), GPU)
        self._run(run_nsys, nsys_export(tool, f"{stem}.nsys-rep", str(database)), GPU)

    def _page(
        self, gpu: str, metrics: Sequence[str], window: Window = WHOLE, *, operations: bool = False
    ) -> str:
        tool = tool_of_release("ncu", _NCU)
        report = str(Path(self._folder.name) / "counters.ncu-rep")
        program = [str(self._workload), *([EMIT_NVTX] if operations else [])]
        profile = ncu_profile(tool, metrics, program, report=report, window=window, operations=operations)
        self._run(run_ncu, profile, gpu)
        return self._run(run_ncu, ncu_import(tool, report), gpu)

    def _run(self, stand_in: StandIn, argv: Sequence[str], gpu: str) -> str:
        """The standard output of a stand-in; raises StorageError where it ends with another status than 0."""
        output, errors = io.StringIO(), io.StringIO()
        # The folder is for the lock of the stand-in, too: in /tmp it may be another user's.
        variables = {GPU_VARIABLE: json.dumps({"architecture": gpu}), "TMPDIR": self._folder.name}
        status = stand_in(argv[1:], variables, output, errors)
        if status:
            lines = (errors.getvalue() or output.getvalue()).strip().splitlines()
            cause = f"the stand-in of {argv[0]} ended with status {status}: {lines[-1] if lines else ''}"
            raise StorageError(
                self._folder.name, cause, "free disk space there, or name another folder: TMPDIR"
            )
        return output.getvalue()


def _pks_metrics() -> list[str]:
    capability = architecture(GPU).compute_capability
    collected = measuring("pks", {}, compute_capability=capability, tool_version=_NCU).counters
    return [metric for _, metric in collected]
