"""The Nsight Compute profiler: a slice of a detailed run under ``ncu``, its result checked line by line.

The tool's exit status decides nothing. What counts: its log, whether the report can be imported, whether
there are as many rows as the tool said it profiled, and whether every metric has its column. Launches are
numbered launches skipped + row order; a slice behind the end of the workload is empty, which is no failure.
"""

from __future__ import annotations

import csv
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from assay_agent.conditions import under_mps
from assay_agent.profilers import ncu_command
from assay_agent.profilers.base import ProfilerError
from assay_agent.profilers.classify import (
    application_failure,
    failure_in,
    flags_in,
    last_words,
    own_lines,
    quoted,
    refuse_killed,
)
from assay_agent.profilers.environment import MeasuredGPU, require_possible
from assay_agent.profilers.live import LiveMeasurement, relabelled
from assay_agent.profilers.ncu_command import MetricPlan
from assay_agent.profilers.preflight import listing_of, missing_text
from assay_agent.profilers.tool_run import ToolResult
from assay_agent.profilers.tool_version import ToolBox, ToolVersion
from assay_agent.work import Assignment
from assay_sampling.errors import AssayError
from assay_sampling.failures import FailureClass
from assay_sampling.launch_table import LaunchBatch, counter_columns, referenced_ids

_PROFILING = re.compile(r'^==PROF== Profiling ".*" - (\d+)')
_CONNECTED = re.compile(r"^==PROF== Connected to process (\d+)")
_NOTHING = "No kernels were profiled"
_SLOW = "Launching the workload is taking more time than expected"
_HEAD_CHARACTERS = 1 << 20


class NsightComputeProfiler:
    """Detailed runs on one GPU; see :class:`assay_agent.profilers.base.Profiler`."""

    name = "nsight_compute"

    def __init__(self, gpu: MeasuredGPU, tools: ToolBox, state: Path) -> None:
        self._gpu, self._tools, self._state = gpu, tools, state

    def plan(self, work: Assignment) -> list[str] | None:
        """The command of the workload; what is put before it depends on the tool that is found."""
        if work.level != "detailed":
            raise ProfilerError(
                FailureClass.SERVER_REFUSED,
                str(work.key),
                "Nsight Compute measures detailed runs, not light ones",
            )
        require_possible(work, self._gpu)
        return list(ncu_command.require_command(work).argv)

    def run(self, work: Assignment, cancelled: threading.Event) -> NsightComputeMeasurement:
        self.plan(work)
        return NsightComputeMeasurement(work, self._gpu, self._tools, self._state, cancelled)


@dataclass(frozen=True)
class _Log:
    """What the tool said: its own lines, launches it says it profiled, processes it was connected to."""

    lines: tuple[str, ...]
    profiled: int
    processes: int


