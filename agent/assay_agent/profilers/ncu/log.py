"""The log of Nsight Compute: the launches it reports, the failure it means, and the part that is kept.

Source: docs/nvidia-tools.md, "Messages and exit codes".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay_agent.execution.classify import (
    application_failure,
    ended_with_error,
    failure_in,
    last_words,
    own_lines,
    quoted,
    refuse_killed,
)
from assay_agent.execution.errors import ProfilerError
from assay_agent.profilers.ncu.refused_metrics import MetricsRefusedError, refused_in
from assay_core.processes.tool_run import ToolResult
from assay_sampling.running.failures import FailureClass

NOTHING = "No kernels were profiled"
_PROFILING = re.compile(r'^==PROF== Profiling ".*" - (\d+)')
_CONNECTED = re.compile(r"^==PROF== Connected to process (\d+)")
_DISCONNECTED = re.compile(r"^==PROF== Disconnected from process (\d+)")
_SHUT_DOWN = "==PROF== Trying to shutdown target application"
_SLOW = "Launching the workload is taking more time than expected"


@dataclass(frozen=True)
class NcuLog:
    """The parsed log: the tool's own lines, launches profiled, processes it was connected to.

    It connects to every process that opens the GPU, also to those that launch nothing.
    """

    lines: tuple[str, ...]
    profiled: int
    connected: frozenset[int] = frozenset()
    disconnected: frozenset[int] = frozenset()

    @classmethod
    def of(cls, result: ToolResult, text: str) -> NcuLog:
        """From the text of its log file and what it printed elsewhere."""
        lines = (*text.splitlines(), *own_lines(result.stdout), *own_lines(result.stderr))
        return cls(
            lines,
            profiled=len({match[1] for match in map(_PROFILING.match, lines) if match}),
            connected=_processes(_CONNECTED, lines),
            disconnected=_processes(_DISCONNECTED, lines),
        )


def _processes(pattern: re.Pattern[str], lines: Sequence[str]) -> frozenset[int]:
    return frozenset(int(match[1]) for match in map(pattern.match, lines) if match)


def require_clean(
    subject: str, log: NcuLog, result: ToolResult, metrics: Sequence[str], launch_count: int = 0
) -> None:
    """Raise ProfilerError if the profile failed; the caller handles a log without launches.

    Raises MetricsRefusedError if the tool refused some of the ``metrics`` that it was asked for. Once
    ``launch_count`` launches (0: all) are profiled, the tool itself ends the workload (``--kill``), so the
    workload's end then says nothing.
    """
    if launch_count and log.profiled >= launch_count:
        log = replace(log, lines=tuple(line for line in log.lines if not ended_with_error(line)))
    try:
        failure_in(subject, log.lines, ignoring=(FailureClass.APPLICATION_FAILED,))
    except ProfilerError as error:
        refused = refused_in(log.lines, metrics)
        if refused and error.failure_class is FailureClass.METRIC_UNKNOWN:
            raise MetricsRefusedError(error, refused) from error
        raise
    if not launch_count or log.profiled < launch_count:
        _refuse_stopped(subject, log, result, launch_count)
    application_failure(subject, log.lines, result.stdout + result.stderr)
    failure_in(subject, log.lines)
    refuse_killed(subject, result)
    if result.problem:
        words = last_words("\n".join(log.lines) or result.stderr)
        raise ProfilerError(
            FailureClass.INTERNAL, subject, f"Nsight Compute: {result.ending}; its last words: {words}"
        )
    errors = [line for line in log.lines if line.startswith("==ERROR==")]
    if errors:
        raise ProfilerError(
            FailureClass.INTERNAL,
            subject,
            f"an unknown error; the tool says: {quoted(errors[0])}",
        )


def _refuse_stopped(subject: str, log: NcuLog, result: ToolResult, launch_count: int) -> None:
    """Raise if the tool stopped before the workload, so the window is not complete.

    A process that ends by ``_exit`` has no line "Disconnected" either, so its absence proves nothing: seen
    with 2022.3.0 and 2024.1.1. A process with that line launches no more, however long it lives.
    """
    processes = sorted((log.connected - log.disconnected).intersection(result.left))
    if any(line.startswith(_SHUT_DOWN) for line in log.lines):
        why = "Nsight Compute was told to stop, and ended the workload"
    elif processes:
        why = f"Nsight Compute ended ({result.ending}) while process {processes[0]} of the workload still ran"
    else:
        return
    of = f" of {launch_count:,}" if launch_count else ""
    raise ProfilerError(FailureClass.WINDOW_SHORT, subject, f"{why}, after {log.profiled:,}{of} launches")


def read_log(path: Path) -> str:
    """The log; "" if the tool wrote none."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def without_launches(text: str) -> str:
    """The log with lines for the first and the last launch only."""
    lines = text.splitlines()
    middle = set([line for line in lines if _PROFILING.match(line)][1:-1])
    return "\n".join(line for line in lines if line not in middle)


def words_before_hanging(text: str) -> str:
    """The reason in the log of a tool that hangs, "" if it gives none."""
    slow = [line for line in text.splitlines() if _SLOW in line]
    # "No kernels were profiled" only appears because we ended the tool.
    lines = slow or [line for line in text.splitlines() if NOTHING not in line][-1:]
    return quoted(lines[0]) if lines else ""
