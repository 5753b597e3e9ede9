"""The command lines of Nsight Systems, as pure functions of tool, work and paths.

Source: notes on Nsight Systems, sections 2 and 6b.
"""

from __future__ import annotations

from pathlib import Path

from assay_agent.profilers.tool_version import ToolVersion
from assay_agent.work import Assignment

# Longer runs should not keep all their events in the buffers of the device.
_FLUSH_INTERVAL_MS = 10_000


def report_suffix(tool: ToolVersion) -> str:
    """What the tool adds to the name of a report; ``.qdrep`` until 2021.3."""
    return ".nsys-rep" if tool.at_least(2021, 4) else ".qdrep"


def trace_command(tool: ToolVersion, work: Assignment, stem: Path) -> list[str]:
    """The command that traces a light run into ``stem`` + :func:`report_suffix`, at low overhead."""
    assert work.command is not None
    return [
        tool.program,
        "profile",
        "--trace=cuda,nvtx",
        "--sample=none",
        *_known(tool, "--cpuctxsw", "none"),
        *_known(tool, "--cuda-graph-trace", "node"),
        *_known(tool, "--cuda-memory-usage", "false"),
        # On by itself in some releases; it costs time, and can make streams wait for each other.
        *_known(tool, "--cuda-event-trace", "false"),
        *_known(tool, "--cuda-flush-interval", str(_FLUSH_INTERVAL_MS)),
        *_known(tool, "--stats", "false"),
        "--force-overwrite=true",
        f"--output={stem}",
        *work.command.argv,
    ]


def export_command(tool: ToolVersion, report: Path, database: Path) -> list[str]:
    """The command that exports a report as SQLite."""
    return [
        tool.program, "export", "-t", "sqlite", "-f", "true", "-q", "true", "-o", str(database), str(report),
    ]  # fmt: skip


def _known(tool: ToolVersion, option: str, value: str) -> list[str]:
    return [f"{option}={value}"] if tool.has(option) else []
