"""The Kineto profiler: a light run of a workload that traces itself with PyTorch's profiler.

CUPTI serves one profiler per process, so such a workload runs without another one: a variable tells it where
its trace goes, and the complete trace that it writes in this run is the measurement. Operators and input
shapes come with the launches.
Source: docs/campaign-file.md, "Kineto"; docs/reading-recordings.md, "Kineto traces".
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from assay_agent.execution.classify import failure_in, quoted, refuse_killed, workload_failed
from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.exclusive_file import exclusive_file
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.kineto_file import KINETO_VARIABLE, kineto_fault
from assay_agent.profilers.labelling import relabelled
from assay_agent.profilers.live import DEFAULT_TIMEOUT_SECONDS, LiveMeasurement
from assay_agent.profilers.requirements import (
    require_command,
    require_light_condition,
    require_one_gpu,
    require_possible,
)
from assay_core.processes.tool_run import ToolResult
from assay_core.records.work import Work
from assay_sampling.errors import InputError, NoLaunchesError
from assay_sampling.launches.table import BASELINE, Device, LaunchBatch, table_metadata
from assay_sampling.running.failures import FailureClass

_CLOCK_SLACK_NS = 2_000_000_000
# The names that PyTorch's own handlers give their traces.
_OTHER_TRACES = "*.pt.trace.json*"
_MOST_NAMED = 3
_WRITE_IT = (
    f"let the workload write its trace with export_chrome_trace to the file that {KINETO_VARIABLE} names "
    "('assay docs campaign-file', Kineto)"
)
_Stamp = tuple[int, int, int]


class KinetoProfiler:
    """Light runs on one GPU; see :class:`assay_agent.profilers.seam.Profiler`."""

    name = "kineto"

    def __init__(self, gpu: MeasuredGPU, tools: ToolBox, state: Path) -> None:
        self._gpu, self._tools, self._state = gpu, tools, state

    def plan(self, work: Work) -> list[str] | None:
        """The workload's own command."""
        if work.level != "light" or work.launch_skip or work.launch_count:
            raise ProfilerError(
                FailureClass.SERVER_REFUSED,
                str(work.key),
                "a workload's own trace measures whole light runs, no detailed ones and no windows",
            )
        require_possible(work, self._gpu)
        require_one_gpu(work, "a Kineto trace", "each process writes its own")
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

    def _require_obeyed(self, work: Work) -> None:
        """Raises ProfilerError for a condition of a virtual GPU: a made-up trace ignores it."""
        if self._gpu.synthetic and work.condition != BASELINE:
            raise ProfilerError(
                FailureClass.SERVER_REFUSED,
                str(work.key),
                f"a virtual GPU cannot make a condition ({work.condition}) for a made-up trace",
                "leave conditions out, or measure the workload with nsys (leave 'kineto' out)",
            )

    def run(self, work: Work, cancelled: threading.Event) -> KinetoMeasurement:
        self.plan(work)
        return KinetoMeasurement(work, self._gpu, self._tools, self._state, cancelled)


class KinetoMeasurement(LiveMeasurement):
    """One light run of a workload that traces itself."""

    def batches(self) -> Iterator[LaunchBatch]:
        command = require_command(self.work)
        folder, path = self._path()
        self.environment[KINETO_VARIABLE] = str(path)
        limit = command.timeout_s or DEFAULT_TIMEOUT_SECONDS
        with exclusive_file(path, (folder, self.space.home.parent), self.cancellation, limit) as has_lock:
            if not has_lock:
                return
            self._require_no_other_file(path)
            before, began = _stamp(path), _now_ns(folder)
            result = self.measure(command.argv)
            if self.cancelled:
                return
            self.require_plain(path)
            self._judge(result)
            self._require_new(path, before, began)
            yield from self._launches(path)

    def _path(self) -> tuple[Path, Path]:
        """The working folder and the trace in it, links followed; ProfilerError if they lead out of it."""
        command = require_command(self.work)
        folder = Path(command.working_directory or self.space.job)
        if self.is_confined:
            # Only the kernel can follow the way to these files; what the run leaves there is looked at later.
            return folder, folder / command.kineto_file
        folder = folder.resolve()
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
        """Raises ProfilerError if the workload would overwrite something that is not a trace."""
        if not path.exists() or (path.is_file() and _may_be_trace(path)):
            return
        raise self._failed(
            FailureClass.INPUT_UNREADABLE,
            f"{path} exists and is not a trace, and the workload would overwrite it",
            "name another file under 'kineto', or remove this one",
        )

    def _judge(self, result: ToolResult) -> None:
        """Raises ProfilerError if the workload failed."""
        subject = str(self.work.key)
        refuse_killed(subject, result)
        if result.exit_code != 0:
            failure_in(subject, [result.problem] if result.problem else [])
            output = f"{result.stdout}\n{result.stderr}"
            raise workload_failed(subject, f"under its own profiler: {result.ending}", output)

    def _require_new(self, path: Path, before: _Stamp | None, began_ns: int) -> None:
        """Raises ProfilerError unless this run wrote the file, and no other trace next to it."""
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
                f"the trace {path} is older than the run: the workload ended without writing it again",
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
        # The readers import Arrow's datasets, which a starting agent does not need.
        from assay_sampling.files.reading import read_head, require_file  # noqa: PLC0415
        from assay_sampling.readers.base import ReadOptions  # noqa: PLC0415
        from assay_sampling.readers.kineto.reader import KinetoReader  # noqa: PLC0415

        reader = KinetoReader()
        try:
            require_file(path)
            is_kineto = reader.recognises(path, read_head(path))
            recording = reader.open(path, ReadOptions(synthetic=self.gpu.synthetic)) if is_kineto else None
        except InputError as error:
            raise self._unreadable(error) from error
        if recording is None:
            raise self._failed(FailureClass.INPUT_UNREADABLE, f"{path} is not a Kineto trace", _WRITE_IT)
        with recording:
            self._require_whole(path, recording.world_size)
            self._require_same_gpu(path, table_metadata(recording.schema).devices)
            schema = self.labelled(recording.schema, "")
            try:
                for batch in recording.batches():
                    self.operations.add(batch)
                    yield relabelled(batch, schema)
                    if self.cancelled:
                        return
            except InputError as error:
                raise self._unreadable(error) from error
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
        """Raises ProfilerError for a trace from another kind of GPU."""
        own = self.gpu.device.compute_capability
        capabilities = {device.compute_capability for device in devices} - {""}
        if own and capabilities and own not in capabilities:
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
    """Identifies one version of a file: inode, time (ns) and size; None without a file."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns, state.st_size


def _now_ns(folder: Path) -> int:
    """The time of the clock that stamps files there: on a network disk, its server's."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return time.time_ns()


def _may_be_trace(path: Path) -> bool:
    """Whether it is empty, or begins like JSON or gzip: a killed run may have left part of a trace."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError:
        return False
    return head.startswith(b"\x1f\x8b") or head.lstrip()[:1] in (b"", b"{", b"[")


def _traces_since(path: Path, began_ns: int) -> list[str]:
    """Names of other traces in the file's folder that were written since, in alphabetical order."""
    names = []
    for other in path.parent.glob(_OTHER_TRACES) if path.parent.is_dir() else ():
        stamp = _stamp(other)
        if other != path and stamp is not None and stamp[1] >= began_ns:
            names.append(other.name)
    return sorted(names)


def _named(names: list[str]) -> str:
    rest = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + rest