class NsightComputeMeasurement(LiveMeasurement):
    """One slice under ``ncu``."""

    def require(self) -> None:
        """Raises ProfilerError for a share of the SMs that this box's release cannot profile under."""
        if not self._under_mps:
            return
        tool = self.tool("ncu", "--help")
        if not tool.has("--mps"):
            raise ProfilerError(
                FailureClass.SERVER_REFUSED,
                str(self.work.key),
                f"Nsight Compute {tool.version} of this box does not profile under MPS (it has no option "
                "--mps), so counters at a share of the SMs would mean nothing",
                "compare shares of the SMs in light runs, or install a release of Nsight Compute with --mps",
            )

    @property
    def _under_mps(self) -> bool:
        return under_mps(self.work) and not self.gpu.synthetic

    def batches(self) -> Iterator[LaunchBatch]:
        tool = self.tool("ncu", "--help")
        metrics = self._metrics(tool)
        log = self._profile(tool, self.work, metrics)
        if log is None:
            return
        wanted = self.work
        if log.processes > 1 and wanted.launch_skip and log.profiled:
            # The tool counts what it skips over all processes together, so that the ordinals of launches
            # within their processes are known only where the whole prefix is in the report.
            self.flag(
                "processes_interleaved",
                f"{log.processes} processes launch side by side; launches before the slice were profiled "
                "again to number them, and another order of the processes makes another slice",
            )
            wanted = replace(wanted, launch_skip=0, launch_count=_stop(wanted))
            log = self._profile(tool, wanted, metrics)
            if log is None:
                return
        if log.profiled:
            yield from self._launches(tool, wanted, metrics, log)

    def _metrics(self, tool: ToolVersion) -> MetricPlan:
        """What of the run's counters this box's tool and this GPU can give; what they cannot is flagged."""
        capability = self.gpu.device.compute_capability
        listing = listing_of(
            tool, capability, self._environment, state=self._state, scratch=self.space.job, ask=self.convert
        )
        if listing.names is None:
            self.note(f"note: metrics were not checked beforehand: {listing.why}")
        metrics = ncu_command.plan_metrics(self.work, capability, tool.version, listing)
        if metrics.missing:
            self.flag("metrics_missing", missing_text(listing, tool, metrics.missing))
        return metrics

    def _profile(self, tool: ToolVersion, work: Assignment, metrics: MetricPlan) -> _Log | None:
        """Profile into the report and judge the log; None where the run was cancelled."""
        log_path = self.space.job / "ncu.log"
        command = ncu_command.profile_command(tool, work, metrics, self._report, log_path)
        if self._under_mps:
            command = ncu_command.under_mps(command)
        try:
            result = self.measure(command)
        except ProfilerError as error:
            if error.failure_class is FailureClass.HANG:
                raise self._hang(error, log_path) from error
            raise
        if self.cancelled:
            return None
        log = self._judged(result, _read_log(log_path))
        count = work.launch_count
        if log.profiled and count and log.profiled < count:
            self.flag("slice_short", f"the workload ended after {log.profiled:,} of {count:,} launches")
        return log

    def _hang(self, error: ProfilerError, log_path: Path) -> ProfilerError:
        text = _read_log(log_path)
        self._note_log(text)
        slow = [line for line in text.splitlines() if _SLOW in line]
        # That nothing was profiled, it says when it is ended: no news.
        said = slow or [line for line in text.splitlines() if _NOTHING not in line][-1:]
        cause = error.cause + (f"; the tool says: {quoted(said[0])}" if said else "")
        return ProfilerError(FailureClass.HANG, error.subject, cause)

    def _note_log(self, text: str) -> None:
        """Keep the tool's log, without a line for each launch."""
        lines = text.splitlines()
        middle = set([line for line in lines if _PROFILING.match(line)][1:-1])
        kept = [line for line in lines if line not in middle]
        if kept:
            self.note("[log]\n" + "\n".join(kept))

    def _judged(self, result: ToolResult, text: str) -> _Log:
        """The log, with flags set; raises the ProfilerError that it stands for."""
        self._note_log(text)
        subject = str(self.work.key)
        lines = (*text.splitlines(), *own_lines(result.stdout), *own_lines(result.stderr))
        log = _Log(
            lines,
            profiled=len({match[1] for match in map(_PROFILING.match, lines) if match}),
            processes=len({match[1] for match in map(_CONNECTED.match, lines) if match}),
        )
        for flag in flags_in(lines):
            self.flag(flag.name, flag.detail)
        failure_in(subject, lines, ignoring=(FailureClass.APPLICATION_FAILED,))
        application_failure(subject, lines, result.stdout + result.stderr)
        failure_in(subject, lines)
        refuse_killed(subject, result)
        if result.problem:
            raise ProfilerError(
                FailureClass.INTERNAL,
                subject,
                f"Nsight Compute: {result.ending}; its last words: {last_words(text or result.stderr)}",
            )
        errors = [line for line in lines if line.startswith("==ERROR==")]
        if errors:
            raise ProfilerError(
                FailureClass.INTERNAL,
                subject,
                f"an error that is not known; the tool says: {quoted(errors[0])}",
            )
        if not log.profiled:
            self._nothing(result, log)
        return log

    def _nothing(self, result: ToolResult, log: _Log) -> None:
        """Not one launch: the end of the workload where launches were skipped, else a failure."""
        said = next((line for line in log.lines if _NOTHING in line), "")
        if self.work.launch_skip and said:
            self.flag("slice_empty", f"the workload has at most {self.work.launch_skip:,} launches")
            return
        cause = f"the tool says: {quoted(said)}" if said else f"the tool says nothing ({result.ending})"
        raise ProfilerError(FailureClass.NOTHING_PROFILED, str(self.work.key), cause)

    @property
    def _report(self) -> Path:
        return self.space.job / "report.ncu-rep"

    def _launches(
        self, tool: ToolVersion, profiled: Assignment, metrics: MetricPlan, log: _Log
    ) -> Iterator[LaunchBatch]:
        """The rows of the report. ``profiled`` is what was profiled, from which the slice is taken."""
        from assay_sampling.readers import ReadOptions, open_recording  # noqa: PLC0415

        page = self._import(tool)
        if page is None:
            return
        self._require_columns(page, metrics)
        options = ReadOptions(synthetic=self.gpu.synthetic, launch_offset=profiled.launch_skip)
        window = _Window(self.work.launch_skip - profiled.launch_skip)
        rows, empty = 0, dict[str, int]()
        try:
            with open_recording(page, options) as recording:
                schema = self.labelled(recording.schema, tool.version)
                empty = {column.name: 0 for column in counter_columns(schema)}
                for batch in recording.batches():
                    for name in empty:
                        empty[name] += batch.records.column(name).null_count
                    rows += batch.records.num_rows
                    yield from window.part(relabelled(batch, schema))
                    if self.cancelled:
                        return
                for note in recording.notes:
                    self.note(f"note: {note}")
        except AssayError as error:
            raise ProfilerError(
                FailureClass.REPORT_SHORT, str(self.work.key), f"the raw page cannot be read: {error.cause}"
            ) from error
        missing = [f"{name}: {n:,} of {rows:,} launches" for name, n in empty.items() if n]
        if missing:
            self.flag("counters_nan", "not measured (n/a or NaN): " + "; ".join(missing))
        if rows != log.profiled:
            raise ProfilerError(
                FailureClass.REPORT_SHORT,
                str(self.work.key),
                f"the tool said that it profiled {log.profiled:,} launches, and its report has {rows:,}",
            )

    def _import(self, tool: ToolVersion) -> Path | None:
        """The raw page of the report, as a file; None where the run was cancelled."""
        subject = str(self.work.key)
        if not self._report.is_file():
            raise ProfilerError(
                FailureClass.REPORT_SHORT, subject, f"Nsight Compute wrote no report {self._report.name}"
            )
        page = self.space.job / "raw.csv"
        result = self.convert(ncu_command.import_command(tool, self._report), page)
        if self.cancelled:
            return None
        with page.open(encoding="utf-8", errors="replace") as file:
            head = file.read(_HEAD_CHARACTERS)
        lines = [line for line in own_lines(head) + own_lines(result.stderr) if line.startswith("==ERROR==")]
        failure_in(subject, lines)
        if lines or result.exit_code != 0 or not head:
            said = quoted(lines[0]) if lines else last_words(result.stderr)
            raise ProfilerError(
                FailureClass.REPORT_SHORT,
                subject,
                f"the report cannot be imported ({result.ending}); the tool says: {said}",
            )
        return page

    def _require_columns(self, page: Path, metrics: MetricPlan) -> None:
        """Raises ProfilerError where the tool left a metric out without a word."""
        with page.open(encoding="utf-8", errors="replace", newline="") as file:
            header = next((row for row in csv.reader(file) if "Kernel Name" in row), [])
        absent = [metric for metric in metrics.names if metric not in header]
        if absent:
            raise ProfilerError(
                FailureClass.METRIC_UNKNOWN,
                str(self.work.key),
                f"the report has no column for {', '.join(absent)}",
            )


def _stop(work: Assignment) -> int:
    """The first launch behind the slice; 0: it goes to the end."""
    return work.launch_skip + work.launch_count if work.launch_count else 0


class _Window:
    """Leaves the first launches of a recording out, but not the names that later ones use."""

    def __init__(self, before: int) -> None:
        self._before = before
        self._names: dict[int, str] = {}

    def part(self, batch: LaunchBatch) -> Iterator[LaunchBatch]:
        self._names.update(batch.new_names)
        records = batch.records.slice(min(self._before, batch.records.num_rows))
        self._before -= batch.records.num_rows - records.num_rows
        used = referenced_ids(records).tolist()
        names = {i: self._names.pop(i) for i in used if i in self._names}
        if records.num_rows:
            yield LaunchBatch(records, names)


def _read_log(path: Path) -> str:
    """The log; "" where the tool wrote none."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""
