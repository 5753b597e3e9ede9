"""Lets this machine's own Nsight read its reports: ``nsys export``, and ``ncu --import``.

Source: docs/recordings.md, "Reports of Nsight".
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

from assay_core.processes.tool_run import ToolResult, run_tool
from assay_sampling.errors import InputError, MissingExtraError, ParameterError
from assay_sampling.nsight.commands import ncu_import, nsys_export
from assay_sampling.nsight.tool import PRODUCTS, ToolVersion, is_newer, tool_of_release
from assay_sampling.readers.base import ToolReport

# Exports take about a second for 10 MB; a tool that takes ten times as long hangs.
LEAST_SECONDS = 120.0
_SECONDS_A_BYTE = 1e-6
_QUESTION_SECONDS = 60.0
_VERSION = re.compile(r"\b[Vv]ersion:?\s+(\d{4}\.\d+(?:\.\d+)*)")
_OUTPUTS = {"ncu": "raw.csv", "nsys": "export.sqlite"}
_BY_HAND = {
    "ncu": "ncu --import REPORT --csv --page raw --print-units base",
    "nsys": "nsys export -t sqlite REPORT",
}
_LONGEST_WORDS = 300
_HEAD_CHARACTERS = 1 << 16
# Otherwise ncu copies its section files into the home at its first start.
_WITHOUT_FILES_IN_HOME = {"NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1"}


def export_report(report: ToolReport, folder: Path) -> Path:
    """Export a report into a folder with the tool of that name in the PATH: SQLite, or a raw page.

    Raises MissingExtraError for a report of Nsight Compute where there is neither its tool nor our extra,
    InputError where the tool is missing, too old, fails, writes nothing, or does not end.
    """
    tool = _tool(report, folder)
    output = folder / _OUTPUTS[report.tool]
    given = str(report.plain.absolute())
    if report.tool == "ncu":
        _run(report, tool, ncu_import(tool, given), folder, output)
    else:
        _run(report, tool, nsys_export(tool, given, str(output)), folder, None)
    if not output.is_file() or not output.stat().st_size:
        raise _refused(report, tool, "ended well and wrote nothing")
    return output


def _tool(report: ToolReport, folder: Path) -> ToolVersion:
    path = shutil.which(report.tool)
    product = PRODUCTS[report.tool]
    if path is None and report.tool == "ncu":
        raise MissingExtraError(
            f"reading {report.path}",
            "ncu_report",
            "ncu-report",
            instead="put the ncu of Nsight Compute into the PATH",
        )
    if path is None:
        raise InputError(
            report.path,
            f"it is a report of {product}, and {report.tool} is not in the PATH to export it",
            f"put {report.tool} into the PATH, or export it where it was made: {_BY_HAND[report.tool]}",
        )
    ended = _ended([path, "--version"], folder, _QUESTION_SECONDS)
    version_match = _VERSION.search(ended.stdout + ended.stderr)
    if version_match is None:
        words = _words(ended.stdout + ended.stderr)
        raise InputError(
            report.path,
            f"{path} --version does not answer as {product} does ({ended.ending}); it says: {words}",
            f"put a {report.tool} that works into the PATH, or export it where it was made: "
            f"{_BY_HAND[report.tool]}",
        )
    if report.tool == "nsys":
        return ToolVersion(path, version_match[1])  # every release exports with the same options
    try:
        return replace(tool_of_release(report.tool, version_match[1]), program=path)
    except ParameterError as error:
        raise InputError(report.path, f"{path}: {error.cause}", error.remedy) from error


def _run(report: ToolReport, tool: ToolVersion, command: list[str], folder: Path, page: Path | None) -> None:
    """Run the export; ``page`` is the file for its standard output. Raises InputError where it failed."""
    limit_seconds = LEAST_SECONDS + _SECONDS_A_BYTE * report.plain.stat().st_size
    ended = _ended(command, folder, limit_seconds, page)
    if ended.timed_out:
        raise _refused(report, tool, f"had not ended after {limit_seconds:,.0f} seconds, and was ended")
    if ended.exit_code != 0:
        words = _words(ended.stderr + ended.stdout + (_head(page) if page else ""))
        raise _refused(report, tool, f"failed ({ended.ending}); it says: {words}")


def _ended(command: list[str], folder: Path, seconds: float, page: Path | None = None) -> ToolResult:
    environment = {**os.environ, "LC_ALL": "C", **_WITHOUT_FILES_IN_HOME}
    return run_tool(
        command, environment=environment, directory=folder, timeout_seconds=seconds, stdout_path=page
    )


def _refused(report: ToolReport, tool: ToolVersion, cause: str) -> InputError:
    product = PRODUCTS[report.tool]
    if is_newer(report.written_by, tool.version):
        cause = f"{cause}; the report was written by {product} {report.written_by}, which is newer"
    return InputError(
        report.path,
        f"{tool.program} ({product} {tool.version}) {cause}",
        f"put the {report.tool} that wrote it, or a newer one, into the PATH, or export it where it was "
        f"made: {_BY_HAND[report.tool]}",
    )


def _head(page: Path) -> str:
    """The beginning of a page, which has the errors of a tool that printed no page."""
    with page.open(encoding="utf-8", errors="replace") as file:
        return file.read(_HEAD_CHARACTERS)


def _words(text: str) -> str:
    """The last line that is an error, else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["nothing"]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines)[-1][:_LONGEST_WORDS]
