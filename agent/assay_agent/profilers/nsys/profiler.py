"""The Nsight Systems profiler: a light run under ``nsys``, its report checked and exported.

``nsys`` exits with the workload's status, and with 0 if its importer failed or the report went elsewhere.
What counts: the report at the requested path, made by this attempt, its export, and diagnostics about lost
events. The report holds the whole environment of the run, so it never leaves the job's folder.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.compute as pc

from assay_agent.execution.classify import failure_in, last_words, quoted, refuse_killed, workload_failed
from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox, ToolVersion
from assay_agent.profilers.gang import require_whole_gang
from assay_agent.profilers.labelling import relabelled
from assay_agent.profilers.live import LiveMeasurement
from assay_agent.profilers.nsys import command as nsys_command
from assay_agent.profilers.requirements import require_processes, whole_light_command
from assay_agent.provenance.forked import ForkedProcess, missed
from assay_core.processes.tool_run import ToolResult
from assay_core.records.work import Work
from assay_sampling.errors import AssayError, NoLaunchesError
from assay_sampling.launches.table import LaunchBatch
from assay_sampling.nsight.commands import FOLLOWS_FORKS
from assay_sampling.running.failures import FailureClass

_CLOCK_SLACK_SECONDS = 2.0
_MOST_NAMED = 5
# How the tool ends if it ended the program at its limit; the share of it before which events still come.
_ENDED_BY_LIMIT = 128 + signal.SIGTERM
_TRACED_AT_LIMIT = 0.99
# Lines that the tool adds to the workload's output.
_ADDED = re.compile(r"Generating '|Generated:|\[\d+/\d+\] |\s+/.*\.(nsys-rep|qdrep|qdstrm)$")


class NsightSystemsProfiler:
    """Light runs on one GPU; see :class:`assay_agent.profilers.seam.Profiler`."""

    name = "nsight_systems"

    def __init__(self, gpu: MeasuredGPU, tools: ToolBox, state: Path) -> None:
        self._gpu, self._tools, self._state = gpu, tools, state

    def plan(self, work: Work) -> list[str] | None:
        """The command of the workload; the tool's part before it depends on its release."""
        return whole_light_command(work, self._gpu, "Nsight Systems")

    def run(self, work: Work, cancelled: threading.Event) -> NsightSystemsMeasurement:
        self.plan(work)
        return NsightSystemsMeasurement(work, self._gpu, self._tools, self._state, cancelled)


