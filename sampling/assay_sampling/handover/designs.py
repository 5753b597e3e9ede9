"""Representatives simulated on several designs: totals of each, speedups, and what starting cold costs.

Every total is the sum of weight x number over the representatives. Source: docs/methods/designs.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from assay_sampling.documents.common import NoteEntry
from assay_sampling.documents.designs import (
    ColdStart,
    DesignEntry,
    DesignLaunch,
    LaunchNumbers,
    SimulationFailure,
    SpeedupEntry,
    SpeedupInterval,
    WarmUp,
)
from assay_sampling.estimation.speedup_intervals import speedup_interval
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.saved_selection import SavedSelection


@dataclass(frozen=True)
class SimulatedDesign:
    """What was simulated on a design.

    Args:
        name, configuration, options, folder: as the document has them.
        numbers: by 0-based launch, of the representatives that are simulated.
        failures: of those that failed.
        resumed: launches that an earlier call had simulated.
        cold: by 0-based launch, what is known of launches that were simulated cold.
        warm: the same by warm-up, of those that were simulated after one.
    """

    name: str
    configuration: str
    options: Sequence[str]
    folder: str
    numbers: Mapping[int, LaunchNumbers]
    failures: Sequence[SimulationFailure] = ()
    resumed: frozenset[int] = frozenset()
    cold: Mapping[int, LaunchNumbers] = field(default_factory=dict)
    warm: Mapping[WarmUp, Mapping[int, LaunchNumbers]] = field(default_factory=dict)


@dataclass(frozen=True)
class WeighedLaunches:
    """The representatives of a selection by launch, and their ``weights`` of ``kind``, shape (r,)."""

    saved: SavedSelection
    weights: np.ndarray
    kind: WeightKind

    @property
    def launches(self) -> list[int]:
        """Their 0-based launches."""
        return [int(launch) for launch in self.saved.launch]

    def column(self, numbers: Mapping[int, LaunchNumbers], name: str) -> np.ndarray | None:
        """A number of every representative, shape (r,); None where one lacks it."""
        cells = [getattr(numbers[launch], name) if launch in numbers else None for launch in self.launches]
        return None if None in cells else np.array(cells, np.float64)

    def total(self, numbers: Mapping[int, LaunchNumbers], name: str) -> float | None:
        """The sum of weight x number; None where one lacks it."""
        column = self.column(numbers, name)
        return None if column is None else float((self.weights * column).sum())


def design_entry(design: SimulatedDesign, chosen: WeighedLaunches) -> DesignEntry:
    """A design's row of the table."""
    numbers = design.numbers
    first = next(iter(numbers.values()), None)
    cycles = chosen.total(numbers, "cycles")
    accesses, misses = (chosen.total(numbers, name) for name in ("l2_accesses", "l2_misses"))
    spent = chosen.column(numbers, "cpu_seconds")
    return DesignEntry(
        name=design.name,
        configuration=design.configuration,
        options=list(design.options),
        folder=design.folder,
        gpu=None if first is None else first.gpu,
        core_clock_mhz=None if first is None else first.core_clock_mhz,
        simulated=len(numbers),
        failed=len(design.failures),
        projected=sum(each.stop_cycles is not None for each in numbers.values()),
        simulated_cycles_percent=_ratio(
            float(
                sum(
                    each.cycles if each.stop_cycles is None else each.stop_cycles for each in numbers.values()
                )
            ),
            float(sum(each.cycles for each in numbers.values())),
            100.0,
        ),
        cycles=cycles,
        active_cycles=chosen.total(numbers, "active_cycles"),
        ipc=_ratio(chosen.total(numbers, "instructions"), cycles),
        l2_accesses=accesses,
        l2_miss_percent=_ratio(misses, accesses, 100.0),
        dram_reads=chosen.total(numbers, "dram_reads"),
        dram_writes=chosen.total(numbers, "dram_writes"),
        cpu_seconds=None if spent is None else float(spent.sum()),
        whole_cpu_seconds=_whole_cpu_seconds(numbers, chosen),
        cold_start=[entry for warm_up in design.warm if (entry := _cold_start(design, chosen, warm_up))],
    )


