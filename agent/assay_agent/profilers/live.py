"""Shared by the live profilers: one attempt's tool runs, its log, and the metadata of its launches."""

from __future__ import annotations

import abc
import contextlib
import json
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from assay_agent.conditions import Conditions, Site
from assay_agent.conditions.journal import Journal
from assay_agent.execution.confinement.command import BundledCommand, Space
from assay_agent.execution.confinement.measured import confined_space, within
from assay_agent.execution.environment import (
    MeasuredGPU,
    Workspace,
    scrubbed,
    tool_environment,
    without_secrets,
    workspace,
)
from assay_agent.execution.errors import ProfilerError, not_started
from assay_agent.execution.judged import judged_folder, require_judged, working_folder
from assay_agent.execution.pinned import pins_of
from assay_agent.execution.sick_disk import require_disk
from assay_agent.execution.tool_version import ToolBox, ToolVersion
from assay_agent.guards.run_guards import RunGuards
from assay_agent.profilers.attempt_notes import AttemptNotes
from assay_agent.profilers.gang import OtherGpus
from assay_agent.profilers.labelling import labelled
from assay_agent.profilers.warm_up import WarmUp
from assay_agent.provenance.facts import live_facts
from assay_agent.provenance.forked import ForkedProcess
from assay_agent.provenance.libraries import LoadedLibraries
from assay_agent.provenance.program import PROGRAMS, StartedProgram
from assay_agent.telemetry.rules import share_flag
from assay_agent.telemetry.watch import GpuWatch
from assay_core.processes.tool_run import ToolResult, run_tool
from assay_core.records.attempt import AttemptLog
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import CommandSource, Work
from assay_sampling.launches.table import (
    Device,
    LaunchBatch,
)
from assay_sampling.running.attempt_facts import AttemptFacts, ToolFact
from assay_sampling.running.failures import FailureClass

DEFAULT_TIMEOUT_SECONDS = 6 * 3600.0
_CONVERT_SECONDS = 3600.0


