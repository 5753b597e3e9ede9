"""The program that a stand-in profiles: a workload file on the virtual GPU, or any other executable.

An argument vector that names a workload file (its first element that ends in ``.toml``) is that workload;
further arguments belong to the workload and are ignored. Any other executable is really run: like a program
without kernels, it launches nothing on a virtual GPU.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from assay_sampling.errors import InputError
from assay_sampling.running.identity import Condition, Level
from assay_virtual.model.gpu import ProcessLaunches
from assay_virtual.tools.environment import VirtualEnvironment
from assay_virtual.workloads.loading import load_workload
from assay_virtual.workloads.workload import Workload

# Above the largest process ID of Linux, so that no tool ever signals another process by it.
FIRST_PROCESS_ID = 4_200_001
_THREADS_APART = 256  # more than a workload has processes
_UNREADABLE_WORKLOAD, _NO_DRIVER, _GPU_LOST = 2, 1, 1


class NotExecutableError(Exception):
    """The program does not exist; never leaves the stand-ins."""


@dataclass(frozen=True)
class Ending:
    """How a program ended: its exit status, or the signal that killed it."""

    exit_code: int = 0
    signal: int = 0


@dataclass(frozen=True)
class Program:
    """A program and how it will end. ``totals`` are the launches that each process makes until then."""

    path: Path
    arguments: tuple[str, ...]
    ending: Ending
    totals: tuple[int, ...] = ()
    workload: Workload | None = None
    output: str = ""
    complaint: str = ""

    def process_id(self, process: int) -> int:
        return FIRST_PROCESS_ID + process

    def thread_id(self, process: int, thread: int) -> int:
        """The ID of a thread: of the first that of its process, as in Linux."""
        return self.process_id(process) + _THREADS_APART * thread

    def write_output(self, output: TextIO, errors: TextIO) -> None:
        """The program's own output."""
        output.write(self.output)
        output.flush()
        errors.write(self.complaint)
        errors.flush()


def find_program(arguments: Sequence[str], environment: VirtualEnvironment) -> Program:
    """Examine a command; raises NotExecutableError if it cannot be run."""
    workload = next((Path(text) for text in arguments if text.endswith(".toml")), None)
    if workload is not None:
        if not workload.is_file():
            raise NotExecutableError(str(workload))
        return _virtual_program(workload, arguments, environment)
    path = shutil.which(arguments[0])
    if path is None:
        raise NotExecutableError(arguments[0])
    ended = subprocess.run([path, *arguments[1:]], check=False, capture_output=True, text=True)
    ending = Ending(signal=-ended.returncode) if ended.returncode < 0 else Ending(ended.returncode)
    return Program(Path(path), tuple(arguments), ending, output=ended.stdout, complaint=ended.stderr)


def run_launches(
    program: Program,
    environment: VirtualEnvironment,
    process: int,
    *,
    level: Level,
    condition: Condition,
    skip: int = 0,
    stop: int | None = None,
) -> ProcessLaunches:
    """Launches [skip, stop) of one process of a workload, up to where it ends."""
    assert program.workload is not None
    stop = program.totals[process] if stop is None else min(stop, program.totals[process])
    gpu, _ = environment.gpus[environment.ordinal_of(process)]
    return gpu.execute(
        program.workload,
        level=level,
        condition=condition,
        process=process,
        skip=skip,
        count=max(0, stop - skip),
    )[0]


def _virtual_program(path: Path, arguments: Sequence[str], environment: VirtualEnvironment) -> Program:
    command = tuple(arguments)
    path = path.absolute()
    try:
        workload = load_workload(path)
    except InputError as error:
        return Program(path, command, Ending(_UNREADABLE_WORKLOAD), complaint=f"assay-virtual: {error}\n")
    ranks, gpus = workload.processes, len(environment.gpus)
    if ranks == 1:
        # A rank on every GPU: each is a process of its own, so its random draws are its own.
        workload, ranks = replace(workload, processes=gpus), gpus
    elif ranks % gpus:
        complaint = f"assay-virtual: {ranks} ranks cannot share {gpus} GPUs evenly\n"
        return Program(path, command, Ending(_UNREADABLE_WORKLOAD), complaint=complaint)
    totals = tuple(
        workload.launches(process, environment.gpus[process % gpus][0].architecture.compute_capability)
        for process in range(ranks)
    )
    faults, ending, complaint = environment.faults, Ending(), ""
    if "no_driver" in faults:
        complaint = "assay-virtual: CUDA error 100 (no CUDA-capable device is detected)\n"
        totals, ending = tuple(0 for _ in totals), Ending(_NO_DRIVER)
    elif "nothing_profiled" in faults:
        totals = tuple(0 for _ in totals)
    elif environment.loses_a_gpu:
        totals, ending = tuple(n // 3 for n in totals), Ending(_GPU_LOST)
        complaint = "assay-virtual: CUDA error 719 (unspecified launch failure)\n"
    elif "application_failed" in faults:
        totals, ending = tuple(n // 2 for n in totals), Ending(faults.number("application_failed"))
        complaint = "assay-virtual: the workload failed (simulated fault)\n"
    elif "application_killed" in faults:
        totals, ending = tuple(n // 2 for n in totals), Ending(signal=faults.number("application_killed"))
    output = "".join(
        f"assay virtual {workload.workload}: process {process} made {total} launches\n"
        for process, total in enumerate(totals)
    )
    return Program(path, command, ending, totals, workload, output, complaint)
