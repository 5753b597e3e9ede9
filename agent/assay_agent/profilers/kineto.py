"""The Kineto profiler: a light run of a workload that traces itself with PyTorch's profiler.

CUPTI serves one profiler a process, so nothing else is put under such a workload: it runs as it is, told by a
variable where its trace goes, and the trace that it wrote in this run, whole, is what was measured. The
operators and input shapes of the trace come with its launches.
Source: notes on CUPTI and Kineto, section 3; docs/campaign-file.md, "Kineto".
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from assay_agent.profilers.base import ProfilerError
from assay_agent.profilers.classify import failure_in, quoted, refuse_killed, workload_failed
from assay_agent.profilers.environment import MeasuredGPU, require_light_condition, require_possible
from assay_agent.profilers.exclusive_file import exclusive_file
from assay_agent.profilers.live import DEFAULT_TIMEOUT_SECONDS, LiveMeasurement, relabelled
from assay_agent.profilers.ncu_command import require_command
from assay_agent.profilers.tool_run import ToolResult
from assay_agent.profilers.tool_version import ToolBox
from assay_agent.work import KINETO_VARIABLE, Assignment, kineto_fault
from assay_sampling.errors import InputError, NoLaunchesError
from assay_sampling.failures import FailureClass
from assay_sampling.launch_table import BASELINE, Device, LaunchBatch, table_metadata

_CLOCK_SLACK_NS = 2_000_000_000
# What PyTorch's own handlers call their traces.
_OTHER_TRACES = "*.pt.trace.json*"
_MOST_NAMED = 3
_WRITE_IT = (
    f"let the workload write its trace with export_chrome_trace to the file that {KINETO_VARIABLE} names "
    "('assay docs campaign-file', Kineto)"
)
_Stamp = tuple[int, int, int]


class KinetoProfiler:
    """Light runs on one GPU; see :class:`assay_agent.profilers.base.Profiler`."""

    name = "kineto"

    def __init__(self, gpu: MeasuredGPU, tools: ToolBox, state: Path) -> None:
        self._gpu, self._tools, self._state = gpu, tools, state

    def plan(self, work: Assignment) -> list[str] | None:
        """The workload's own command."""
        if work.level != "light" or work.bare or work.launch_skip or work.launch_count:
            raise ProfilerError(
                FailureClass.SERVER_REFUSED,
                str(work.key),
                "a workload's own trace measures whole light runs, no detailed ones and no windows",
            )
        require_possible(work, self._gpu)
        require_light_condition(work)
        self._require_obeyed(work)
        command = require_command(work)
        fault = kineto_fault(command.kineto_file)
        if fault:
            raise ProfilerError(
                FailureClass.SERVER_REFUSED,
                str(work.key),
                f"its Kineto file {command.kineto_file!r}: {fault}",
                "name one file in the folder of the campaign file under 'kineto'",
            )
        return list(command.argv)

    def _require_obeyed(self, work: Assignment) -> None:
        """Raises ProfilerError for a condition of a virtual GPU: a made-up trace does not obey it."""
        if self._gpu.synthetic and work.condition != BASELINE:
            raise ProfilerError(
                FailureClass.SERVER_REFUSED,
                str(work.key),
                f"a virtual GPU makes no condition ({work.condition}) for a trace that is made up",
                "leave conditions out, or measure the workload with nsys (leave 'kineto' out)",
            )

    def run(self, work: Assignment, cancelled: threading.Event) -> KinetoMeasurement:
        self.plan(work)
        return KinetoMeasurement(work, self._gpu, self._tools, self._state, cancelled)