class LiveMeasurement(AttemptNotes, abc.ABC):
    """One attempt under a tool; subclasses give :meth:`batches`.

    See :class:`assay_agent.profilers.seam.Measurement`. The GPU's lock is held while it is entered.
    """

    def __init__(
        self,
        work: Work,
        gpu: MeasuredGPU,
        tools: ToolBox,
        state: Path,
        cancelled: threading.Event,
    ) -> None:
        super().__init__(work)
        self.work, self.gpu = work, gpu
        self._tools, self.state, self.cancellation = tools, state, cancelled
        self._stack = contextlib.ExitStack()
        self._space: Workspace | None = None
        self._confined: Space | None = None
        self._job = state
        self.environment: dict[str, str] = {}
        self._command: tuple[str, ...] = ()
        self._conditions: Conditions | None = None
        self._watch: GpuWatch | None = None
        self._others: OtherGpus | None = None
        self._wall_seconds = 0.0
        self._strays = 0
        self._libraries: LoadedLibraries | None = None
        self._tool_facts: dict[str, ToolFact] = {}
        self._program: StartedProgram | None = None
        self._warm_up: WarmUp | None = None

    @abc.abstractmethod
    def batches(self) -> Iterator[LaunchBatch]:
        """The launches, as the tool's results arrive; see the base class."""

    @property
    def flags(self) -> tuple[ValidityFlag, ...]:
        by_name = dict(self.own_flags)
        for source in (self._conditions, self._watch, self._others):
            for flag in source.flags if source else ():
                by_name.setdefault(flag.name, flag)
        # The condition refuses a share that is not in force; this checks once more.
        sms = self._conditions.effective_sms if self._conditions else None
        gpu = self.gpu.device
        share = share_flag(self.work.condition.sm_percent, sms, gpu.sm_count or 0, gpu.compute_capability)
        if share is not None:
            by_name.setdefault(share.name, share)
        return tuple(by_name.values())

    @property
    def log(self) -> AttemptLog:
        telemetry = self._watch.to_dict() if self._watch else None
        if telemetry is not None and self._others is not None and self._others.telemetry:
            telemetry["gang"] = self._others.telemetry
        samples = "" if telemetry is None else json.dumps(telemetry)
        text = without_secrets("\n".join(self.own_notes), self.environment)
        command = tuple(without_secrets(word, self.environment) for word in self._command)
        environment = scrubbed(self.environment)
        return AttemptLog(command, environment, text, samples, self._wall_seconds, self._facts().to_json())

    def _facts(self) -> AttemptFacts:
        return live_facts(
            self.work,
            self.gpu,
            tools=list(self._tool_facts.values()),
            libraries=self._libraries.facts() if self._libraries else None,
            environment=self.environment,
            in_force=self._conditions.facts if self._conditions else {},
            flags=self.flags,
            program=self._program.fact if self._program else None,
            compile_cache=self._warm_up.cache_hash if self._warm_up else "",
        )

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            space = stack.enter_context(workspace(self.gpu, self.state, self.work, self.cancellation))
            private, self._job = space.home.parent, space.job
            if isinstance(self.work.command, BundledCommand):
                space = self._confine(self.work.command, space, stack)
            self.environment = tool_environment(self.gpu, space.home, space.temporary, self.work)
            self._space = space
            if not self.gpu.synthetic:
                self._libraries = LoadedLibraries(space.temporary)
                self._prepare_warm_up(space)
            self.require()
            self._conditions = stack.enter_context(Conditions(self._site(space, private)))
            self.environment |= self._conditions.environment
            self._note_conditions()
            self._watch = stack.enter_context(GpuWatch(self.gpu, self.work, private, self.cancellation))
            self._others = stack.enter_context(
                OtherGpus(
                    self.gpu, self.work, space, environment=self.environment, state=self.state,
                    cancelled=self.cancellation, note=self.note,
                )
            )  # fmt: skip
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        full = None if self._confined is None else self._confined.room_failure(error)
        self._stack.__exit__(kind, error, trace)
        if full is not None:
            raise full from error

    def _confine(self, command: BundledCommand, space: Workspace, stack: contextlib.ExitStack) -> Workspace:
        """Unpack the workload's files, in which it runs confined; removed when the measurement is left.

        Returns the workspace with the only folders that it can write.
        """
        confined = confined_space(
            command, self.work, self.gpu, base=space.home.parent, state=self.state, readable=self.readable()
        )
        stack.callback(confined.remove)
        confined.make()
        self._confined = confined
        self.note("the files of the submitter run in bubblewrap")
        self.work = self.work.with_command(replace(command, working_directory=str(confined.files)))
        return within(confined, space)

    def _prepare_warm_up(self, space: Workspace) -> None:
        if self.work.command is not None and self.work.command.argv:
            self._warm_up = WarmUp(
                self.work.command, self.gpu, self.state, space.compiled, give=self.give, note=self.note
            )
            self.environment |= self._warm_up.variables

    def readable(self) -> tuple[str, ...]:
        """What a confined workload needs to read of this profiler."""
        return ()

    def require(self) -> None:  # most tools have nothing to say
        """Raise ProfilerError if the tool of this box cannot do the work; before any condition is made."""

    def _site(self, space: Workspace, private: Path) -> Site:
        return Site(
            gpu=self.gpu,
            work=self.work,
            base=private,
            lock=space.lock,
            environment=self.environment,
            journal=Journal(self.state, self.gpu.device.uuid, private / "lock"),
            cancelled=self.cancellation,
            note=self.note,
        )

    def _note_conditions(self) -> None:
        facts = self._conditions.facts if self._conditions else {}
        if facts:
            self.note("conditions: " + ", ".join(f"{name}={value}" for name, value in sorted(facts.items())))

    @property
    def device(self) -> Device:
        """The GPU as the run had it: with the SMs of its share, if it had one."""
        sms = self._conditions.effective_sms if self._conditions else None
        return self.gpu.device if sms is None else replace(self.gpu.device, sm_count=sms)

    @property
    def space(self) -> Workspace:
        assert self._space is not None, "the measurement is not entered"
        return self._space

    @property
    def forked(self) -> tuple[ForkedProcess, ...]:
        """Processes of the last command that loaded CUDA's library and were forked without exec."""
        return self._libraries.forked if self._libraries is not None else ()

    @property
    def told_of_background(self) -> str:
        """What to add to the failure of a command that launched nothing and left processes behind, or ""."""
        if not self._strays:
            return ""
        return (
            f"; it ended and left {self._strays} processes in the background, which were ended with it: a "
            "program that is measured must run in the foreground"
        )

    @property
    def cancelled(self) -> bool:
        return self.cancellation.is_set()

    def tool(self, program: str, *help_arguments: str) -> ToolVersion:
        """The tool on this box."""
        answering = self.gpu.answering(self.environment)
        tool_version = self._tools.tool(program, help_arguments, self.environment, self.space.job, answering)
        self.note(f"{tool_version.program}: version {tool_version.version}")
        self._tool_facts[program] = ToolFact(program, tool_version.version, tool_version.program)
        return tool_version

    @property
    def is_confined(self) -> bool:
        """Whether the workload is a submitter's and its files lie where only the kernel can lead."""
        return self._confined is not None

    def require_plain(self, path: Path) -> None:
        """Raises ProfilerError if a confined workload left a link where its output should be."""
        if self._confined is not None:
            self._confined.require_plain(path)

    def give(self, path: Path) -> None:
        """Let a confined workload, which may be another user, use a socket of the agent's."""
        if self._confined is not None:
            self._confined.place.give(path)

    def resolvable(self, path: Path) -> Path:
        """A file of the run under a path that libraries may resolve; of a confined run it is a copy."""
        return path if self._confined is None else self._confined.copied(path, self._job)

    def warm_up(self) -> None:
        """Run the workload by itself where nothing is known yet of what it compiles.

        For profilers that hand launches on, or replay them, while the workload runs: their first run is no
        warm-up, whose launches are thrown away. Raises as :meth:`measure`.
        """
        if self._warm_up is not None and self._warm_up.is_needed:
            assert self.work.command is not None
            self._warm_up.keep(self._run_once(self.work.command.argv, (), self.light_limit_seconds))
            self._warm_up.is_needed = False  # a run under the tool cannot be the warm-up
            self._forget_run()

    def measure(self, argv: Sequence[str], locks: tuple[int, ...] = ()) -> ToolResult:
        """Run the command that measures, in the workload's folder and time limit.

        The first run of a command that compiles code is its warm-up, and it runs once more. ``locks``:
        descriptors of further locks, which it holds until its last process has ended. Raises ProfilerError
        if it hangs or cannot be started.
        """
        result = self._run_once(argv, locks)
        if self._warm_up is not None:
            if self._warm_up.keep(result):
                self._forget_run()
                result = self._run_once(argv, locks)
            self._warm_up.note_additions()
        return result

    def _forget_run(self) -> None:
        """Leave the run that has ended out of times and sensors."""
        self._wall_seconds = 0.0
        for each in (self._watch, self._others):
            if each is not None:
                each.begin_again()

    def _run_once(self, argv: Sequence[str], locks: tuple[int, ...], end_after: float = 0.0) -> ToolResult:
        """One run of the command, which is ended after so many seconds if these are not 0."""
        assert self.work.command is not None
        require_judged(self.work, "was changed since")
        self._command = tuple(argv)
        directory = working_folder(self.work.command, self.space.job)
        started = self._program = self._program or self._started(self.work.command, directory)
        limit = end_after or self.work.command.timeout_s or DEFAULT_TIMEOUT_SECONDS
        conditions = [each for each in (self._conditions, self._others) if each is not None]

        def before_ending() -> None:
            for condition in conditions:
                condition.before_ending()

        guards = self._guards()
        measuring = [each.measuring() for each in (self._watch, self._others) if each is not None]
        with self._entered(directory) as entered, contextlib.ExitStack() as watched:
            for each in measuring:
                watched.enter_context(each)
            watched.enter_context(guards)
            result = self._run(
                argv, entered, limit, before_ending=before_ending, stop=guards.stop, locks=locks
            )
        self._wall_seconds += result.seconds
        self._strays = len(result.left)
        if result.left and not (result.timed_out or result.cancelled):
            self.note(f"note: it left {self._strays} processes in the background, which were ended with it")
        self._require_disk(result)
        self._program = started.after_run()
        require_judged(self.work, "was changed while it ran")
        guards.require_kept(str(self.work.key))
        cancelled = result.cancelled and not self.reached_limit
        if conditions and not (result.timed_out or cancelled):
            for condition in conditions:
                condition.check()
            self._note_conditions()
        if result.timed_out and not end_after:
            raise ProfilerError(
                FailureClass.HANG,
                str(self.work.key),
                f"it had not ended after its time limit of {limit:g} s; it was ended",
            )
        return result

    def _require_disk(self, result: ToolResult) -> None:
        """Raise ProfilerError if the tool ended with an error, and the box's disk has failed under it."""
        if result.exit_code == 0 or result.cancelled or result.timed_out or self._confined is not None:
            return
        folders = (self.space.home, self.space.temporary, self.space.job)
        require_disk(str(self.work.key), folders, result.ending)

    def _started(self, command: CommandSource, directory: Path) -> StartedProgram:
        """The command's program, or the workload file that a modelled GPU runs in its place."""
        return PROGRAMS.started(
            command.argv[0] if self.gpu.model is None else self.gpu.model.program(command.argv),
            directory,
            self.environment,
            pins=pins_of(command),
            inside=self._confined.files if self._confined is not None else None,
            stopped=self.cancellation.is_set,
        )

    def _entered(self, directory: Path) -> contextlib.AbstractContextManager[Path]:
        """The working directory, held open; that of a confined run is entered inside."""
        if self._confined is not None:
            return contextlib.nullcontext(directory)
        return judged_folder(self.work, directory)

    def _guards(self) -> RunGuards:
        command = self.work.command
        if self._libraries is not None:
            self._libraries.begin()
        limit_bytes = command.memory_limit_bytes if command is not None else 0
        place = None
        if isinstance(command, BundledCommand) and self._confined is not None:
            limit_bytes, place = command.means.memory_limit(limit_bytes), self._confined.place
        return RunGuards(
            memory_limit_bytes=limit_bytes,
            # A confined run writes nothing to the box's disks.
            minimum_free_bytes=self.gpu.telemetry.minimum_free_bytes if place is None else 0,
            files_bytes=place.used_bytes if place is not None else lambda: 0,
            directory=self.space.job,
            temporary=self.space.temporary,
            cancelled=self.cancellation,
            tick=self._libraries.tick if self._libraries is not None else lambda: None,
        )

    def convert(self, argv: Sequence[str], output: Path | None = None) -> ToolResult:
        """Run a command that reads a report."""
        return self._run(argv, self.space.job, _CONVERT_SECONDS, output)

    def _run(
        self,
        argv: Sequence[str],
        directory: Path,
        timeout_seconds: float,
        output: Path | None = None,
        *,
        before_ending: Callable[[], None] | None = None,
        stop: threading.Event | None = None,
        locks: tuple[int, ...] = (),
    ) -> ToolResult:
        self.note(f"$ {shlex.join(argv)}")
        confined = self._confined
        try:
            result = run_tool(
                argv if confined is None else confined.command(argv, directory),
                environment=self.environment,
                directory=directory,
                timeout_seconds=timeout_seconds,
                cancelled=stop or self.cancellation,
                stdout_path=output,
                held=(*self.space.locks, *locks),
                before_ending=before_ending,
            )
        except OSError as error:
            raise not_started(argv[0], error) from error
        if confined is not None:
            confined.clean()
            result = replace(result, argv=tuple(argv))
        for channel, text in (("stdout", result.stdout), ("stderr", result.stderr)):
            if text.strip():
                self.note(f"[{channel}]\n{text.rstrip()}")
        self.note(f"[{result.ending}, {result.seconds:.1f} s]")
        return result

    def labelled(self, schema: pa.Schema, tool_version: str) -> pa.Schema:
        """The schema of what the tool measured, with what this agent knows: device, condition, mark."""
        return labelled(schema, self.work, self.gpu, self.device, tool_version)
