"""Locked clocks: times and cycles of the same launches under a locked clock and under free clocks.

    duration_ratio = sum duration_ns locked / sum free      of the light runs, over matched launches
    cycles_ratio   = sum cycles locked / sum free           of the windows in one pass, over matched launches
    clock_mhz      = sum of cycles / sum of the time that was profiled, of a window

At a lower SM clock memory answers in fewer SM cycles, so the two ratios tell how far a workload depends on
the SM clock: a workload that does not depend on memory keeps its cycles. Cycles and free-running times are
separate costs; neither is computed from the other. Source: docs/conditions.md, "What is compared".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from assay_report.model.common import Match
from assay_report.model.compared import LockedClockEntry
from assay_sampling.counters.definitions import COST_UNITS
from assay_sampling.documents.common import NoteEntry
from assay_sampling.errors import AssayError, RefusedError
from assay_sampling.launches.alignment import MatchKind, require_match
from assay_sampling.notes.registry import note_of_error
from assay_sampling.running.identity import RunLevel
from assay_sampling.scoring.evaluation import cost_of
from assay_sampling.scoring.two_conditions import ratio_of_totals
from assay_server.analysis import rows
from assay_server.analysis.comparisons.cold_start import common_cycles, flag_disturbed_cycles
from assay_server.analysis.comparisons.compared import (
    DeviceRuns,
    HeldPairs,
    match_facts,
    rest_on,
    same_repeat,
)
from assay_server.analysis.runs.request import RunData
from assay_server.analysis.runs.side_by_side import clock_mhz

KIND: MatchKind = "exact"
_QUANTITY = "duration_ns"

_Compare = Callable[[LockedClockEntry, RunData, RunData, HeldPairs], None]


def locked_clock_entries(device: DeviceRuns, held: HeldPairs) -> Iterator[LockedClockEntry]:
    """An entry for each locked clock under which a GPU has live runs on all SMs with warm caches."""
    conditions = dict.fromkeys(
        run.condition
        for run in device.runs
        if run.live and run.condition.clock in ("base", "boost") and not run.under_mps
    )
    for condition in conditions:
        if condition.cache == "all" or (condition.sm_percent or 100.0) < 100:
            continue
        entry = device.entry(
            LockedClockEntry,
            condition,
        )
        failures: list[tuple[RunLevel, AssayError]] = []
        parts: tuple[tuple[RunLevel, _Compare], ...] = (("light", _times), ("detailed", _cycles))
        for level, compare in parts:
            try:
                compare(entry, *_pair(device, condition.clock, device.of(level, condition), level), held)
            except AssayError as error:
                failures.append((level, error))
            held.release()
        if len(failures) == 2:  # nothing is known of either level
            rows.fail(entry, failures[0][1])
        else:
            entry.notes += [
                NoteEntry.of(note_of_error("level_not_compared", error, level=level))
                for level, error in failures
            ]
        entry.clock_locked = not any(flag.name == "clock_unlocked" for flag in entry.flags)
        yield entry


def _pair(
    device: DeviceRuns, clock: str | None, locked: list[RunData], level: RunLevel
) -> tuple[RunData, RunData]:
    """A run under the locked clock and the free run of the same repeat, else the first free run."""
    subject = f"{device.workload} on {device.device_kind}, clock {clock}"
    if not locked:
        raise RefusedError(subject, f"no {level} run under this clock has data", "see the failed runs")
    pair = same_repeat(locked, device.of(level, replace(locked[0].condition, clock="none")))
    if pair is None:
        raise RefusedError(
            subject, f"no {level} run with free clocks has data to compare with", "run it again"
        )
    return pair


def _times(entry: LockedClockEntry, locked: RunData, free: RunData, held: HeldPairs) -> None:
    locked_ns, free_ns, match = _matched(entry, locked, free, _QUANTITY, held)
    entry.launches, entry.match = len(locked_ns), match
    entry.duration_ns, entry.duration_ns_free = float(locked_ns.sum()), float(free_ns.sum())
    entry.duration_ratio = ratio_of_totals(locked_ns, free_ns)


def _cycles(entry: LockedClockEntry, locked: RunData, free: RunData, held: HeldPairs) -> None:
    at_locked, at_free = held.launches(locked), held.launches(free)
    quantity = common_cycles(at_free, at_locked)
    locked_cycles, free_cycles, _ = _matched(entry, locked, free, quantity, held)
    flag_disturbed_cycles(entry, ((locked, at_locked), (free, at_free)))
    entry.window_launches, entry.quantity, entry.unit = len(locked_cycles), quantity, COST_UNITS[quantity]
    entry.cycles, entry.cycles_free = float(locked_cycles.sum()), float(free_cycles.sum())
    entry.cycles_ratio = ratio_of_totals(locked_cycles, free_cycles)
    entry.clock_mhz, entry.clock_mhz_free = clock_mhz(at_locked), clock_mhz(at_free)


def _matched(
    entry: LockedClockEntry, locked: RunData, free: RunData, quantity: str, held: HeldPairs
) -> tuple[np.ndarray, np.ndarray, Match]:
    """The costs of the matched launches in both runs, shape (m,) each, and how they match."""
    rest_on(entry, (locked, free), held)
    alignments = held.aligned(free, locked)
    require_match(alignments[KIND], subject=f"{free.run_id} and {locked.run_id}")
    matched = alignments[KIND]
    return (
        cost_of(held.launches(locked), quantity).values[matched.right_rows],
        cost_of(held.launches(free), quantity).values[matched.left_rows],
        match_facts(alignments, KIND, "clocks"),
    )
