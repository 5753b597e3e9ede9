"""Cycles that a launch lost to cold caches, estimated from reuse and DRAM traffic, without simulating again.

    IPC = instructions / (cycles_flushed - delta)
    delta = accesses / (controllers x line) x reuse of the launch before x (DRAM latency - L2 latency)

The correction is refused if the configured DRAM latency is not above the L2's: delta would be negative and
slow warm launches down. ``accesses`` are the distinct DRAM addresses that a simulator with the authors'
change prints; for a stock simulator's log the L2's misses are used instead, which the document notes.

Source: Quantifying and mitigating the cold-start problem, equations 2 and 3. The authors' tools join by
position and take DRAM counters that include all earlier launches; here launches are joined by their traced id
and counters are differenced (docs/methods/cold-start.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay_sampling.errors import MisalignedError, ParameterError, RefusedError
from assay_sampling.notes.registry import Note, make_note, note_of_error
from assay_sampling.simulators.accel_sim.cold import ColdStartDetails, read_details
from assay_sampling.simulators.accel_sim.output import read_output
from assay_sampling.simulators.accel_sim.statistics import SimulatedLaunch


def active_controllers(channel_requests: np.ndarray) -> float:
    """Memory controllers weighted by occupancy: sum over channels of load / largest load.

    ``channel_requests``, shape (channels,), are one launch's reads and writes: the simulator's counters are
    cumulative and must be differenced first. Raises RefusedError if no channel had any.
    """
    loads = np.asarray(channel_requests, np.float64)
    if not len(loads) or not loads.max() > 0:
        raise RefusedError("memory controllers", "no request went to DRAM", "there is nothing to correct")
    return float(loads.sum() / loads.max())


@dataclass(frozen=True)
class Latencies:
    """Configured latencies in cycles (``-gpgpu_l2_rop_latency``, ``-dram_latency``)."""

    l2_cycles: float
    dram_cycles: float

    def require_valid(self) -> None:
        """Raises RefusedError, with the reason, if the correction is meaningless."""
        if self.dram_cycles <= self.l2_cycles:
            raise RefusedError(
                "cold-start correction",
                f"the configured DRAM latency of {self.dram_cycles:g} cycles is not above the L2's of "
                f"{self.l2_cycles:g}, so delta is not positive and would slow warm launches down",
                "warm the caches with a memory-only replay of the launch before (--warm-up)",
            )


def correction_cycles(
    accesses: float, controllers: float, line_bytes: int, reuse_before: float, latencies: Latencies
) -> float:
    """Delta of equation 3, in cycles.

    Args:
        accesses: distinct DRAM accesses of the launch.
        controllers: memory controllers weighted by occupancy.
        line_bytes: of the last-level cache.
        reuse_before: forward reuse of the previous launch, in [0, 1].
        latencies: as configured; RefusedError if the formula does not apply to them.
    """
    latencies.require_valid()
    if not 0.0 <= reuse_before <= 1.0 or controllers <= 0 or line_bytes <= 0 or accesses < 0:
        raise ParameterError(
            "cold-start correction", "a share outside [0, 1] or a count that is not positive"
        )
    return (
        accesses / (controllers * line_bytes) * reuse_before * (latencies.dram_cycles - latencies.l2_cycles)
    )


def corrected_ipc(instructions: float, cycles_flushed: float, delta_cycles: float) -> float:
    """IPC of equation 2; raises RefusedError if delta leaves no cycles."""
    if cycles_flushed <= delta_cycles:
        raise RefusedError(
            "cold-start correction",
            f"delta of {delta_cycles:,.0f} cycles leaves nothing of {cycles_flushed:,.0f}",
            "warm the caches with a memory-only replay instead",
        )
    return instructions / (cycles_flushed - delta_cycles)


def corrections(
    log: Path, reuse: Mapping[int, float | None], kernels: Mapping[int, str] | None = None
) -> dict[str, Any]:
    """Correct every launch of a simulator's output of cold launches.

    Args:
        log: the standard output.
        reuse: forward reuse by 1-based launch of the traced process.
        kernels: names of the traced kernels by launch, where they are known.

    A launch that cannot be corrected has a ``reason``; configured latencies that rule the correction out are
    in ``refused``, for the whole log. Raises InputError for a file that is not such an output,
    MisalignedError if it is of other kernels.
    """
    details = read_details(log)
    _, launches = read_output(log)
    _require_same_kernels(log, launches, kernels or {})
    refused: Note | None = None
    try:
        latencies = _latencies(details)
        latencies.require_valid()
    except RefusedError as error:
        latencies, refused = None, note_of_error("not_corrected", error)
    rows = []
    for launch in launches:
        if launch.uid not in details.replays:
            rows.append(_corrected(launch, details, latencies, reuse, refused))
    return {
        "log": str(log),
        "dram_latency_cycles": details.dram_latency_cycles,
        "l2_latency_cycles": details.l2_latency_cycles,
        "refused": None if refused is None else refused.to_dict(),
        "launches": rows,
    }


def _require_same_kernels(log: Path, launches: Sequence[SimulatedLaunch], kernels: Mapping[int, str]) -> None:
    for launch in launches:
        number = launch.traced_id or launch.uid
        traced = kernels.get(number, launch.kernel)
        # A block of several launches that ended together names them all.
        if len(launch.uids) == 1 and traced != launch.kernel:
            raise MisalignedError(
                str(log),
                f"launch {number} is of {launch.kernel[:200]} there, and of {traced[:200]} in the traces",
                "give the output of a simulation of these traces",
            )


def _latencies(details: ColdStartDetails) -> Latencies:
    if details.l2_latency_cycles is None or details.dram_latency_cycles is None:
        raise RefusedError(
            "cold-start correction",
            "the log does not echo the latencies of L2 and DRAM",
            "give the whole standard output",
        )
    return Latencies(details.l2_latency_cycles, details.dram_latency_cycles)


def _corrected(
    launch: SimulatedLaunch,
    details: ColdStartDetails,
    latencies: Latencies | None,
    reuse: Mapping[int, float | None],
    refused: Note | None,
) -> dict[str, Any]:
    number = launch.traced_id or launch.uid
    printed = details.dram_requests.get(launch.uid)
    row: dict[str, Any] = {
        "launch": number,
        "cycles": launch.cycles,
        "ipc": launch.instructions / launch.cycles if launch.cycles else None,
        "accesses": launch.l2_misses if printed is None else printed,
        "accesses_from": "l2_misses" if printed is None else "dram_requests",
        "reuse_before": reuse.get(number - 1),
        "controllers": None,
        "delta_cycles": None,
        "corrected_ipc": None,
        "reason": None,
    }
    reason = refused or _missing(launch, row_reuse=reuse.get(number - 1), details=details)
    if reason is None and row["accesses"] is None:
        reason = make_note("l2_misses_unknown")
    if reason is not None or latencies is None:
        return {**row, "reason": None if reason is None else reason.to_dict()}
    try:
        row["controllers"] = active_controllers(_channel_requests(launch))
        row["delta_cycles"] = correction_cycles(
            row["accesses"], row["controllers"], details.line_bytes or 0, row["reuse_before"], latencies
        )
        row["corrected_ipc"] = corrected_ipc(launch.instructions, launch.cycles, row["delta_cycles"])
    except RefusedError as error:
        row["reason"] = note_of_error("not_corrected", error).to_dict()
    return row


def _missing(launch: SimulatedLaunch, row_reuse: float | None, details: ColdStartDetails) -> Note | None:
    if row_reuse is None:
        return make_note("reuse_unknown")
    if details.line_bytes is None:
        return make_note("line_size_unknown")
    return None if launch.complete else make_note("launch_cut")


def _channel_requests(launch: SimulatedLaunch) -> np.ndarray:
    """Reads plus writes of each memory channel, float64 of shape (channels,)."""
    tables = [launch.dram_reads_by_channel, launch.dram_writes_by_channel]
    counts = [table for table in tables if table is not None]
    if not counts:
        return np.zeros(0)
    total = np.zeros(max(map(len, counts)))
    for table in counts:
        total[: len(table)] += table
    return total
