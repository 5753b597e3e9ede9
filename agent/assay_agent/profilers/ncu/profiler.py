"""The Nsight Compute profiler: a slice of a detailed run under ``ncu``, its result checked line by line.

The tool's exit status is ignored. What counts: its log, whether the report can be imported, whether it has as
many rows as launches were reported, and whether every metric has its column. Launches are numbered launches
skipped + row order; a slice after the end of the workload is empty, which is not a failure.
"""

from __future__ import annotations

import csv
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.compute as pc

from assay_agent.conditions import under_mps
from assay_agent.execution.classify import failure_in, flags_in, last_words, own_lines, quoted
from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox, ToolVersion
from assay_agent.profilers.labelling import relabelled
from assay_agent.profilers.live import LiveMeasurement
from assay_agent.profilers.ncu import command as ncu_command
from assay_agent.profilers.ncu.command import MetricPlan
from assay_agent.profilers.ncu.launch_window import LaunchWindow
from assay_agent.profilers.ncu.log import (
    NOTHING,
    NcuLog,
    read_log,
    require_clean,
    without_launches,
    words_before_hanging,
)
from assay_agent.profilers.ncu.preflight import Listing, listing_of, missing_text
from assay_agent.profilers.ncu.profiling_lock import profiling_turn, takes_turns
from assay_agent.profilers.ncu.refused_metrics import MOST_ROUNDS, MetricsRefusedError, refusal_memory
from assay_agent.profilers.requirements import require_command, require_one_gpu, require_possible
from assay_core.processes.tool_run import ToolResult
from assay_core.records.work import Work
from assay_sampling.errors import AssayError
from assay_sampling.launches.table import LaunchBatch, counter_columns
from assay_sampling.running.failures import FailureClass

_HEAD_CHARACTERS = 1 << 20
# Source: NVIDIA's command line reference of 2026.3, "Mandatory Concurrent Kernels".
_ONE_AFTER_THE_OTHER = (
    "it runs kernels one after the other, so those that wait for kernels of other GPUs (NCCL) would hang"
)


class NsightComputeProfiler:
    """Detailed runs on one GPU; see :class:`assay_agent.profilers.seam.Profiler`."""

    name = "nsight_compute"

    def __init__(self, gpu: MeasuredGPU, tools: ToolBox, state: Path) -> None:
        self._gpu, self._tools, self._state = gpu, tools, state

    def plan(self, work: Work) -> list[str] | None:
        """The command of the workload; the tool's part before it depends on its release."""
        if work.level != "detailed":
            raise ProfilerError(
                FailureClass.SERVER_REFUSED,
                str(work.key),
                "Nsight Compute measures detailed runs, not light ones",
            )
        require_possible(work, self._gpu)
        require_one_gpu(work, "Nsight Compute", _ONE_AFTER_THE_OTHER)
        _require_no_share(work)
        return list(require_command(work).argv)

    def run(self, work: Work, cancelled: threading.Event) -> NsightComputeMeasurement:
        self.plan(work)
        return NsightComputeMeasurement(work, self._gpu, self._tools, self._state, cancelled)


@dataclass(frozen=True)
class _Profiled:
    """A finished profile: its metrics, its log, and the raw page (None if no launch was profiled)."""

    work: Work
    metrics: MetricPlan
    log: NcuLog
    page: Path | None


