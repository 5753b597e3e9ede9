"""Principal kernel projection of whole runs of Accel-Sim, launch by launch, from the logs of the full run.

The totals that a rule needs (blocks, thread instructions) are those of the full run's log; of a launch within
which the run was ended they are those of its trace, which holds the same numbers. Traces also say how long
slots stay empty at the end. The cycles of the whole launch are used only for the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from assay_sampling.errors import ParameterError
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.projection.launch_end import end_share
from assay_sampling.projection.projector import (
    LaunchSize,
    Projection,
    ProjectionParameters,
    Series,
    Stop,
    project,
)
from assay_sampling.projection.would_stop import WouldStop, rules_that_would_stop
from assay_sampling.simulators.accel_sim.cold import read_details
from assay_sampling.simulators.accel_sim.config import SimulatorConfig
from assay_sampling.simulators.accel_sim.launch_traces import LaunchTraces, LaunchWork
from assay_sampling.simulators.accel_sim.run import SampledLaunch, SimulatorRun
from assay_sampling.simulators.accel_sim.statistics import SimulatedLaunch
from assay_sampling.simulators.accel_sim.visualizer import IntervalSeries


@dataclass(frozen=True)
class LaunchProjection:
    """A launch of a run and its projection.

    ``projection`` is None if there is nothing to project from; ``reason`` says why, or why the rule did not
    stop; ``would_stop`` then has the rules that would. ``wave_ctas`` is None if the log lacks it.
    ``total_instructions`` are the thread instructions of the whole launch, None if the run ended within it
    and no trace has them.
    """

    launch: SimulatedLaunch
    projection: Projection | None
    reason: Note | None
    wave_ctas: int | None
    launch_latency_cycles: int
    would_stop: tuple[WouldStop, ...] = ()
    total_instructions: float | None = None

    @property
    def stop(self) -> Stop | None:
        """Where the rule stops; None if it does not."""
        return self.projection.stop if self.projection else None

    @property
    def true_cycles(self) -> int | None:
        """Cycles of the whole launch, with the launch latency; None if the run ended within it."""
        return self.launch.cycles if self.launch.complete else None

    @property
    def projected_cycles(self) -> float | None:
        """The projected cycles; without a stop the launch's own, None if the run ended within it."""
        if self.stop is None and not self.launch.complete:
            return None
        return self.projection.projected_cycles if self.projection else self.true_cycles

    @property
    def simulated_cycles(self) -> float | None:
        return self.projection.simulated_cycles if self.projection else self.true_cycles

    @property
    def signed_error_percent(self) -> float | None:
        """Error over all cycles; None if the true ones are unknown."""
        return self._error_over(0)

    @property
    def active_error_percent(self) -> float | None:
        """Error over the cycles without the launch latency, which rules need not project."""
        return self._error_over(self.launch_latency_cycles)

    def _error_over(self, left_out: int) -> float | None:
        true, projected = self.true_cycles, self.projected_cycles
        if true is None or projected is None or true <= left_out:
            return None
        return 100.0 * (projected - true) / (true - left_out)

    def to_dict(self) -> dict[str, Any]:
        """The entry of this launch in the command line's JSON."""
        launch, projection = self.launch, self.projection
        fields: dict[str, Any] = (
            projection.to_dict()
            if projection
            else {
                "rule": None,
                "stop_cycles": None,
                "stop_sample_index": None,
                "finished_ctas": None,
                "projected_cycles": self.projected_cycles,
                "simulated_cycles": self.simulated_cycles,
                "metrics": {},
            }
        )
        miss_rate = _rate(launch.l2_misses, launch.l2_accesses)
        return {
            "uid": launch.uid,
            "traced_id": launch.traced_id,
            "kernel": launch.kernel,
            "grid": list(launch.grid) if launch.grid else None,
            "total_ctas": launch.total_ctas,
            "wave_ctas": self.wave_ctas,
            "ctas_per_sm_from": launch.ctas_per_sm_from,
            "instructions": launch.instructions,
            "total_instructions": self.total_instructions,
            "complete": launch.complete,
            "true_cycles": self.true_cycles,
            "launch_latency_cycles": self.launch_latency_cycles,
            "true_l2_miss_rate": miss_rate if launch.complete else None,
            **fields,
            "projected_cycles": self.projected_cycles,
            "reason": None if self.reason is None else self.reason.to_dict(),
            "would_stop": [
                each.to_dict(self.true_cycles, self.launch_latency_cycles) for each in self.would_stop
            ],
            "signed_error_percent": self.signed_error_percent,
            "active_error_percent": self.active_error_percent,
        }