class KinetoMeasurement(LiveMeasurement):
    """One light run of a workload that traces itself."""

    def batches(self) -> Iterator[LaunchBatch]:
        command = require_command(self.work)
        folder, path = self._path()
        self._environment[KINETO_VARIABLE] = str(path)
        limit = command.timeout_seconds or DEFAULT_TIMEOUT_SECONDS
        with exclusive_file(path, (folder, self.space.home.parent), self._cancelled, limit) as held:
            if not held:
                return
            self._require_no_other_file(path)
            before, began = _stamp(path), _now_ns(folder)
            result = self.measure(command.argv)
            if self.cancelled:
                return
            self._judge(result)
            self._require_new(path, before, began)
            yield from self._launches(path)

    def _path(self) -> tuple[Path, Path]:
        """The working folder and the trace in it, links followed; ProfilerError where they lead out of it."""
        command = require_command(self.work)
        folder = Path(command.working_directory or self.space.job).resolve()
        path = (folder / command.kineto_file).resolve()
        if not path.is_relative_to(folder) or path == folder:
            raise self._failed(
                FailureClass.INPUT_UNREADABLE,
                f"the Kineto file {command.kineto_file!r} leads out of the folder in which the command runs, "
                f"to {path}",
                "name a file in the folder of the campaign file, without links that lead elsewhere",
            )
        return folder, path

    def _require_no_other_file(self, path: Path) -> None:
        """Raises ProfilerError where the workload would write over something that is no trace."""
        if not path.exists() or (path.is_file() and _may_be_trace(path)):
            return
        raise self._failed(
            FailureClass.INPUT_UNREADABLE,
            f"{path} is there and is no trace, and the workload would write over it",
            "name a file of its own under 'kineto', or remove this one",
        )

    def _judge(self, result: ToolResult) -> None:
        """Raises the ProfilerError that the end of the workload stands for."""
        subject = str(self.work.key)
        refuse_killed(subject, result)
        if result.exit_code != 0:
            failure_in(subject, [result.problem] if result.problem else [])
            output = f"{result.stdout}\n{result.stderr}"
            raise workload_failed(subject, f"under its own profiler: {result.ending}", output)

    def _require_new(self, path: Path, before: _Stamp | None, began_ns: int) -> None:
        """Raises ProfilerError unless the file was written by this run, and no other trace beside it."""
        now = _stamp(path)
        others = _traces_since(path, began_ns)
        if now is None:
            wrote = f"; it wrote {_named(others)}" if others else ""
            raise self._failed(
                FailureClass.NOTHING_PROFILED,
                f"the workload ended and wrote no trace {path}{wrote}",
                _WRITE_IT,
            )
        if now == before or now[1] < began_ns - _CLOCK_SLACK_NS:
            raise self._failed(
                FailureClass.NOTHING_PROFILED,
                f"the trace {path} is older than the run: the workload ended without writing it anew",
                _WRITE_IT,
            )
        if others:
            raise self._failed(
                FailureClass.INPUT_UNREADABLE,
                f"the workload wrote more traces than {path.name}: {_named(others)}, so the launches of one "
                "process would be taken for all",
                "trace all in one process and one file, or measure with nsys or cupti (leave 'kineto' out)",
            )

    def _launches(self, path: Path) -> Iterator[LaunchBatch]:
        # Arrow's datasets come with the readers, which an agent that only starts does not need.
        from assay_sampling.readers.base import ReadOptions  # noqa: PLC0415
        from assay_sampling.readers.files import read_head, require_file  # noqa: PLC0415
        from assay_sampling.readers.kineto import KinetoReader  # noqa: PLC0415

        reader = KinetoReader()
        try:
            require_file(path)
            known = reader.recognises(path, read_head(path))
            recording = reader.open(path, ReadOptions(synthetic=self.gpu.synthetic)) if known else None
        except InputError as error:
            raise self._unreadable(error) from error
        if recording is None:
            raise self._failed(FailureClass.INPUT_UNREADABLE, f"{path} is no Kineto trace", _WRITE_IT)
        with recording:
            self._require_whole(path, recording.world_size)
            self._require_same_gpu(path, table_metadata(recording.schema).devices)
            schema = self.labelled(recording.schema, "")
            for batch in recording.batches():
                yield relabelled(batch, schema)
                if self.cancelled:
                    return
            self.take_notes(recording.notes)

    def _require_whole(self, path: Path, processes: int) -> None:
        if processes > 1:
            raise self._failed(
                FailureClass.INPUT_UNREADABLE,
                f"the trace {path} is of one of {processes} processes that work together, and lacks the "
                "launches of the others",
                "measure such a workload with nsys or cupti (leave 'kineto' out)",
            )

    def _require_same_gpu(self, path: Path, devices: tuple[Device, ...]) -> None:
        """Raises ProfilerError for a trace that another kind of GPU made."""
        own = self.gpu.device.compute_capability
        found = {device.compute_capability for device in devices} - {""}
        if own and found and own not in found:
            names = ", ".join(device.label() for device in devices)
            raise self._failed(
                FailureClass.INPUT_UNREADABLE,
                f"the trace {path} is of another GPU ({names}), not of {self.gpu.device.name}",
                _WRITE_IT,
            )

    def _unreadable(self, error: InputError) -> ProfilerError:
        nothing = isinstance(error, NoLaunchesError)
        failure_class = FailureClass.NOTHING_PROFILED if nothing else FailureClass.REPORT_SHORT
        remedy = (
            error.remedy if nothing else "let the workload end by itself, after export_chrome_trace is done"
        )
        return self._failed(failure_class, f"the trace {error.subject}: {quoted(error.cause)}", remedy)

    def _failed(self, failure_class: FailureClass, cause: str, remedy: str) -> ProfilerError:
        return ProfilerError(failure_class, str(self.work.key), cause, remedy)


def _stamp(path: Path) -> _Stamp | None:
    """What tells one writing of a file from another: inode, time (ns) and size; None without a file."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns, state.st_size


def _now_ns(folder: Path) -> int:
    """The time by the clock that stamps files there, which on a network disk is its server's."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return time.time_ns()


def _may_be_trace(path: Path) -> bool:
    """Whether it is empty, or begins as JSON or gzip do: what a killed run left of its trace counts."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError:
        return False
    return head.startswith(b"\x1f\x8b") or head.lstrip()[:1] in (b"", b"{", b"[")


def _traces_since(path: Path, began_ns: int) -> list[str]:
    """Names of other traces beside the file that were written since, in alphabetical order."""
    found = []
    for other in path.parent.glob(_OTHER_TRACES) if path.parent.is_dir() else ():
        stamp = _stamp(other)
        if other != path and stamp is not None and stamp[1] >= began_ns:
            found.append(other.name)
    return sorted(found)


def _named(names: list[str]) -> str:
    rest = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + rest
