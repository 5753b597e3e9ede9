"""The command lines of Nsight Compute and Nsight Systems, as pure functions of tool, metrics and paths.

They set every default that differs between releases, and use only options that the tool lists. One exception:
``--app-replay-mode`` differs and is left out, because the tool refuses it together with
``--replay-mode kernel``.

Source: docs/nvidia-tools.md, "Options that Assay always gives".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay_sampling.errors import ParameterError
from assay_sampling.launches.table import BASELINE, Condition
from assay_sampling.nsight.tool import ToolVersion

# The option of Nsight Systems that follows children that are forked and never call exec.
FOLLOWS_FORKS = "--trace-fork-before-exec"
# The option of Nsight Systems that makes PyTorch announce its operators; programs without PyTorch ignore it.
ANNOTATES_PYTORCH = "--pytorch"
# A longer run should not keep all its events in the device's buffers.
_FLUSH_INTERVAL_MS = 10_000


@dataclass(frozen=True)
class Window:
    """Launches of a program: ``skip`` are left out, then ``count`` are taken; 0: all the rest."""

    skip: int = 0
    count: int = 0


WHOLE = Window()


def ncu_profile(
    tool: ToolVersion,
    metrics: Sequence[str],
    command: Sequence[str],
    *,
    report: str,
    log: str = "",
    window: Window = WHOLE,
    condition: Condition = BASELINE,
    operations: bool = False,
) -> list[str]:
    """The command that profiles a window of a program's launches.

    Args:
        metrics: by ncu's names.
        command: the program and its arguments.
        report: ends in ``.ncu-rep``, so that no release compresses it.
        log: the file for the tool's messages; "": its standard output.
        operations: record the NVTX ranges around each launch.

    Raises ParameterError for a clock that this release cannot lock.
    """
    options = [
        *_ncu(tool, "--config-file", "off"),
        *_ncu(tool, "--target-processes", "all"),
        *_ncu(tool, "--replay-mode", "kernel"),
        *_ncu(tool, "--graph-profiling", "node"),
        "--cache-control", condition.cache or "none",
        "--clock-control", _clock(tool, condition),
        *_ncu(tool, "--pipeline-boost-state", "stable"),
        *_ncu(tool, "--rename-kernels", "off"),
        *_ncu(tool, "--apply-rules", "no"),
        *_ncu(tool, "--import-source", "no"),
        *_ncu(tool, "--import-sass", "no"),
        *_ncu(tool, "--disable-extra-suffixes"),
        *_ncu(tool, "--check-exit-code", "yes"),
        *(_ncu(tool, "--nvtx") if operations else []),
        "--metrics", ",".join(metrics),
    ]  # fmt: skip
    if window.skip:
        options += ["--launch-skip", str(window.skip)]
    if window.count:
        options += ["--launch-count", str(window.count), *_ncu(tool, "--kill", "yes")]
    if log:
        options += ["--log-file", log]
    options += [*_ncu(tool, "--null-stdin"), "-f", "-o", report]
    return [tool.program, *options, *command]


def ncu_import(tool: ToolVersion, report: str) -> list[str]:
    """The command that prints a report as the raw page, in base units."""
    return [
        tool.program,
        *_ncu(tool, "--config-file", "off"),
        "--import", report,
        "--csv", "--page", "raw",
        "--print-units", "base",
        *_ncu(tool, "--print-kernel-base", "demangled"),
        *_ncu(tool, "--rename-kernels", "off"),
        *_ncu(tool, "--print-fp"),
    ]  # fmt: skip


def nsys_trace(
    tool: ToolVersion,
    stem: str,
    command: Sequence[str],
    *,
    operations: bool = False,
    forks: bool = False,
    limit_seconds: int = 0,
) -> list[str]:
    """The command that traces a program at low overhead, into ``stem`` + the suffix of the release.

    ``operations``: with the calls of cuBLAS and cuDNN, and with PyTorch's operators and their input shapes,
    if the release can annotate PyTorch (:data:`ANNOTATES_PYTORCH`). ``forks``: follow children that are
    forked without exec; NVIDIA warns that this may crash the program or let it hang. ``limit_seconds``: end
    the program after so many; 0: trace it whole.
    """
    of_operations = _nsys(tool, ANNOTATES_PYTORCH, "autograd-shapes-nvtx") if operations else []
    return [
        tool.program,
        "profile",
        *([f"--duration={limit_seconds}", "--kill=sigterm"] if limit_seconds else []),
        "--trace=cuda,nvtx,cublas,cudnn" if operations else "--trace=cuda,nvtx",
        *of_operations,
        "--sample=none",
        *(_nsys(tool, FOLLOWS_FORKS, "true") if forks else []),
        *_nsys(tool, "--cpuctxsw", "none"),
        *_nsys(tool, "--cuda-graph-trace", "node"),
        *_nsys(tool, "--cuda-memory-usage", "false"),
        # On by itself in some releases; it costs time, and can make streams wait for each other.
        *_nsys(tool, "--cuda-event-trace", "false"),
        *_nsys(tool, "--cuda-flush-interval", str(_FLUSH_INTERVAL_MS)),
        *_nsys(tool, "--stats", "false"),
        "--force-overwrite=true",
        f"--output={stem}",
        *command,
    ]


def nsys_export(tool: ToolVersion, report: str, database: str) -> list[str]:
    """The command that exports a report as SQLite."""
    return [tool.program, "export", "-t", "sqlite", "-f", "true", "-q", "true", "-o", database, report]


def _ncu(tool: ToolVersion, option: str, *value: str) -> list[str]:
    return [option, *value] if tool.has(option) else []


def _nsys(tool: ToolVersion, option: str, value: str) -> list[str]:
    return [f"{option}={value}"] if tool.has(option) else []


def _clock(tool: ToolVersion, condition: Condition) -> str:
    clock = condition.clock or "none"
    if clock == "boost" and not tool.offers("--clock-control", "boost"):
        raise ParameterError(
            "clock",
            f"Nsight Compute {tool.version} cannot lock the boost clock",
            "use clock: base or none, or Nsight Compute 2026.1 or later",
        )
    return clock