class NsightComputeMeasurement(LiveMeasurement):
    """One slice under ``ncu``."""

    def batches(self) -> Iterator[LaunchBatch]:
        tool = self.tool("ncu", "--help")
        self.warm_up()  # else it would replay launches that only measure variants of a kernel
        profiled = self._profiled(tool, self.work)
        if profiled is None:
            return
        if len(profiled.log.connected) > 1 and self.work.launch_skip and profiled.page is not None:
            # The tool counts what it skips over all processes together, so that the ordinals of launches
            # within their processes are known only where the whole prefix is in the report. Which of the
            # processes that opened the GPU launch at all, only its page tells.
            profiled = self._profiled(tool, replace(self.work, launch_skip=0, launch_count=_stop(self.work)))
        if profiled is not None and profiled.page is not None:
            yield from self._launches(tool, profiled, profiled.page)

    def _profiled(self, tool: ToolVersion, work: Work) -> _Profiled | None:
        """Profile what this box's tool and this GPU can collect; None if the run was cancelled.

        Metrics that the tool lists but refuses are left out, and it profiles again, a few times at most.
        """
        capability = self.gpu.device.compute_capability
        memory = refusal_memory(tool, self.gpu, self.gpu.refusing(self.environment), self.state)
        listing = self._listing(tool).without(memory.read())
        cause = ""
        for _ in range(MOST_ROUNDS):
            metrics = ncu_command.plan_metrics(work, capability, tool.version, listing)
            try:
                profile = self._round(tool, work, metrics)
            except MetricsRefusedError as error:
                memory.add(error.metrics)
                listing, cause = listing.without(error.metrics), error.cause
                self.note(f"note: {', '.join(error.metrics)} is left out from now on: {cause}")
            else:
                if metrics.missing:
                    self.flag("metrics_missing", missing_text(listing, tool, metrics.missing))
                return profile
        raise ProfilerError(
            FailureClass.METRIC_UNKNOWN,
            str(self.work.key),
            f"{MOST_ROUNDS} profiles in a row were refused, each for another metric (so far "
            f"{', '.join(sorted(listing.refused))}); {cause}",
            "submit it again: what was refused is not asked for again on this box",
        )

    def _listing(self, tool: ToolVersion) -> Listing:
        """The metrics that this box's tool lists for this GPU."""
        listing = listing_of(
            tool, self.gpu.device.compute_capability, self.gpu.answering(self.environment),
            state=self.state, scratch=self.space.job, ask=self.convert,
        )  # fmt: skip
        if listing.names is None:
            self.note(f"note: metrics were not checked beforehand: {listing.why}")
        return listing

    def _round(self, tool: ToolVersion, work: Work, metrics: MetricPlan) -> _Profiled | None:
        """One profile and its raw page; None if the run was cancelled. Raises MetricsRefusedError."""
        log = self._profile(tool, work, metrics)
        page = self._import(tool) if log is not None and log.profiled else None
        if log is None or self.cancelled:
            return None
        if page is not None:
            self._require_columns(page, metrics)
        return _Profiled(work, metrics, log, page)

    def _profile(self, tool: ToolVersion, work: Work, metrics: MetricPlan) -> NcuLog | None:
        """Profile into the report and judge the log; None if the run was cancelled."""
        log_path = self.space.job / "ncu.log"
        command = ncu_command.profile_command(tool, work, metrics, self._report, log_path)
        try:
            result = self._measured(tool, command)
        except ProfilerError as error:
            if error.failure_class is FailureClass.HANG:
                raise self._hang(error, log_path) from error
            raise
        if result is None or self.cancelled:
            return None
        count = work.launch_count
        log = self._judged(result, read_log(log_path), metrics, count)
        if log.profiled and count and log.profiled < count:
            self.flag("slice_short", f"the workload ended after {log.profiled:,} of {count:,} launches")
        return log

    def _measured(self, tool: ToolVersion, command: list[str]) -> ToolResult | None:
        """Run the command that profiles, in its turn; None if the run was cancelled while it waited."""
        if self.gpu.synthetic or not takes_turns(tool):
            return self.measure(command)
        with profiling_turn(self.cancellation, self.note) as locks:
            return self.measure(command, locks=locks) if locks else None

    def _hang(self, error: ProfilerError, log_path: Path) -> ProfilerError:
        text = read_log(log_path)
        self._note_log(text)
        words = words_before_hanging(text)
        cause = error.cause + (f"; the tool says: {words}" if words else "")
        return ProfilerError(FailureClass.HANG, error.subject, cause, tool_said=words)

    def _note_log(self, text: str) -> None:
        other_lines = without_launches(text)
        if other_lines:
            self.note(f"[log]\n{other_lines}")

    def _judged(self, result: ToolResult, text: str, metrics: MetricPlan, count: int) -> NcuLog:
        """The log, with flags set; raises ProfilerError if it shows a failure."""
        self._note_log(text)
        log = NcuLog.of(result, text)
        for flag in flags_in(log.lines):
            self.flag(flag.name, flag.detail)
        require_clean(str(self.work.key), log, result, metrics.names, count)
        if not log.profiled:
            self._nothing(result, log)
        return log

    def _nothing(self, result: ToolResult, log: NcuLog) -> None:
        """No launches: after skipped launches the workload had ended, otherwise it is a failure."""
        tool_line = next((line for line in log.lines if NOTHING in line), "")
        if self.work.launch_skip and tool_line:
            self.flag("slice_empty", f"the workload has at most {self.work.launch_skip:,} launches")
            return
        cause = (
            f"the tool says: {quoted(tool_line)}" if tool_line else f"the tool says nothing ({result.ending})"
        )
        raise ProfilerError(FailureClass.NOTHING_PROFILED, str(self.work.key), cause)

    @property
    def _report(self) -> Path:
        return self.space.job / "report.ncu-rep"

    def _launches(self, tool: ToolVersion, profiled: _Profiled, page: Path) -> Iterator[LaunchBatch]:
        """The rows of the page, which contain the slice."""
        from assay_sampling.readers.base import ReadOptions  # noqa: PLC0415
        from assay_sampling.readers.opening import open_recording  # noqa: PLC0415

        options = ReadOptions(synthetic=self.gpu.synthetic, launch_offset=profiled.work.launch_skip)
        window = LaunchWindow(self.work.launch_skip - profiled.work.launch_skip)
        rows, empty, processes = 0, dict[str, int](), set[int]()
        try:
            with open_recording(page, options) as recording:
                schema = self.labelled(recording.schema, tool.version)
                empty = {column.name: 0 for column in counter_columns(schema)}
                for batch in recording.batches():
                    self.operations.add(batch)
                    for name in empty:
                        empty[name] += batch.records.column(name).null_count
                    rows += batch.records.num_rows
                    processes.update(pc.unique(batch.records.column("process")).to_pylist())
                    yield from window.part(relabelled(batch, schema))
                    if self.cancelled:
                        return
                notes = list(recording.notes)
        except AssayError as error:
            raise ProfilerError(
                FailureClass.REPORT_SHORT, str(self.work.key), f"the raw page cannot be read: {error.cause}"
            ) from error
        if len(processes) > 1 and self.work.launch_skip:
            self.flag(
                "processes_interleaved",
                f"{len(processes)} processes launch concurrently; launches before the slice were profiled "
                "again to number them, and the slice depends on the order of the processes",
            )
        missing = [f"{name}: {n:,} of {rows:,} launches" for name, n in empty.items() if n]
        if missing:
            self.flag("counters_nan", "not measured (n/a or NaN): " + "; ".join(missing))
        self.take_notes(notes)
        launch_count = profiled.log.profiled
        if rows != launch_count:
            raise ProfilerError(
                FailureClass.REPORT_SHORT,
                str(self.work.key),
                f"the tool said that it profiled {launch_count:,} launches, but its report has {rows:,}",
            )

    def _import(self, tool: ToolVersion) -> Path | None:
        """The raw page of the report, as a file; None if the run was cancelled."""
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
            words = quoted(lines[0]) if lines else last_words(result.stderr)
            raise ProfilerError(
                FailureClass.REPORT_SHORT,
                subject,
                f"the report cannot be imported ({result.ending}); the tool says: {words}",
            )
        return page

    def _require_columns(self, page: Path, metrics: MetricPlan) -> None:
        """Raises MetricsRefusedError if the tool silently left a metric out."""
        with page.open(encoding="utf-8", errors="replace", newline="") as file:
            header = next((row for row in csv.reader(file) if "Kernel Name" in row), [])
        absent = tuple(metric for metric in metrics.names if metric not in header)
        if absent:
            cause = f"the report has no column for {', '.join(absent)}"
            raise MetricsRefusedError(
                ProfilerError(FailureClass.METRIC_UNKNOWN, str(self.work.key), cause), absent
            )


def _require_no_share(work: Work) -> None:
    """Raises ProfilerError for counters at a share of the SMs, or under the daemon that shares need.

    Without ``--mps`` (2022.3, 2024.1) profiling a client of MPS is undefined; with it, kernel replay gives
    one launch of each client, and the log looks like that of a workload that launches once.
    Source: NVIDIA's command line reference of 2026.3; known issues of 2022.3 and 2024.1.
    """
    if under_mps(work):
        raise ProfilerError(
            FailureClass.SERVER_REFUSED,
            str(work.key),
            "under MPS Nsight Compute profiles one launch of each process, so there are no counters at a "
            "share of the SMs",
            "measure shares of the SMs in light runs, as 'conditions: [{sm_percent: 50}]' plans them",
        )


def _stop(work: Work) -> int:
    """The first launch after the slice; 0: it extends to the end."""
    return work.launch_skip + work.launch_count if work.launch_count else 0