def _rate(events: int | None, base: int | None) -> float | None:
    return events / base if events is not None and base else None


def project_run(
    run: SimulatorRun,
    parameters: ProjectionParameters | None = None,
    *,
    sms: int | None = None,
    traces: LaunchTraces | None = None,
) -> Iterator[LaunchProjection]:
    """Project every launch of a run, streaming.

    Args:
        run: its logs.
        parameters: rule, window and threshold; the default rule is chosen for each launch.
        sms: streaming multiprocessors of the simulated GPU, for logs that do not echo the options.
        traces: those that were simulated; read are those of launches that ``waves`` stops, and of one within
            which the run was ended.

    Raises InputError as :meth:`SimulatorRun.launches` and :meth:`LaunchTraces.work_of` do,
    ParameterError if the number of SMs is unknown.
    """
    chosen = parameters or ProjectionParameters()
    replays = set() if traces is None else read_details(run.output.path).replays
    for sampled in run.launches():
        # A replay has the id of a launch, but not its instructions.
        own = None if sampled.launch.uid in replays else traces
        yield _project_launch(sampled, own, run, chosen, sms or run.config.sms)


def _project_launch(
    sampled: SampledLaunch,
    traces: LaunchTraces | None,
    run: SimulatorRun,
    parameters: ProjectionParameters,
    sms: int | None,
) -> LaunchProjection:
    launch, series, config = sampled.launch, sampled.series, run.config
    if sms is None:
        raise ParameterError(
            str(run.output.path),
            "the log does not echo how many SMs it simulates",
            "give it with: --param sms=80",
        )
    wave = None if launch.ctas_per_sm is None else launch.ctas_per_sm * sms
    latency = config.launch_latency_cycles or 0
    work = None if launch.complete else _work_of(launch, traces)
    total_instructions = _total_instructions(launch, work)
    result = LaunchProjection(
        launch, None, sampled.reason, wave, latency, total_instructions=total_instructions
    )
    if series is None:
        return result
    size = size_of(launch, config, total_instructions, sms, work)
    if size is None:
        return replace(result, reason=make_note("blocks_unknown"))
    if parameters.rule in ("instructions", "waves") and total_instructions is None:
        return replace(result, reason=make_note("instructions_unknown"))
    samples = series_of(series)
    final_cycles = float(launch.cycles) if launch.complete else None
    projection = project(samples, size, parameters, final_cycles)
    if projection.stop is not None and projection.rule == "waves" and work is None:
        size = replace(size, end_share=_end_share(size, _work_of(launch, traces)))
        projection = project(samples, size, parameters, final_cycles)
    would = () if projection.stop else rules_that_would_stop(samples, size, parameters)
    return replace(result, projection=projection, reason=projection.reason, would_stop=would)


def _work_of(launch: SimulatedLaunch, traces: LaunchTraces | None) -> LaunchWork | None:
    return None if traces is None else traces.work_of(launch.headers[0])


def _total_instructions(launch: SimulatedLaunch, work: LaunchWork | None) -> float | None:
    if launch.complete:
        return float(launch.instructions)
    return None if work is None else float(work.thread_instructions)


def size_of(
    launch: SimulatedLaunch,
    config: SimulatorConfig,
    total_instructions: float | None,
    sms: int,
    work: LaunchWork | None = None,
) -> LaunchSize | None:
    """The size of a launch on a simulated GPU; None where the log does not say its blocks. ``work`` is what
    its trace holds, if somebody has read it."""
    if launch.ctas_per_sm is None or launch.total_ctas is None:
        return None
    wave = launch.ctas_per_sm * sms
    size = LaunchSize(wave, launch.total_ctas, total_instructions, config.launch_latency_cycles)
    return replace(size, end_share=_end_share(size, work))


def _end_share(size: LaunchSize, work: LaunchWork | None) -> float | None:
    return None if work is None else end_share(work.warp_instructions, work.block_warps, size.wave_ctas)


def series_of(intervals: IntervalSeries) -> Series:
    """An interval log's samples as a series, with L2 miss rate and use of DRAM if it has them."""
    ratios: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    if not np.isnan(intervals.l2_accesses).any():
        ratios["l2_miss_rate"] = (intervals.l2_misses, intervals.l2_accesses)
    if not np.isnan(intervals.dram_percent).any():
        lengths = np.diff(intervals.cycles, prepend=0.0)
        ratios["dram_percent"] = (intervals.dram_percent * lengths, lengths)
    return Series(intervals.cycles, intervals.instructions, intervals.ctas, ratios)
