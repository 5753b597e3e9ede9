"""Compare two runs of a workload launch by launch: one with caches left alone, one with cold caches.

    IPC difference of a launch = (IPC flushed - IPC warm) / IPC warm
    share at t %               = instructions of launches with |difference| >= t % / all instructions
    weighted total             = that difference between the two total IPCs

The total IPC is the instruction-weighted harmonic mean of the launches', as in Sieve: total instructions /
total cycles. Formulas of differences and shares are those of :mod:`assay_sampling.scoring.two_conditions`.

Runs are recordings of hardware counters (``--cache-control none`` and ``all``), aligned in order, or standard
outputs of Accel-Sim, joined by the traced launch. **The simulator's own flush is not a cold cache**: it drops
only dirty lines and reaches half of the slices; a launch simulated alone is cold.

Source: Quantifying and mitigating the cold-start problem, section 2; docs/methods/cold-start.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay_sampling.counters.definitions import COST_UNITS, default_cost_counter
from assay_sampling.counters.missing import require_counters
from assay_sampling.errors import MisalignedError, NotJoinableError, ParameterError, RefusedError
from assay_sampling.files.reading import content_hash_of
from assay_sampling.launches.alignment import align, require_match
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.joining import refuse_same_content, refuse_two_kinds
from assay_sampling.launches.table import Condition
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.running.identity import condition_conflict
from assay_sampling.scoring.evaluation import cost_of
from assay_sampling.scoring.two_conditions import (
    DIFFERENCE_THRESHOLDS_PERCENT,
    ipc_differences_percent,
    shares_over_percent,
)
from assay_sampling.simulators.accel_sim.cold import ColdStartDetails, read_details
from assay_sampling.simulators.accel_sim.output import read_output


@dataclass(frozen=True)
class ColdStart:
    """The launches that are in both runs, m of them.

    Args:
        launch: ordinal, or the simulator's 1-based traced id, int64 of shape (m,).
        kernel: names, m of them.
        warm_cost: cycles (or ns) with caches left alone, float64 of shape (m,).
        flushed_cost: with cold caches, for the same launches.
        warm_instructions: executed with warm caches, float64 of shape (m,); weights of the launches.
        flushed_instructions: of the other run; loops that wait may differ.
        quantity: of the costs.
        unmatched: launches of the warm and of the flushed run that the other one lacks.
        synthetic: no silicon produced the recordings, and no simulator.
        conditions: of the warm and of the flushed recording; None for simulations.
        notes: for the reader.
    """

    launch: np.ndarray
    kernel: tuple[str, ...]
    warm_cost: np.ndarray
    flushed_cost: np.ndarray
    warm_instructions: np.ndarray
    flushed_instructions: np.ndarray
    quantity: str
    unmatched: tuple[int, int] = (0, 0)
    synthetic: bool = False
    conditions: tuple[Condition, Condition] | None = None
    notes: tuple[Note, ...] = ()

    @property
    def differences_percent(self) -> np.ndarray:
        """IPC difference of each launch, shape (m,); NaN for a launch that executed nothing."""
        # Products of whole numbers are exact, quotients are not: 20 % must not come out below 20.
        return ipc_differences_percent(
            self.warm_cost * self.flushed_instructions, self.flushed_cost * self.warm_instructions
        )

    def to_dict(self) -> dict[str, Any]:
        """The document of ``assay cold-start --json``; launches by column."""
        differences = self.differences_percent
        shares = shares_over_percent(self.warm_instructions, differences)
        weights = self.warm_instructions / self.warm_instructions.sum()
        finite = np.isfinite(differences)
        return {
            "quantity": self.quantity,
            "launches": len(self.launch),
            "synthetic": self.synthetic,
            "conditions": None if self.conditions is None else [c.to_dict() for c in self.conditions],
            "only_in_warm": self.unmatched[0],
            "only_in_flushed": self.unmatched[1],
            "weighted_shares_percent": {
                f"{threshold:g}": share
                for threshold, share in zip(DIFFERENCE_THRESHOLDS_PERCENT, shares, strict=True)
            },
            "weighted_total_ipc_difference_percent": self._total_percent(),
            "weighted_mean_ipc_difference_percent": float((weights * differences)[finite].sum()),
            "per_launch": {
                "launch": self.launch.tolist(),
                "kernel": list(self.kernel),
                "warm": self.warm_cost.tolist(),
                "flushed": self.flushed_cost.tolist(),
                "instructions": self.warm_instructions.tolist(),
                "ipc_difference_percent": differences.tolist(),
            },
            "notes": [note.to_dict() for note in self.notes],
        }

    def _total_percent(self) -> float:
        warm = float(self.warm_instructions.sum() / self.warm_cost.sum())
        flushed = float(self.flushed_instructions.sum() / self.flushed_cost.sum())
        return 100.0 * (flushed - warm) / warm


def compare_recordings(warm: Launches, flushed: Launches, quantity: str | None = None) -> ColdStart:
    """Compare two recordings of the same launches, with caches left alone and flushed between launches.

    ``quantity`` is a cost that both measured (default: the cycles of the warm one). Raises MisalignedError
    if less than 99 % of the launches match, CounterUnavailableError if instructions or the cost were not
    measured, RefusedError if the conditions say that the two are swapped, or differ in clock or SM share,
    NotJoinableError if they are of two kinds of GPU or the same recording.
    """
    chosen = quantity or default_cost_counter(warm.table) or "cycles_gpc_avg"
    if chosen not in COST_UNITS:
        raise ParameterError("--cost", f"there is no cost {chosen!r}", f"choose from {', '.join(COST_UNITS)}")
    _require_conditions(warm, flushed)
    alignment = align(warm, flushed, left_name="warm run", right_name="flushed run")
    require_match(alignment, subject="warm and flushed run")
    left, right = alignment.left_rows, alignment.right_rows
    for side in (warm, flushed):
        require_counters(side.table, ["instructions"], ", ".join(side.sources) or "launches", side.unreadable)
    kernels = warm.column("kernel_id")[left]
    names = {key: warm.names[key] for key in set(kernels.tolist())}
    return _checked(
        ColdStart(
            launch=warm.column("launch")[left].astype(np.int64),
            kernel=tuple(names[key] for key in kernels.tolist()),
            warm_cost=cost_of(warm, chosen).values[left],
            flushed_cost=cost_of(flushed, chosen).values[right],
            warm_instructions=warm.column("instructions")[left],
            flushed_instructions=flushed.column("instructions")[right],
            quantity=chosen,
            unmatched=(alignment.left_launches - len(left), alignment.right_launches - len(right)),
            synthetic=warm.metadata.synthetic,
            conditions=(warm.metadata.condition, flushed.metadata.condition),
        )
    )


def _require_conditions(warm: Launches, flushed: Launches) -> None:
    for launches, side, wrong in ((warm, "warm", "all"), (flushed, "flushed", "none")):
        if launches.metadata.condition.cache == wrong:
            raise RefusedError(
                ", ".join(launches.sources) or side,
                f"it is given as the {side} run, but was recorded with cache control {wrong!r}",
                "name the warm run first and the flushed one second",
            )
    _refuse_other_condition(warm, flushed)
    if warm.metadata.origin != flushed.metadata.origin:
        raise RefusedError(
            "warm and flushed run",
            f"one is {warm.metadata.origin} and the other {flushed.metadata.origin}",
            "compare recordings of one kind; --synthetic marks both",
        )
    refuse_two_kinds(warm, flushed)
    # A small launch may cost the same either way, so equal numbers speak only where no condition does.
    if None in (warm.metadata.condition.cache, flushed.metadata.condition.cache):
        refuse_same_content(warm, flushed)


def _refuse_other_condition(warm: Launches, flushed: Launches) -> None:
    """Clocks and shares of the SMs change cycles too, so only the caches may differ."""
    ours, theirs = warm.metadata.condition, flushed.metadata.condition
    if condition_conflict(replace(ours, cache=None), theirs):
        raise RefusedError(
            f"{_source(warm, 'warm run')} and {_source(flushed, 'flushed run')}",
            f"they differ in more than their caches ({ours} and {theirs})",
            "compare runs under one clock and one share of the SMs",
        )


def _source(launches: Launches, side: str) -> str:
    return ", ".join(launches.sources) or side


def compare_outputs(warm: Path, flushed: Path, *, active_cycles: bool = False) -> ColdStart:
    """Compare standard outputs of two simulations, joined by traced launch.

    The flushed one may hold only some launches, such as one that was simulated alone. ``active_cycles``
    subtracts the configured launch latency, in which nothing runs. Raises InputError for a file that is not
    such an output, MisalignedError if no launch is in both or one has other kernels, RefusedError if both
    are the same output, or say that they are swapped.
    """
    if content_hash_of(warm) == content_hash_of(flushed):
        raise NotJoinableError(
            "same_content",
            f"{warm} and {flushed}",
            "they are the same output",
            "give one of a simulation with warm caches and one with cold ones",
        )
    sides = [_simulated(path, active_cycles) for path in (warm, flushed)]
    common = sorted(sides[0].keys() & sides[1].keys())
    if not common:
        raise MisalignedError(
            f"{warm}, {flushed}", "no traced launch is in both", "give runs of the same trace"
        )
    for launch in common:
        names = sides[0][launch].kernel, sides[1][launch].kernel
        if names[0] != names[1]:
            raise MisalignedError(
                f"{warm}, {flushed}",
                f"launch {launch} is of {names[0]} in one and of {names[1]} in the other",
                "give runs of the same trace",
            )
    columns = [
        (
            np.array([side[launch].cycles for launch in common], np.float64),
            np.array([side[launch].instructions for launch in common], np.float64),
        )
        for side in sides
    ]
    details = read_details(warm), read_details(flushed)
    _refuse_swapped(warm, flushed, sides, details)
    by_switch = details[1].flushes_l2
    return _checked(
        ColdStart(
            launch=np.array(common, np.int64),
            kernel=tuple(sides[0][launch].kernel for launch in common),
            warm_cost=columns[0][0],
            flushed_cost=columns[1][0],
            warm_instructions=columns[0][1],
            flushed_instructions=columns[1][1],
            quantity="active cycles" if active_cycles else "gpu_sim_cycle",
            unmatched=(len(sides[0]) - len(common), len(sides[1]) - len(common)),
            notes=(make_note("flushed_by_switch", file=str(flushed)),) if by_switch else (),
        )
    )


def _refuse_swapped(
    warm: Path,
    flushed: Path,
    launches: Sequence[Mapping[int, _Simulated]],
    details: tuple[ColdStartDetails, ColdStartDetails],
) -> None:
    """Raise RefusedError where the outputs say that the caches of the warm run were the colder ones."""
    ours, theirs = details
    alone = len(launches[0]) == 1 and not ours.replays
    cause = ""
    if ours.flushes_l2 and not theirs.flushes_l2:
        cause = "its simulation flushed the caches between launches, and that of the flushed run did not"
    elif alone and not theirs.flushes_l2 and (len(launches[1]) > 1 or theirs.replays):
        cause = "its launch was simulated alone, with cold caches, and in the flushed run others precede it"
    if cause:
        raise RefusedError(
            str(warm),
            f"it is given as the warm run, but {cause} ({flushed})",
            "name the warm run first and the flushed one second",
        )


def _checked(comparison: ColdStart) -> ColdStart:
    if not (
        comparison.warm_cost.sum() > 0
        and comparison.flushed_cost.sum() > 0
        and comparison.warm_instructions.sum() > 0
    ):
        raise RefusedError("cold start", "the matched launches have no cost or no instructions", "")
    return comparison


@dataclass(frozen=True)
class _Simulated:
    kernel: str
    cycles: float
    instructions: int


def _simulated(path: Path, active_cycles: bool) -> Mapping[int, _Simulated]:
    """Launches of a simulator's output by traced id, without memory-only replays."""
    output, launches = read_output(path)
    latency = output.config.launch_latency_cycles
    if active_cycles and latency is None:
        raise RefusedError(
            str(path), "it does not echo -gpgpu_kernel_launch_latency", "compare whole cycles instead"
        )
    by_id: dict[int, _Simulated] = {}
    replayed = read_details(path).replays
    for launch in launches:
        key = launch.traced_id or launch.uid
        if not launch.complete or launch.uid in replayed:
            continue
        if key in by_id:
            raise MisalignedError(str(path), f"it holds traced launch {key} twice", "give one simulation")
        cycles = launch.cycles - (latency or 0 if active_cycles else 0)
        by_id[key] = _Simulated(launch.kernel.strip(), float(cycles), launch.instructions)
    return by_id
