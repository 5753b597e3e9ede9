"""A profile run of the stand-in for Nsight Compute, from the first connection to the report.

The lines, their order and the exit statuses are those of the real tool; source: docs/nvidia-tools.md,
"Messages and exit codes", and strings of 2024.1.1.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import numpy as np

from assay_sampling.running.identity import Condition
from assay_virtual.tools.container import write_container
from assay_virtual.tools.environment import VirtualEnvironment, version_key
from assay_virtual.tools.kernel_names import function_name
from assay_virtual.tools.ncu.log import Log
from assay_virtual.tools.ncu.metrics import Request, UnknownMetricError, requested
from assay_virtual.tools.ncu.options import refusal_status
from assay_virtual.tools.ncu.page import print_page
from assay_virtual.tools.ncu.report import NCU_MAGIC, Results
from assay_virtual.tools.ncu.results import results_of
from assay_virtual.tools.ncu.selection import Selected, select_launches
from assay_virtual.tools.options import CommandLine
from assay_virtual.tools.program import Ending, NotExecutableError, Program, find_program
from assay_virtual.tools.trouble import cut_in_half, hang

_SHUT_DOWN = 9
_TELL_SHUT_DOWN = "Trying to shutdown target application"
_FAQ = "See https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#faq for more details."
_PERMISSION = (
    "ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
_COUNTER_BUSY = (
    "Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM) is "
    f"concurrently collecting profiling data. {_FAQ}"
)
_LOCK_FILE = (
    "Failed to open/create lock file {path}. Please check that this process has write permissions on this "
    f"file. {_FAQ}"
)
_CLOCKS = (
    "Failed to lock GPU clock frequencies! Try locking the clocks externally (e.g. using 'nvidia-smi "
    "--lock-gpu-clocks=tdp,tdp') or profile without fixed frequencies (see '--clock-control').",
    "Profiling without locked clocks. Results might be less stable.",
)
_HANG = (
    "Launching the workload is taking more time than expected. If this continues to hang, terminate the "
    "profile and re-try by profiling the range of all related launches using '--replay-mode range'. See "
    "https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#replay for more details."
)
_CHILDREN = "Profiling kernels launched by child processes requires the --target-processes all option."
_STUB = "Nsight Compute failed to connect to the CUDA driver (stub libcuda.so[.1] on path?)."
# The answer of drivers before 12.3; the virtual GPU counts kernels, never a whole graph.
_WHOLE_GRAPHS = "Driver does not support graph-based profiling"
_NO_SPACE = "Insufficient memory and disk space to save context state!"


class _Fatal(Exception):
    """Profiling cannot continue; the text is the tool's message. ``shut_down``: the program is ended."""

    def __init__(self, text: str, *, shut_down: bool = True) -> None:
        super().__init__(text)
        self.shut_down = shut_down


