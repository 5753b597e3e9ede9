"""Locked clocks: times and cycles of the same launches under a locked clock and under free ones.

    duration_ratio = sum duration_ns locked / sum free      of the light runs, over matched launches
    cycles_ratio   = sum cycles locked / sum free           of the windows in one pass, over matched launches
    clock_mhz      = sum of cycles / sum of the time that was profiled, of a window

At a lower SM clock memory answers in fewer SM cycles, so the two ratios tell how far a workload depends on
the SM clock: one that does not depend on memory keeps its cycles. Cycles and free-running times are two
costs, and neither is computed from the other. Source: design, "Numbers that must mean one thing"; notes on
NVML, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from assay_sampling.alignment import MatchKind, require_match
from assay_sampling.conditions import ratio_of_totals
from assay_sampling.errors import AssayError, RefusedError
from assay_sampling.evaluation import COST_UNITS, cost_of
from assay_sampling.identity import RunLevel
from assay_sampling.launches import Launches
from assay_server.analysis import rows
from assay_server.analysis.cold_start import common_cycles, flag_disturbed_cycles
from assay_server.analysis.compared import DeviceRuns, Entry, HeldPairs, empty_entry, match_facts, rest_on
from assay_server.analysis.request import RunData

KIND: MatchKind = "exact"
_QUANTITY = "duration_ns"
_NS_TO_MHZ = 1e3

_Compare = Callable[[Entry, RunData, RunData, HeldPairs], None]


def locked_clock_entries(device: DeviceRuns, held: HeldPairs) -> Iterator[Entry]:
    """An entry for each locked clock that a GPU has live runs under, whole and with its caches left alone."""
    conditions = dict.fromkeys(
        run.condition
        for run in device.runs
        if run.live and run.condition.clock in ("base", "boost") and not run.under_mps
    )
    for condition in conditions:
        if condition.cache == "all" or (condition.sm_percent or 100.0) < 100:
            continue
        entry = {**empty_entry(device, condition), **dict.fromkeys(_NUMBERS), "notes": []}
        failures = []
        parts: tuple[tuple[RunLevel, _Compare], ...] = (("light", _times), ("detailed", _cycles))
        for level, compare in parts:
            try:
                compare(entry, *_pair(device, condition.clock, device.of(level, condition), level), held)
            except AssayError as error:
                failures.append(error)
            held.release()
        if len(failures) == 2:  # nothing is known of either level
            rows.fail(entry, failures[0])
        else:
            entry["notes"] += [str(error.cause) for error in failures]
        entry["clock_locked"] = not any(flag["name"] == "clock_unlocked" for flag in entry["flags"])
        yield entry


_NUMBERS = (
    "clock_locked", "launches", "match", "duration_ns", "duration_ns_free", "duration_ratio",
    "window_launches", "quantity", "unit", "cycles", "cycles_free", "cycles_ratio", "clock_mhz",
    "clock_mhz_free",
)  # fmt: skip


def _pair(
    device: DeviceRuns, clock: str | None, locked: list[RunData], level: RunLevel
) -> tuple[RunData, RunData]:
    """A run under the locked clock and the free one of the same repeat, or the first there is."""
    subject = f"{device.workload} on {device.device_kind}, clock {clock}"
    if not locked:
        raise RefusedError(subject, f"no {level} run under it has data", "see the failed runs")
    free = device.of(level, replace(locked[0].condition, clock="none"))
    by_repeat = {run.repeat: run for run in free}
    for run in locked:
        if run.repeat in by_repeat:
            return run, by_repeat[run.repeat]
    if not free:
        raise RefusedError(
            subject, f"no {level} run with free clocks has data to compare with", "run it again"
        )
    return locked[0], free[0]


def _times(entry: Entry, locked: RunData, free: RunData, held: HeldPairs) -> None:
    locked_ns, free_ns, match = _matched(entry, locked, free, _QUANTITY, held)
    entry.update(
        launches=len(locked_ns),
        match=match,
        duration_ns=float(locked_ns.sum()),
        duration_ns_free=float(free_ns.sum()),
        duration_ratio=ratio_of_totals(locked_ns, free_ns),
    )


def _cycles(entry: Entry, locked: RunData, free: RunData, held: HeldPairs) -> None:
    at_locked, at_free = held.launches(locked), held.launches(free)
    quantity = common_cycles(at_free, at_locked)
    locked_cycles, free_cycles, _ = _matched(entry, locked, free, quantity, held)
    flag_disturbed_cycles(entry, ((locked, at_locked), (free, at_free)))
    entry.update(
        window_launches=len(locked_cycles),
        quantity=quantity,
        unit=COST_UNITS[quantity],
        cycles=float(locked_cycles.sum()),
        cycles_free=float(free_cycles.sum()),
        cycles_ratio=ratio_of_totals(locked_cycles, free_cycles),
        clock_mhz=_clock_mhz(at_locked),
        clock_mhz_free=_clock_mhz(at_free),
    )


def _matched(
    entry: Entry, locked: RunData, free: RunData, quantity: str, held: HeldPairs
) -> tuple[np.ndarray, np.ndarray, dict[str, object]]:
    """The cost of the same launches in both runs, shape (m,) each, and how they match."""
    rest_on(entry, (locked, free), held)
    alignments = held.aligned(free, locked)
    require_match(alignments[KIND], subject=f"{free.run_id} and {locked.run_id}")
    matched = alignments[KIND]
    return (
        cost_of(held.launches(locked), quantity).values[matched.right_rows],
        cost_of(held.launches(free), quantity).values[matched.left_rows],
        match_facts(alignments, KIND, "clocks"),
    )


def _clock_mhz(launches: Launches) -> float | None:
    """The mean SM clock over the time in which launches were profiled; None where it was not measured."""
    names = launches.table.schema.names
    if "cycles_gpc_avg" not in names or "profiled_duration_ns" not in names:
        return None
    cycles, nanoseconds = launches.column("cycles_gpc_avg"), launches.column("profiled_duration_ns")
    known = np.isfinite(cycles) & np.isfinite(nanoseconds) & (nanoseconds > 0)
    if not known.any():
        return None
    return _NS_TO_MHZ * float(cycles[known].sum()) / float(nanoseconds[known].sum())
