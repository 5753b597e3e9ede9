"""TBPoint within launches, from Accel-Sim's traces and the log of a run with block times.

Traces alone give the homogeneous regions of each launch on a GPU of a given size, which a simulator needs to
skip thread blocks. The log of a full simulation adds what skipping them would have saved, and how wrong the
projection would have been.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from assay_sampling.errors import ParameterError
from assay_sampling.projection.tbpoint.model import ipc_variation
from assay_sampling.projection.tbpoint.occupancy import WARP_THREADS, limits_of, resident_blocks
from assay_sampling.projection.tbpoint.regions import (
    DEFAULT_STALL_THRESHOLD,
    DEFAULT_VARIANCE_LIMIT,
    NO_REGION,
    Epochs,
    Regions,
    epochs_of,
    regions_of,
)
from assay_sampling.projection.tbpoint.replay import LaunchSample, sample_launch
from assay_sampling.projection.tbpoint.sampling import DEFAULT_WARM_UP_DIFFERENCE
from assay_sampling.simulators.accel_sim.block_times import HOW_TO_RECORD, BlockTimes, read_block_times
from assay_sampling.simulators.accel_sim.run import SampledLaunch, SimulatorRun
from assay_sampling.simulators.accel_sim.trace import TraceHeader, block_counts, read_header

TBPOINT = "tbpoint"


class TBPointOptions(BaseModel):
    """Thresholds of TBPoint, and the GPU for which traces alone are cut into regions."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stall_threshold: float = Field(default=DEFAULT_STALL_THRESHOLD, gt=0)
    variance_limit: float = Field(default=DEFAULT_VARIANCE_LIMIT, ge=0)
    warm_up_difference: float = Field(default=DEFAULT_WARM_UP_DIFFERENCE, gt=0)
    stall_cycles: float | None = Field(default=None, ge=1)
    sms: int | None = Field(default=None, ge=1)
    compute_capability: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"rule": TBPOINT, **self.model_dump()}