class ProfileRun:
    """One run; :meth:`run` gives the exit status."""

    def __init__(
        self,
        command: CommandLine,
        environment: VirtualEnvironment,
        *,
        version: str,
        variables: Mapping[str, str],
        log: Log,
        output: TextIO,
        errors: TextIO,
    ) -> None:
        self._command, self._environment, self._version = command, environment, version
        self._variables, self._log, self._output, self._errors = variables, log, output, errors
        self._faults = environment.faults
        self._ending = Ending()

    def run(self) -> int:
        report = self._report_path()
        if report is not None and not self._may_write(report):
            self._log.error(f"File {report.name} already exists. Use '-f' for overwriting the file.")
            return refusal_status(self._version)
        try:
            program = find_program(self._command.program, self._environment)
        except NotExecutableError as error:
            self._log.error(
                f"'{error}' does not exist or is not an executable. Please make sure to specify the absolute "
                f"path to '{error}' if the executable is not in the local directory."
            )
            return refusal_status(self._version)
        if "no_driver" in self._faults:
            # The real tool prints this outside its log file too.
            Log(self._errors).error(_STUB)
        self._ending = program.ending
        status, results = self._profile(program)
        status = self._complain_of_exit_code() or status
        if results is None or not results.columns.rows:
            self._log.warning("No kernels were profiled.")
            if version_key(self._version) < (2023, 1) and self._first_process_only():
                self._log.warning(_CHILDREN)
            return status
        return self._write(results, report) or status

    def _report_path(self) -> Path | None:
        name = self._command.text("export")
        if not name:
            return None
        suffix = ".ncu-repz" if version_key(self._version) >= (2026, 3) else ".ncu-rep"
        return Path(name if name.endswith((".ncu-rep", suffix)) else name + suffix)

    def _may_write(self, report: Path) -> bool:
        if "output_exists" in self._faults:
            return False
        return "force-overwrite" in self._command or not report.exists()

    def _profile(self, program: Program) -> tuple[int, Results | None]:
        """Exit status of the tool itself, and the results."""
        if program.workload is None or not any(program.totals):
            program.write_output(self._output, self._errors)
            return 0, None
        processes = range(len(program.totals))
        if self._first_process_only():
            processes = range(1)
        for process in processes:
            self._log.profile(f"Connected to process {program.process_id(process)} ({program.path})")
        for helper in range(0 if self._first_process_only() else program.workload.helpers):
            process_id = program.process_id(len(program.totals) + helper)
            self._log.profile(f"Connected to process {process_id} ({program.path})")
            self._log.profile(f"Disconnected from process {process_id}")
        try:
            with self._lock():
                status, results = 0, self._results(program)
        except _Fatal as fatal:
            status, results = 1, None
            self._log.error(str(fatal))
            if fatal.shut_down:
                self._shut_down(program)
        program.write_output(self._output, self._errors)
        for process in () if "stopped" in self._faults else processes:
            self._log.profile(f"Disconnected from process {program.process_id(process)}")
        return status, results

    def _first_process_only(self) -> bool:
        return self._command.text("target-processes") == "application-only"

    def _shut_down(self, program: Program) -> None:
        assert program.workload is not None
        kernel = function_name(next(iter(program.workload.kernels.values())).name)
        self._log.error(f'Failed to profile "{kernel}" in process {program.process_id(0)}')
        self._log.profile(_TELL_SHUT_DOWN)
        self._ending = Ending(signal=_SHUT_DOWN)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """The lock file that lets one profiled kernel run at a time (until 2024.1 for all GPUs of a box)."""
        names = (self._variables.get(name) for name in ("TMPDIR", "TMP", "TEMP", "TEMPDIR"))
        path = Path(next(filter(None, names), "/tmp")) / "nsight-compute-lock"
        try:
            if "lock_file" in self._faults:
                raise PermissionError
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise _Fatal(_LOCK_FILE.format(path=path)) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _results(self, program: Program) -> Results:
        request = self._request()
        self._refuse(request)
        selected = select_launches(program, self._environment, self._command, self._condition())
        if self._environment.sm_percent < 100:
            # A client of MPS contributes one launch under kernel replay, then runs unprofiled.
            selected = selected.first_of_each_process()
        stopped = "stopped" in self._faults
        if stopped:
            selected = selected.take(slice(len(selected) // 3))
        self._announce(selected, request)
        self._end_early(program)
        if stopped:
            self._log.profile(_TELL_SHUT_DOWN)
            self._ending = Ending(signal=_SHUT_DOWN)
        if self._faults.loses(self._environment.uuid):
            self._log.error("LaunchFailed")
            if len(selected):
                name, pid = _kernel(selected, len(selected) - 1), program.process_id(0)
                self._log.error(f'Failed to profile "{name}" in process {pid}')
        return results_of(
            selected,
            request,
            self._environment.gpu,
            program,
            version=self._version,
            nvtx="nvtx" in self._command,
            missing_values="counters_nan" in self._faults,
        )

    def _request(self) -> Request:
        gpu = self._environment.gpu.architecture
        try:
            request = requested(gpu, self._version, self._command.values.get("metrics", ()))
        except UnknownMetricError as error:
            raise _Fatal(f"Failed to find metric {error}") from error
        if "metric_unknown" in self._faults:
            named = self._faults.argument("metric_unknown").split("+")
            lacking = [metric for metric in request.counters if metric in named or named == [""]]
            if lacking:
                raise _Fatal(f"Failed to find metric {lacking[-1]}")
        return request

    def _refuse(self, request: Request) -> None:
        """Raise what keeps the first kernel from being profiled."""
        if "permission" in self._faults:
            raise _Fatal(_PERMISSION, shut_down=False)
        if "counter_busy" in self._faults:
            raise _Fatal(_COUNTER_BUSY)
        if "unsupported_gpu" in self._faults:
            raise _Fatal("Unsupported GPU")
        if self._command.text("graph-profiling") == "graph":
            raise _Fatal(_WHOLE_GRAPHS)
        if "disk_full" in self._faults and request.passes > 1:
            raise _Fatal(_NO_SPACE)

    def _condition(self) -> Condition:
        clock = self._command.text("clock-control")
        locked = "base" if clock == "base" else "boost" if clock in ("boost", "force-boost") else "none"
        if locked != "none" and "clock_unlocked" in self._faults:
            for text in _CLOCKS:
                self._log.warning(text)
            locked = "none"
        cache = "all" if self._command.text("cache-control") == "all" else "none"
        return Condition(cache=cache, clock=locked, sm_percent=self._environment.sm_percent)  # type: ignore[arg-type]

    def _announce(self, selected: Selected, request: Request) -> None:
        """A line for each launch, as it is profiled."""
        limit = self._command.count("launch-count")
        passes = "1 pass" if request.passes == 1 else f"{request.passes} passes"
        names = [[function_name(kernel.name) for kernel in part.kernels] for part in selected.parts]
        lines = []
        for number, (part, row) in enumerate(zip(selected.part.tolist(), selected.row.tolist(), strict=True)):
            name = names[part][int(selected.parts[part].kernel[row])]
            of = f" ({number + 1}/{limit})" if limit else ""
            head = f'Profiling "{name}" - {number}{of}: 0%'
            if number == 0 and "hang" in self._faults:
                self._log.profile(head)
                stubborn = self._faults.argument("hang") == "stubborn"
                hang(stubborn=stubborn, announce=lambda: self._log.warning(_HANG))
            lines.append(f"==PROF== {head}....50%....100% - {passes}\n")
        if "quiet" not in self._command:
            self._log.write("".join(lines))

    def _end_early(self, program: Program) -> None:
        """``--kill``: the program is ended after the last launch that was asked for."""
        count, skip = self._command.count("launch-count"), self._command.count("launch-skip") or 0
        if self._command.is_on("kill") and count is not None and skip + count < sum(program.totals):
            self._ending = Ending()

    def _complain_of_exit_code(self) -> int:
        code = self._ending.signal or self._ending.exit_code
        if code and self._command.is_on("check-exit-code"):
            self._log.error(f"The application returned an error code ({code}).")
            return code
        return 0

    def _write(self, results: Results, report: Path | None) -> int:
        if report is None:
            print_page(results, self._command, self._version, self._log)
            return 0
        if "report_short" in self._faults:
            rows = results.columns.rows - max(1, results.columns.rows // 3)
            columns = results.columns.head(rows)
        else:
            columns = results.columns
        try:
            if "disk_full" in self._faults:
                raise OSError
            write_container(report, NCU_MAGIC, results.document(), columns)
        except OSError:
            self._log.error(
                f"Unable to write to file {report.name}. Please verify this file is not locked, and writable."
            )
            return 1
        if "report_truncated" in self._faults:
            cut_in_half(report)
        self._log.profile(f"Report: {report.absolute()}")
        return 0


def _kernel(selected: Selected, number: int) -> str:
    part = selected.parts[int(selected.part[number])]
    return function_name(part.kernels[int(np.asarray(part.kernel)[selected.row[number]])].name)
