"""A run of the simulator: its standard output and its interval log, joined launch by launch.

The join uses what both print: the instructions of all earlier launches. Positions would shift after every
launch that is shorter than the sampling interval and therefore has no sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay_sampling.errors import InputError
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.simulators.accel_sim.config import SimulatorConfig
from assay_sampling.simulators.accel_sim.output import SimulatorOutput
from assay_sampling.simulators.accel_sim.statistics import SimulatedLaunch
from assay_sampling.simulators.accel_sim.visualizer import IntervalLog, IntervalSeries

_SAME_RUN = "give the two logs of one run"


@dataclass(frozen=True)
class SampledLaunch:
    """A launch and its samples; ``series`` is None without samples, and ``reason`` says why."""

    launch: SimulatedLaunch
    series: IntervalSeries | None
    reason: Note | None = None


class SimulatorRun:
    """Both logs of a run. :meth:`launches` streams them side by side; afterwards ``notes`` are known."""

    def __init__(self, output: str | Path, intervals: str | Path | None = None) -> None:
        self.output = SimulatorOutput(output)
        self.intervals = None if intervals is None else IntervalLog(intervals)

    @property
    def config(self) -> SimulatorConfig:
        """The simulated GPU, as far as the log has been read."""
        return self.output.config

    @property
    def notes(self) -> tuple[Note, ...]:
        return (*self.output.notes, *(self.intervals.notes if self.intervals else ()))

    def launches(self) -> Iterator[SampledLaunch]:
        """Every launch with its samples, in the order in which the launches ended; last the one within which
        the run was ended, if it ran alone and has samples.

        Raises InputError where either log cannot be read, or where they are of different runs.
        """
        if self.intervals is None:
            for launch in self.output.launches():
                yield SampledLaunch(launch, None, make_note("intervals_missing"))
            return
        log = self.intervals.series()
        samples = next(log, None)
        carried_ctas = 0
        for launch in self.output.launches():
            if samples is not None and _before(samples, launch):
                raise self._mismatch(samples, launch, "the standard output does not know that launch")
            if samples is None or samples.instructions_before not in (None, launch.instructions_before):
                yield SampledLaunch(launch, None, self._missing(launch, samples))
                carried_ctas += launch.issued_ctas or 0
                continue
            series, following = samples.with_tail(carried_ctas), next(log, None)
            self._check_length(series, launch, following is None)
            carried_ctas = max((launch.issued_ctas or 0) - int(series.ctas.sum()), 0)
            samples = following
            yield SampledLaunch(launch, series)
        if samples is not None and not self.output.unfinished():
            raise self._mismatch(samples, None, "the standard output does not know that launch")
        if samples is not None:
            yield from self._stopped(samples.with_tail(carried_ctas))

    def _stopped(self, series: IntervalSeries) -> Iterator[SampledLaunch]:
        """The launch within which the run was ended: it has samples, and no statistics."""
        launch = self.output.stopped_launch(int(series.cycles[-1]), int(series.instructions[-1]))
        if launch is None:
            return
        if series.instructions_before not in (None, launch.instructions_before):
            raise self._mismatch(series, None, "another number of instructions was executed before")
        yield SampledLaunch(launch, series)

    def _missing(self, launch: SimulatedLaunch, samples: IntervalSeries | None) -> Note:
        interval = self.intervals.interval_cycles if self.intervals else None
        if interval is not None and launch.cycles > interval:
            if samples is not None:
                raise self._mismatch(samples, launch, "that launch has no samples")
            return make_note("intervals_end_before")
        return make_note("shorter_than_interval", interval_cycles=interval or 0)

    def _check_length(self, series: IntervalSeries, launch: SimulatedLaunch, last: bool) -> None:
        cycles = int(series.cycles[-1])
        interval = int(series.cycles[0])
        whole = launch.cycles - cycles <= interval or last
        if cycles > launch.cycles or int(series.instructions[-1]) > launch.instructions or not whole:
            cause = f"its samples end at cycle {cycles:,}, the launch at cycle {launch.cycles:,}"
            raise self._mismatch(series, launch, cause)
        if launch.cycles - cycles > interval and self.intervals is not None:
            self.intervals.notes.append(
                make_note("intervals_cut_in_launch", launch=launch.uid, cycle=cycles, cycles=launch.cycles)
            )

    def _mismatch(
        self, series: IntervalSeries, launch: SimulatedLaunch | None, difference: str
    ) -> InputError:
        at = f"launch {launch.uid} at line {launch.line}" if launch else "the end"
        assert self.intervals is not None
        return InputError(
            self.intervals.path,
            f"it is not of the same run as {self.output.path}: at {at} of that file, {difference}",
            _SAME_RUN,
            line=series.line,
        )


def _before(series: IntervalSeries, launch: SimulatedLaunch) -> bool:
    before = series.instructions_before
    return before is not None and before < launch.instructions_before