def launch_entries(design: SimulatedDesign, chosen: WeighedLaunches) -> list[DesignLaunch]:
    """Each simulated representative of a design, in order of launch."""
    rows = sorted(range(len(chosen.launches)), key=lambda row: chosen.launches[row])
    return [
        DesignLaunch(
            design=design.name,
            launch=launch,
            sim_id=launch + 1,
            group=int(chosen.saved.group[row]),
            kernel=chosen.saved.kernel[row],
            weight=float(chosen.weights[row]),
            resumed=launch in design.resumed,
            **design.numbers[launch].to_dict(),
        )
        for row in rows
        if (launch := chosen.launches[row]) in design.numbers
    ]


def speedup_entries(designs: Sequence[SimulatedDesign], chosen: WeighedLaunches) -> list[SpeedupEntry]:
    """The speedup of each further design over the first, where all representatives are simulated on both."""
    entries = []
    base = designs[0]
    before = chosen.column(base.numbers, "cycles")
    for design in designs[1:]:
        after = chosen.column(design.numbers, "cycles")
        if before is None or after is None or not (before > 0).all() or not (after > 0).all():
            continue
        interval = speedup_interval(
            chosen.saved.design, (before, after), chosen.saved.group, chosen.weights, kind=chosen.kind
        )
        has_interval = interval.low is not None and interval.high is not None
        entries.append(
            SpeedupEntry(
                design=design.name,
                over=base.name,
                speedup=float((chosen.weights * before).sum() / (chosen.weights * after).sum()),
                active_speedup=_ratio(
                    chosen.total(base.numbers, "active_cycles"), chosen.total(design.numbers, "active_cycles")
                ),
                interval=SpeedupInterval.model_validate(
                    {"low": interval.low, "high": interval.high, "confidence": interval.confidence}
                )
                if has_interval
                else None,
                interval_reason=None if interval.reason is None else NoteEntry.of(interval.reason),
                not_vouched_percent=interval.not_vouched_percent,
            )
        )
    return entries


def notes_on(designs: Sequence[SimulatedDesign], warm_up: WarmUp) -> list[Note]:
    """What is doubtful in the table."""
    notes = []
    clocks = {each.core_clock_mhz for design in designs for each in design.numbers.values()}
    if len(clocks - {None}) > 1:
        notes.append(make_note("designs_of_several_clocks"))
    if warm_up == "none":
        notes.append(make_note("simulated_from_cold_caches"))
    projected = [
        each for design in designs for each in design.numbers.values() if each.stop_cycles is not None
    ]
    if projected:
        notes.append(make_note("designs_projected", launches=len(projected)))
    return notes


def _cold_start(design: SimulatedDesign, chosen: WeighedLaunches, warm_up: WarmUp) -> ColdStart | None:
    """What starting cold costs the launches that were simulated both ways; launch 0 always starts cold."""
    warm = design.warm[warm_up]
    rows = [row for row, launch in enumerate(chosen.launches) if launch in warm and launch in design.cold]
    if not rows:
        return None
    weights = chosen.weights[rows]
    cold, warmed = (
        np.array([there[chosen.launches[row]].cycles for row in rows], np.float64)
        for there in (design.cold, warm)
    )
    total = float((weights * warmed).sum())
    more = float((weights * (cold - warmed)).sum())
    return ColdStart(
        warm_up=warm_up,
        launches=len(rows),
        of=len(chosen.launches),
        percent=100.0 * more / total if total > 0 else 0.0,
    )


def _whole_cpu_seconds(numbers: Mapping[int, LaunchNumbers], chosen: WeighedLaunches) -> float | None:
    """What all launches would take to their ends: replays, which a run of all does not have, are left out."""
    if any(launch not in numbers for launch in chosen.launches):
        return None

    def own(each: LaunchNumbers) -> float:
        executed = each.executed_instructions + each.replayed_instructions
        return each.cpu_seconds * (each.instructions / executed if executed else 1.0)

    return float(
        sum(
            weight * own(numbers[launch])
            for weight, launch in zip(chosen.weights.tolist(), chosen.launches, strict=True)
        )
    )


def _ratio(above: float | None, below: float | None, factor: float = 1.0) -> float | None:
    return None if above is None or not below else factor * above / below
