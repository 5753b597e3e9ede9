"""Locked clocks: times and cycles of the same launches under a locked clock and under free clocks.

    duration_ratio = sum duration_ns locked / sum free      of the light runs, over matched launches
    cycles_ratio   = sum cycles locked / sum free           of the windows in one pass, over matched launches
    clock_mhz      = sum of cycles / sum of the time that was profiled, of a window

At a lower SM clock memory answers in fewer SM cycles, so the two ratios tell how far a workload depends on
the SM clock: a workload that does not depend on memory keeps its cycles. Cycles and free-running times are
separate costs; neither is computed from the other. Source: docs/conditions.md, "What is compared".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from assay_report.model.compared import LockedClockEntry
from assay_sampling.counters.definitions import COST_UNITS
from assay_sampling.documents.common import NoteEntry
from assay_sampling.errors import AssayError, RefusedError
from assay_sampling.launches.alignment import MatchKind
from assay_sampling.launches.table import Condition
from assay_sampling.notes.registry import note_of_error
from assay_sampling.running.identity import RunLevel
from assay_sampling.scoring.evaluation import cost_of
from assay_sampling.scoring.two_conditions import ratio_of_totals
from assay_server.analysis import rows
from assay_server.analysis.comparisons.cold_start import common_cycles, flag_disturbed_cycles
from assay_server.analysis.comparisons.device_runs import DeviceRuns
from assay_server.analysis.runs.loading import clock_mhz
from assay_server.analysis.runs.request import RunData

LEVELS: tuple[RunLevel, ...] = ("light", "detailed")
KIND: MatchKind = "exact"
_QUANTITY = "duration_ns"


def locked_clock_entries(device: DeviceRuns) -> Iterator[LockedClockEntry]:
    """An entry for each locked clock under which a GPU has live runs on all SMs with warm caches."""
    conditions = dict.fromkeys(
        run.condition
        for run in device.runs
        if run.live and run.condition.clock in ("base", "boost") and not run.under_mps
    )
    for condition in conditions:
        if condition.cache == "all" or (condition.sm_percent or 100.0) < 100:
            continue
        entry = device.entry(LockedClockEntry, condition)
        failures: dict[RunLevel, AssayError] = {}
        for level in LEVELS:
            try:
                locked, free = _pair(device, condition, level)
                if level == "light":
                    _compare_times(entry, locked, free, device)
                else:
                    _compare_cycles(entry, locked, free, device)
            except AssayError as error:
                failures[level] = error
            device.memory.release()
        if len(failures) == len(LEVELS):  # nothing is known of either level
            rows.fail(entry, failures["light"])
        else:
            entry.notes += [
                NoteEntry.of(note_of_error("level_not_compared", error, level=level))
                for level, error in failures.items()
            ]
        entry.clock_locked = not any(flag.name == "clock_unlocked" for flag in entry.flags)
        yield entry


def _pair(device: DeviceRuns, condition: Condition, level: RunLevel) -> tuple[RunData, RunData]:
    """A run under the locked clock and the free run of the same repeat, else the first free run."""
    locked, where = device.of(level, condition), f", clock {condition.clock}"
    if not locked:
        subject = f"{device.workload} on {device.device_kind}{where}"
        raise RefusedError(subject, f"no {level} run under this clock has data", "see the failed runs")
    free = device.of(level, replace(condition, clock="none"))
    return device.pair(locked, free, f"no {level} run with free clocks has data to compare with", where=where)


def _compare_times(entry: LockedClockEntry, locked: RunData, free: RunData, device: DeviceRuns) -> None:
    locked_ns, free_ns = _matched_costs(entry, locked, free, _QUANTITY, device)
    entry.launches, entry.match = len(locked_ns), device.match(free, locked, KIND, "clocks")
    entry.duration_ns, entry.duration_ns_free = float(locked_ns.sum()), float(free_ns.sum())
    entry.duration_ratio = ratio_of_totals(locked_ns, free_ns)


def _compare_cycles(entry: LockedClockEntry, locked: RunData, free: RunData, device: DeviceRuns) -> None:
    at_locked, at_free = device.memory.launches(locked), device.memory.launches(free)
    quantity = common_cycles(at_free, at_locked)
    locked_cycles, free_cycles = _matched_costs(entry, locked, free, quantity, device)
    flag_disturbed_cycles(entry, ((locked, at_locked), (free, at_free)))
    entry.window_launches, entry.quantity, entry.unit = len(locked_cycles), quantity, COST_UNITS[quantity]
    entry.cycles, entry.cycles_free = float(locked_cycles.sum()), float(free_cycles.sum())
    entry.cycles_ratio = ratio_of_totals(locked_cycles, free_cycles)
    entry.clock_mhz, entry.clock_mhz_free = clock_mhz(at_locked), clock_mhz(at_free)


def _matched_costs(
    entry: LockedClockEntry, locked: RunData, free: RunData, quantity: str, device: DeviceRuns
) -> tuple[np.ndarray, np.ndarray]:
    """The costs of the matched launches in both runs, shape (m,) each."""
    device.rest_on(entry, (locked, free))
    matched = device.matched(free, locked, KIND)
    return (
        cost_of(device.memory.launches(locked), quantity).values[matched.right_rows],
        cost_of(device.memory.launches(free), quantity).values[matched.left_rows],
    )
