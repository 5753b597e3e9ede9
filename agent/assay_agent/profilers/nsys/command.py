"""The command lines of Nsight Systems for a light run; the options are those of
:mod:`assay_sampling.nsight.commands`."""

from __future__ import annotations

from pathlib import Path

from assay_core.records.work import Work
from assay_sampling.nsight import commands
from assay_sampling.nsight.tool import ToolVersion


def report_suffix(tool: ToolVersion) -> str:
    """The suffix that the tool gives a report; ``.qdrep`` until 2021.3."""
    return ".nsys-rep" if tool.at_least(2021, 4) else ".qdrep"


def trace_command(tool: ToolVersion, work: Work, stem: Path, *, forks: bool = False) -> list[str]:
    """The command that traces a light run into ``stem`` + :func:`report_suffix`, at low overhead; ``forks``:
    with children that are forked without exec."""
    assert work.command is not None
    return commands.nsys_trace(
        tool,
        str(stem),
        work.command.argv,
        operations=work.command.operations,
        forks=forks,
        limit_seconds=work.command.light_limit_s,
    )


def export_command(tool: ToolVersion, report: Path, database: Path) -> list[str]:
    """The command that exports a report as SQLite."""
    return commands.nsys_export(tool, str(report), str(database))
