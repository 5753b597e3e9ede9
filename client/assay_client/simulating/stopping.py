"""Ends a simulation once a rule of projection says so, and projects the launch; ends one that hangs.

The growing interval log only says when to look: whether the launch stops, and its projected cycles, come from
the function behind ``assay project``, on what the simulator has written. So a launch that the rule stops has
the same numbers whenever its process was ended. Source: docs/methods/projection.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_client.simulating.launch_folder import LaunchFolder
from assay_client.simulating.watching import GrowingIntervals, GrowingSample, LaunchProgress
from assay_core.processes.tool_run import Cancellation
from assay_sampling.errors import InputError, ParameterError, RefusedError
from assay_sampling.projection.projector import ProjectionParameters, Projector
from assay_sampling.projection.runs import LaunchProjection, project_run, size_of
from assay_sampling.simulators.accel_sim.cold import read_details
from assay_sampling.simulators.accel_sim.launch_traces import LaunchTraces, LaunchWork
from assay_sampling.simulators.accel_sim.output import SimulatorOutput
from assay_sampling.simulators.accel_sim.run import SimulatorRun

_LOOK_SECONDS = 0.5
_UNREADABLE = (InputError, ParameterError, RefusedError)


@dataclass(frozen=True)
class StopRule:
    """The rule of projection that ends simulations, and the traces, which hold the totals that it needs."""

    parameters: ProjectionParameters
    traces: LaunchTraces

    @property
    def key(self) -> str:
        """The rule with its parameters, as text."""
        return self.parameters.model_dump_json()

    def of(self, folder: LaunchFolder) -> StopRule:
        """The rule with the trace of one launch alone, for a process that runs no other."""
        launch = folder.launch
        return StopRule(self.parameters, LaunchTraces({launch.traced_id: launch.trace}))

    def work(self, folder: LaunchFolder) -> LaunchWork:
        """What a launch executes, counted once; raises InputError for a damaged trace."""
        return self.traces.work_in(folder.launch.trace)

    def projection(self, folder: LaunchFolder) -> LaunchProjection | None:
        """The launch of a folder as ``assay project`` has it, if the rule stops it on what is written; None
        if it does not, or nothing can be read yet."""
        run = SimulatorRun(folder.log, folder.intervals)
        try:
            launches = list(project_run(run, self.parameters, traces=self.traces))
            replayed = read_details(folder.log).replays
        except _UNREADABLE:
            return None
        own = [each for each in launches if each.launch.uid not in replayed]
        if len(own) != 1 or own[0].stop is None or own[0].launch.traced_id != folder.launch.traced_id:
            return None
        return own[0]


class OnlineStop:
    """Says when the simulation of a launch may end; :meth:`reached` takes samples as they are written."""

    def __init__(self, folder: LaunchFolder, rule: StopRule) -> None:
        self._folder, self._rule = folder, rule
        self._waiting: list[tuple[int, int, int]] = []
        self._projector: Projector | None = None
        self._replayed_blocks = 0
        self._began = self._over = False

    def reached(self, samples: Sequence[GrowingSample]) -> bool:
        """Whether the rule stops the launch at one of these samples or before."""
        if self._over:
            return False
        self._waiting += self._of_launch(samples)
        if not self._waiting or not self._sized():
            return False
        assert self._projector is not None
        try:
            stops = [self._projector.push(*sample) for sample in self._waiting]
        except RefusedError:  # its trace is of another launch: the simulation is judged at its end
            self._over = True
            return False
        self._waiting = []
        if stops[-1] is None:
            return False
        self._over = True
        return self._rule.projection(self._folder) is not None

    def _of_launch(self, samples: Sequence[GrowingSample]) -> list[tuple[int, int, int]]:
        """Those of the launch itself, without the blocks of the replay that its first sample counts."""
        replay = self._folder.launch.replay is not None
        own = []
        for each in samples:
            if replay and not each.instructions_before:
                self._replayed_blocks += each.blocks
                continue
            blocks = each.blocks
            if replay and not self._began:
                left = self._folder.launch.replayed_blocks - self._replayed_blocks
                blocks = max(blocks - left, 0) if each.instructions else 0
            self._began = True
            own.append((each.cycles, each.instructions, blocks))
        return own

    def _sized(self) -> bool:
        """Whether the size of the launch is known, from the output and the trace."""
        if self._projector is not None:
            return True
        output = SimulatorOutput(self._folder.log)
        try:
            for _ in output.launches():
                pass
            work = self._rule.work(self._folder)
        except InputError:
            return False
        launch = output.stopped_launch(0, 0)
        if launch is None or launch.traced_id != self._folder.launch.traced_id or output.config.sms is None:
            return False
        total = float(work.thread_instructions)
        size = size_of(launch, output.config, total, output.config.sms, work)
        self._projector = None if size is None else Projector(size, self._rule.parameters)
        return self._projector is not None


class Watch:
    """Watches a launch while its process runs, and says when that is to end: if everything ends, if its rule
    stops it (``reached``), or if it has written nothing for so long (``hung``).

    Args:
        folder: where it runs.
        hang_seconds: for how long it may write nothing.
        cancelled: whether everything ends.
        report: called each half second with how far it is.
        rule: that stops it; None: it is simulated whole.
    """

    def __init__(
        self,
        folder: LaunchFolder,
        hang_seconds: float,
        cancelled: Cancellation,
        report: Callable[[LaunchProgress], None],
        rule: StopRule | None,
    ) -> None:
        self._folder, self._hang_seconds = folder, hang_seconds
        self._cancelled, self._report = cancelled, report
        self._online = None if rule is None else OnlineStop(folder, rule)
        self._intervals: GrowingIntervals | None = None
        self._written: tuple[int, ...] = ()
        self._wrote_at = self._looked_at = time.monotonic()
        self.hung = self.reached = False

    def is_set(self) -> bool:
        """Whether the process is to end."""
        if self._cancelled.is_set():
            return True
        now = time.monotonic()
        if not (self.hung or self.reached) and now - self._looked_at >= _LOOK_SECONDS:
            self._look(now)
            self._looked_at = time.monotonic()
        return self.hung or self.reached

    def _look(self, now: float) -> None:
        intervals = self._folder.intervals
        if self._intervals is None and intervals.is_file():
            self._intervals = GrowingIntervals(intervals)
        if self._intervals is None:
            self._report(LaunchProgress())
        else:
            self._report(self._intervals.look())
            self.reached = self._online is not None and self._online.reached(self._intervals.samples())
        written = tuple(_size(path) for path in (self._folder.log, intervals))
        if written != self._written:
            self._written, self._wrote_at = written, now
        elif now - self._wrote_at > self._hang_seconds:
            self.hung = True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