class NsightSystemsMeasurement(LiveMeasurement):
    """One light run under ``nsys``."""

    def batches(self) -> Iterator[LaunchBatch]:
        tool = self.tool("nsys", "profile", "--help")
        database = self._traced(tool)
        if database is not None and (missing := self._missed(database)):
            self._require_following(tool, missing)
            database = self._traced(tool, forks=True)
        if database is not None:
            yield from self._launches(tool, database)

    def _traced(self, tool: ToolVersion, *, forks: bool = False) -> Path | None:
        """Trace the workload and export the report; None if the run was cancelled."""
        stem = self.space.job / "trace"
        report = stem.with_name(stem.name + nsys_command.report_suffix(tool))
        began = time.time()
        result = self.measure(nsys_command.trace_command(tool, self.work, stem, forks=forks))
        if self.cancelled:
            return None
        self._judge(result, report, began)
        database = self._export(tool, report)
        if database is not None:
            self._judge_limit(result, database)
        return database

    def _may_be_ended(self, result: ToolResult) -> bool:
        """Whether the tool may have ended the program at its limit: that by SIGTERM, some end otherwise."""
        limit = self.light_limit_seconds
        return limit > 0 and (result.exit_code == _ENDED_BY_LIMIT or result.seconds >= limit)

    def _judge_limit(self, result: ToolResult, database: Path) -> None:
        """Find out whether the program was ended at its limit, or by itself; raises ProfilerError if that
        was with an error."""
        if not self.light_limit_seconds:
            return
        from assay_sampling.readers.nsys.session import traced_seconds  # noqa: PLC0415

        try:
            traced = traced_seconds(database)
        except AssayError as error:
            raise self._unreadable(error) from error
        at_limit = traced >= _TRACED_AT_LIMIT * self.light_limit_seconds
        self.reached_limit = result.exit_code == _ENDED_BY_LIMIT or at_limit
        if result.exit_code != 0 and not self.reached_limit:
            raise self._failed(result)

    def _failed(self, result: ToolResult) -> ProfilerError:
        output = f"{result.stdout}\n{result.stderr}"
        own = "\n".join(line for line in output.splitlines() if not _ADDED.match(line))
        return workload_failed(str(self.work.key), f"under Nsight Systems: {result.ending}", own)

    def _missed(self, database: Path) -> list[ForkedProcess]:
        """Forked processes that may have launched kernels without the tool."""
        if not self.forked:
            return []
        from assay_sampling.readers.nsys.processes import first_calls_ns  # noqa: PLC0415

        try:
            return missed(self.forked, first_calls_ns(database))
        except AssayError as error:
            raise self._unreadable(error) from error

    def _require_following(self, tool: ToolVersion, missing: Sequence[ForkedProcess]) -> None:
        """Note what is missing; raises ProfilerError if the tool cannot follow such processes."""
        listed = ", ".join(f"{each.process} (of {each.parent})" for each in missing[:_MOST_NAMED])
        more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
        cause = (
            "processes that were forked without exec have loaded CUDA's library, and the tool did not "
            f"follow them: {listed}{more}"
        )
        if not tool.has(FOLLOWS_FORKS):
            raise ProfilerError(
                FailureClass.NOTHING_PROFILED,
                str(self.work.key),
                f"{cause}; Nsight Systems {tool.version} has no {FOLLOWS_FORKS}",
                "install Nsight Systems 2022.4 or later, or let the program start its workers by spawn "
                "instead of fork",
            )
        self.note(f"note: {cause}; it runs again with {FOLLOWS_FORKS}=true")

    def _judge(self, result: ToolResult, report: Path, began: float) -> None:
        """Raises ProfilerError if the tool's end or its files show a failure."""
        subject = str(self.work.key)
        output = f"{result.stdout}\n{result.stderr}"
        raw = sorted(report.parent.glob("*.qdstrm"))
        made = report.is_file() and report.stat().st_mtime >= began - _CLOCK_SLACK_SECONDS
        refuse_killed(subject, result)
        if not made:
            failure_in(subject, [line for line in output.splitlines() if _of_importer(line)])
        if raw and not made:
            raise ProfilerError(
                FailureClass.IMPORTER_FAILED,
                subject,
                f"only the raw file {raw[0].name} is there, no report ({result.ending})",
            )
        if result.exit_code != 0 and not (made and self._may_be_ended(result)):
            if not made:
                failure_in(subject, result.stderr.splitlines())
            raise self._failed(result)
        if not made or not report.stat().st_size:
            raise ProfilerError(
                FailureClass.REPORT_SHORT,
                subject,
                f"Nsight Systems wrote no report {report.name}; its last words: {last_words(output)}",
            )

    def _export(self, tool: ToolVersion, report: Path) -> Path | None:
        """The report as SQLite; None if the run was cancelled."""
        database = report.with_suffix(".sqlite")
        result = self.convert(nsys_command.export_command(tool, report, database))
        if self.cancelled:
            return None
        if result.exit_code != 0 or not database.is_file():
            output = f"{result.stdout}\n{result.stderr}"
            failure_in(str(self.work.key), output.splitlines())
            raise ProfilerError(
                FailureClass.REPORT_SHORT,
                str(self.work.key),
                f"the report cannot be exported ({result.ending}); the tool says: {last_words(output)}",
            )
        return self.resolvable(database)

    def _launches(self, tool: ToolVersion, database: Path) -> Iterator[LaunchBatch]:
        from assay_sampling.readers.base import ReadOptions  # noqa: PLC0415
        from assay_sampling.readers.opening import open_recording  # noqa: PLC0415

        try:
            with open_recording(database, ReadOptions(synthetic=self.gpu.synthetic)) as recording:
                schema = self.labelled(recording.schema, tool.version)
                ordinals, processes, launches = set[int](), set[int](), 0
                for batch in recording.batches():
                    self.operations.add(batch)
                    launches += len(batch.records)
                    ordinals.update(pc.unique(batch.records["device"]).to_pylist())
                    processes.update(pc.unique(batch.records["process"]).to_pylist())
                    yield relabelled(batch, schema)
                    if self.cancelled:
                        return
                notes = list(recording.notes)
        except AssayError as error:
            raise self._unreadable(error) from error
        require_processes(self.work, processes)
        require_whole_gang(self.work, ordinals)
        self.take_notes(notes)
        self.flag_window(launches, len(processes))
        # A whole run has no window whose end could cut kernels off, so missing kernels were lost.
        lost = ("launches_dropped",) if self.reached_limit else ("launches_dropped", "capture_cut")
        dropped = next((note for note in notes if note.flag in lost), None)
        if dropped is not None:
            raise ProfilerError(FailureClass.DROPPED_EVENTS, str(self.work.key), quoted(dropped.text))

    def _unreadable(self, error: AssayError) -> ProfilerError:
        nothing = isinstance(error, NoLaunchesError)
        return ProfilerError(
            FailureClass.NOTHING_PROFILED if nothing else FailureClass.REPORT_SHORT,
            str(self.work.key),
            error.cause + (self.told_of_background if nothing else ""),
            "" if not nothing else FailureClass.NOTHING_PROFILED.remedy,
        )


def _of_importer(line: str) -> bool:
    """Whether a line is the tool's own, not the workload's, as far as can be told."""
    starts = ("Importer", "Unable to retrieve the importer", "Failed to create", "Wrong event order")
    return line.strip().startswith(starts) or "No space left on device" in line