@dataclass(frozen=True)
class _Traced:
    """A launch's trace, its counts by block (shape (blocks,)), and the regions for a GPU."""

    header: TraceHeader
    warp_instructions: np.ndarray
    epochs: Epochs
    regions: Regions
    resident_blocks: int
    sms: int

    def to_dict(self, stall_cycles: float | None) -> dict[str, Any]:
        return {
            "traced_id": self.header.kernel_id,
            "kernel": self.header.kernel_name,
            "grid": list(self.header.grid),
            "total_ctas": self.header.blocks,
            "wave_ctas": self.resident_blocks,
            "ctas_in_regions": int((self.regions.of_block != NO_REGION).sum()),
            "regions": [{**row, **self._stalls(row, stall_cycles)} for row in self.regions.rows()],
        }

    def _stalls(self, region: Mapping[str, int], stall_cycles: float | None) -> dict[str, float | None]:
        """The region's stall probability, and how steady the warp model holds its IPC to be."""
        first = self.epochs.first_block
        inside = (first >= region["first_block"]) & (first <= region["last_block"])
        probability = min(1.0, float(self.epochs.stall_probability[inside].mean()))
        share = None
        if stall_cycles is not None:
            block_warps = -(-int(np.prod(self.header.block)) // WARP_THREADS)
            warps = max(1, self.resident_blocks // self.sms) * block_warps
            share = 100.0 * ipc_variation(probability, stall_cycles, warps).share_within()
        return {"stall_probability": probability, "ipc_within_10_percent_share_percent": share}


def regions_of_traces(source: Path, traces: Sequence[Path], options: TBPointOptions) -> dict[str, Any]:
    """The homogeneous regions of each launch, from its trace alone, as a document.

    Args:
        source: the given file: a list of kernels, or the first trace.
        traces: one a launch, in order.
        options: thresholds; ``sms`` and ``compute_capability`` of the GPU.

    Raises ParameterError if the GPU is missing or unknown, InputError for a damaged trace.
    """
    if options.sms is None or options.compute_capability is None:
        missing = "sms" if options.sms is None else "compute_capability"
        raise ParameterError(
            missing, "a trace does not hold it for the GPU", f"give it with: --param {missing}=VALUE"
        )
    limits = limits_of(options.compute_capability)
    launches = []
    for trace in traces:
        header = read_header(trace)
        resident = resident_blocks(
            limits,
            options.sms,
            block_threads=int(np.prod(header.block)),
            registers_per_thread=header.registers_per_thread,
            shared_memory_bytes=header.shared_memory_bytes,
        )
        traced = _traced(trace, header, resident, options.sms, options)
        launches.append(traced.to_dict(options.stall_cycles))
    return {
        "format": "accel-sim-traces",
        "file": str(source),
        "parameters": options.to_dict(),
        "launches": launches,
    }


def sample_run(
    file: Path, traces: Sequence[Path], intervals: Path | None, options: TBPointOptions
) -> dict[str, Any]:
    """TBPoint's savings and error, had it been used in a full simulation, as a document.

    Args:
        file: the simulator's standard output, with the times of thread blocks.
        traces: of the launches that it simulated.
        intervals: its interval log, which gives the executed instructions; without it each block is assumed
        to execute at a constant rate.
        options: thresholds; ``sms`` for a log that does not echo the simulator's options.

    Raises InputError for a file that cannot be read or lacks the times, ParameterError if the number of SMs
    is unknown, RefusedError if a trace is not of the launch that was simulated.
    """
    if options.compute_capability is not None:
        raise ParameterError(
            "compute_capability", "the log gives the blocks that an SM holds", "leave it out"
        )
    by_id = {read_header(trace).kernel_id: trace for trace in traces}
    times = read_block_times(file)
    run = SimulatorRun(file, intervals)
    launches = [_sampled(sampled, run, by_id, times, options) for sampled in run.launches()]
    return {
        "format": "accel-sim-output",
        "file": str(file),
        "intervals": None if intervals is None else str(intervals),
        "parameters": options.to_dict(),
        "simulator": run.config.to_dict(),
        "ending": run.output.ending,
        "launches": launches,
        "summary": _summary(launches),
        "notes": list(run.notes),
    }


def _traced(trace: Path, header: TraceHeader, resident: int, sms: int, options: TBPointOptions) -> _Traced:
    instructions, requests = block_counts(trace)
    epochs = epochs_of(instructions, requests, resident)
    regions = regions_of(
        epochs,
        len(instructions),
        stall_threshold=options.stall_threshold,
        variance_limit=options.variance_limit,
    )
    return _Traced(header, instructions, epochs, regions, resident, sms)


def _sampled(
    sampled: SampledLaunch,
    run: SimulatorRun,
    by_id: Mapping[int, Path],
    times: Mapping[int, BlockTimes],
    options: TBPointOptions,
) -> dict[str, Any]:
    launch, sms = sampled.launch, options.sms or run.config.sms
    if sms is None:
        raise ParameterError(
            str(run.output.path),
            "the log does not echo how many SMs it simulates",
            "give it with: --param sms=80",
        )
    facts: dict[str, Any] = {
        "uid": launch.uid,
        "traced_id": launch.traced_id,
        "kernel": launch.kernel,
        "grid": list(launch.grid) if launch.grid else None,
        "total_ctas": launch.total_ctas,
        "wave_ctas": None if launch.ctas_per_sm is None else launch.ctas_per_sm * sms,
        "complete": launch.complete,
        "true_cycles": launch.cycles if launch.complete else None,
    }
    trace = None if launch.traced_id is None else by_id.get(launch.traced_id)
    reason = _why_not(sampled, trace, times)
    if reason is not None or trace is None or launch.ctas_per_sm is None:
        return {**facts, **_NOTHING, "reason": reason}
    subject = f"launch {launch.uid} of {run.output.path}"
    header = read_header(trace)
    start, end = times[launch.uid].by_index(header.grid, subject)
    traced = _traced(trace, header, launch.ctas_per_sm * sms, sms, options)
    sample = sample_launch(
        start,
        end,
        traced.warp_instructions,
        traced.regions.of_block,
        executed=_executed(sampled, float(traced.warp_instructions.sum())),
        warm_up_difference=options.warm_up_difference,
    )
    return {**facts, **traced.to_dict(options.stall_cycles), **_sample_dict(sample), "reason": None}


def _why_not(sampled: SampledLaunch, trace: Path | None, times: Mapping[int, BlockTimes]) -> str | None:
    launch = sampled.launch
    if len(launch.uids) > 1:
        return "it ran at the same time as another"
    if not launch.complete:
        return "the run ended within it"
    if trace is None:
        return "its trace was not given"
    if launch.uid not in times:
        return f"the log does not say when its thread blocks start and end: {HOW_TO_RECORD}"
    if launch.ctas_per_sm is None:
        return "the log does not say how many blocks an SM holds"
    return None


_NOTHING: dict[str, Any] = {
    "ctas_in_regions": None,
    "regions": [],
    "block_cycles": None,
    "simulated_cycles": None,
    "projected_cycles": None,
    "skipped_ctas": None,
    "skipped_instructions_percent": None,
    "signed_error_percent": None,
    "speedup": None,
}


def _sample_dict(sample: LaunchSample) -> dict[str, Any]:
    return {
        "block_cycles": sample.launch_cycles,
        "simulated_cycles": sample.simulated_cycles,
        "projected_cycles": sample.projected_cycles,
        "skipped_ctas": len(sample.skipped_blocks),
        "skipped_instructions_percent": 100.0 * sample.skipped_instructions_share,
        "signed_error_percent": sample.signed_error_percent,
        "speedup": sample.speedup,
    }


def _executed(sampled: SampledLaunch, warp_instructions: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Cycles, and the warp instructions executed by then; the simulator counts thread instructions."""
    series, of_threads = sampled.series, sampled.launch.instructions
    if series is None or not of_threads:
        return None
    cycles = np.concatenate([[0.0], series.cycles.astype(np.float64)])
    progress = np.concatenate([[0.0], series.instructions.astype(np.float64)])
    return cycles, progress * (warp_instructions / of_threads)


def _summary(launches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Totals over the launches that could be sampled; the mean error is of those that skip blocks."""
    sampled = [launch for launch in launches if launch["reason"] is None]
    skipping = [launch for launch in sampled if launch["skipped_ctas"]]
    block, simulated, projected = (
        float(sum(launch[name] for launch in sampled))
        for name in ("block_cycles", "simulated_cycles", "projected_cycles")
    )
    errors = [abs(launch["signed_error_percent"]) for launch in skipping]
    return {
        "launches": len(launches),
        "sampled": len(sampled),
        "skipping": len(skipping),
        "block_cycles": block,
        "simulated_cycles": simulated,
        "projected_cycles": projected,
        "signed_error_percent": 100.0 * (projected - block) / block if sampled else None,
        "mean_error_percent": sum(errors) / len(errors) if errors else None,
        "speedup": block / simulated if sampled else None,
    }
