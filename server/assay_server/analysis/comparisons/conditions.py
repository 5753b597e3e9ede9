"""Comparisons of one workload under two conditions.

**The cold start**: a window with caches flushed between launches against the same window with warm caches.

    weighted_difference_percent = 100 sum w |flushed - warm| / sum w warm, in cycles of one kind

over the window's launches (w = 1), and over a selection's representatives (w = their weights).

**Locked clocks**: times and cycles of the same launches under a locked clock and under free clocks.

    duration_ratio = sum duration_ns locked / sum free      of the light runs, over matched launches
    cycles_ratio   = sum cycles locked / sum free           of the windows in one pass, over matched launches
    clock_mhz      = sum of cycles / sum of the time that was profiled, of a window

At a lower SM clock memory answers in fewer SM cycles, so the two ratios tell how far a workload depends on
the SM clock: a workload that does not depend on memory keeps its cycles. Cycles and free-running times are
separate costs; neither is computed from the other.

**SM shares**: how much longer a workload takes on some of the SMs, measured and as its selections predict.

    speedup_true      = sum duration_ns at the share / sum at all SMs, over matched launches
    speedup_predicted = the same for sum weight x duration_ns of the representatives

Both runs are under the same kind of MPS daemon; if only the free run at 100 % has data, it is used instead
and flagged. Source: docs/conditions.md, "What is compared".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc

from assay_report.model.compared import (
    ColdStartEntry,
    Compared,
    InstructionShare,
    LockedClockEntry,
    Prediction,
    SelectionDifference,
    SmShareEntry,
    WorstLaunch,
)
from assay_sampling.counters.definitions import COST_UNITS, CYCLE_COUNTERS
from assay_sampling.counters.missing import how_to_collect
from assay_sampling.documents.base import plain
from assay_sampling.documents.common import ErrorDecomposition, NoteEntry
from assay_sampling.errors import AssayError, CounterUnavailableError, RefusedError
from assay_sampling.launches.alignment import MatchKind, align_window, require_match
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import Condition
from assay_sampling.notes.registry import note_of_error
from assay_sampling.running.identity import RunLevel
from assay_sampling.scoring.by_operation import score_operations
from assay_sampling.scoring.carried import score_on
from assay_sampling.scoring.error_parts.decomposition import decompose, with_costs_elsewhere
from assay_sampling.scoring.evaluation import cost_of
from assay_sampling.scoring.two_conditions import (
    DIFFERENCE_THRESHOLDS_PERCENT,
    counterparts,
    differences_percent,
    effective_sms,
    ipc_differences_percent,
    ratio_of_totals,
    shares_over_percent,
    weighted_difference_percent,
)
from assay_server.analysis import rows
from assay_server.analysis.comparisons.device_runs import DeviceRuns, MadeSelection
from assay_server.analysis.runs.loading import clock_mhz
from assay_server.analysis.runs.request import RunData

_SAME_KIND: MatchKind = "exact"
_ACROSS_KIND: MatchKind = "name_block"
_TIME = "duration_ns"
_DISTURBED = "cycles_of_several_passes"
_LEVELS: tuple[RunLevel, ...] = ("light", "detailed")


def cold_start_entries(device: DeviceRuns, made: Sequence[MadeSelection]) -> Iterator[ColdStartEntry]:
    """One entry for each condition under which a GPU has a flushed detailed run."""
    for flushed_runs in device.groups("detailed"):
        condition = flushed_runs[0].condition
        if condition.cache != "all":
            continue
        entry = device.entry(ColdStartEntry, condition)
        with rows.status_of(entry):
            flushed, warm = device.pair(
                flushed_runs,
                device.of("detailed", replace(condition, cache="none")),
                "no detailed run with caches left alone has data, so there is nothing to compare with",
                where=", caches flushed",
            )
            window = _window(entry, flushed, warm, device)
            entry.selections = [_of_selection(each, device, warm, window) for each in made]
        yield entry
        device.memory.release()


@dataclass(frozen=True)
class _Window:
    """Matched launches: rows of the warm run, and cycles with caches warm and flushed; shape (m,)."""

    warm_rows: np.ndarray
    warm: np.ndarray
    flushed: np.ndarray


def _window(entry: ColdStartEntry, flushed: RunData, warm: RunData, device: DeviceRuns) -> _Window:
    device.rest_on(entry, (flushed, warm))
    cold_launches, warm_launches = device.memory.launches(flushed), device.memory.launches(warm)
    entry.match = device.match(warm, flushed, _SAME_KIND, "caches")
    matched = device.matched(warm, flushed, _SAME_KIND)
    quantity = common_cycles(warm_launches, cold_launches)
    flag_disturbed_cycles(entry, ((warm, warm_launches), (flushed, cold_launches)))
    window = _Window(
        matched.left_rows,
        cost_of(warm_launches, quantity).values[matched.left_rows],
        cost_of(cold_launches, quantity).values[matched.right_rows],
    )
    entry.quantity, entry.unit, entry.launches = quantity, COST_UNITS[quantity], len(matched.left_rows)
    _describe(entry, window, warm_launches)
    return window


def common_cycles(warm: Launches, flushed: Launches) -> str:
    """The kind of cycles that both runs measured for every launch; raises CounterUnavailableError."""
    for quantity in CYCLE_COUNTERS:
        tables = [warm.table, flushed.table]
        if all(quantity in t.schema.names and not t[quantity].null_count for t in tables):
            return quantity
    raise CounterUnavailableError(
        ", ".join((*warm.sources, *flushed.sources)),
        "no kind of cycles was measured for every launch of both runs",
        f"in both, {how_to_collect(CYCLE_COUNTERS[:1], table=warm.table)}",
    )


def flag_disturbed_cycles(entry: Compared, runs: Sequence[tuple[RunData, Launches]]) -> None:
    """Flag the runs whose cycles come from launches that were replayed for several passes."""
    for run, launches in runs:
        if run.cycles is not None or "replay_passes" not in launches.table.schema.names:
            continue
        passes = float(np.nanmax(launches.column("replay_passes"), initial=1.0))
        if passes > 1 and not any(name == _DISTURBED for name, _, _ in run.flags):
            detail = f"its launches took {passes:g} passes, and no run measured their cycles in one"
            rows.flag(entry, run.run_id, _DISTURBED, detail)


def _describe(entry: ColdStartEntry, window: _Window, warm: Launches) -> None:
    differences = differences_percent(window.warm, window.flushed)
    entry.weighted_difference_percent = weighted_difference_percent(window.warm, window.flushed)
    finite = differences[np.isfinite(differences)]
    if len(finite):
        entry.median_difference_percent = float(np.median(finite))
        entry.mean_difference_percent = float(finite.mean())
        entry.worst = _worst(window, differences, warm)
    names = warm.table.schema.names
    if "instructions" in names and not warm.table["instructions"].null_count:
        instructions = warm.column("instructions")[window.warm_rows]
        if instructions.sum() > 0:
            ipc = ipc_differences_percent(window.warm, window.flushed)
            shares = shares_over_percent(instructions, ipc)
            entry.instruction_shares = [
                InstructionShare(ipc_difference_percent=threshold, share_percent=share)
                for threshold, share in zip(DIFFERENCE_THRESHOLDS_PERCENT, shares, strict=True)
            ]


def _worst(window: _Window, differences: np.ndarray, warm: Launches) -> WorstLaunch:
    """The launch with the largest difference relative to its cycles."""
    at = int(np.nanargmax(np.abs(differences)))
    one = warm.slice(int(window.warm_rows[at]), 1)
    return WorstLaunch(
        process=int(one.column("process")[0]),
        launch=int(one.column("launch")[0]),
        kernel=one.names[int(one.column("kernel_id")[0])],
        difference_percent=plain(differences[at]),
        warm=plain(window.warm[at]),
        flushed=plain(window.flushed[at]),
    )


def _of_selection(
    made: MadeSelection, device: DeviceRuns, warm: RunData, window: _Window
) -> SelectionDifference:
    """The difference by a selection's representatives and weights; an AssayError becomes its status."""
    entry = SelectionDifference(
        method=made.method,
        selection=made.key,
        representatives=len(made.selection.representatives.row),
    )
    with rows.status_of(entry):
        rows_here = _representatives(made, device, warm)
        places = counterparts(rows_here, window.warm_rows, np.arange(len(window.warm_rows)))
        inside = places >= 0
        entry.representatives_in_window = int(inside.sum())
        if not inside.any():
            raise RefusedError(made.key, "both runs' window contains none of its representatives")
        entry.weighted_difference_percent = weighted_difference_percent(
            window.warm[places[inside]],
            window.flushed[places[inside]],
            made.selection.representatives.weight[inside],
        )
        if inside.all() and made.whole.level == "detailed":
            entry.started_cold = _started_cold(made, window, places, len(device.memory.launches(warm)))
    return entry


def _started_cold(
    made: MadeSelection, window: _Window, places: np.ndarray, launches: int
) -> ErrorDecomposition | None:
    """The error of charging the representatives, at ``places`` in the window, with cold caches; None unless
    the window is all that the selection was made on."""
    if len(window.warm_rows) < launches or launches != made.selection.profile.launches:
        return None
    weight, recorded = made.selection.representatives.weight, window.warm[places]
    parts = with_costs_elsewhere(
        decompose(window.warm, places, weight),
        float(window.warm.sum()),
        weight,
        recorded,
        cold=window.flushed[places],
    )
    return ErrorDecomposition.model_validate(parts.to_dict())


def _representatives(made: MadeSelection, device: DeviceRuns, warm: RunData) -> np.ndarray:
    """Rows of the representatives in the warm detailed run, shape (r,); -1 for those that it lacks."""
    chosen = made.selection.representatives.row
    if made.whole.level == "detailed":
        return _across(chosen, made.whole, warm, device)
    light = next(iter(device.of("light", warm.condition)), None)
    if light is None:
        raise RefusedError(
            made.key,
            f"it was made on a light run, and {device.device_kind} has no light run to find its launches in",
            "run the light level there too",
        )
    in_light = _across(chosen, made.whole, light, device)
    matched = align_window(device.memory.launches(warm), device.memory.launches(light), _SAME_KIND)
    require_match(matched, subject=f"{warm.run_id} and {light.run_id}")
    return counterparts(in_light, matched.right_rows, matched.left_rows)


def _across(chosen: np.ndarray, made_on: RunData, here: RunData, device: DeviceRuns) -> np.ndarray:
    """Rows of the chosen launches in another run."""
    if made_on.run_id == here.run_id:
        return chosen
    matched = device.matched(made_on, here, _ACROSS_KIND)
    return counterparts(chosen, matched.left_rows, matched.right_rows)


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
        for level in _LEVELS:
            try:
                locked, free = _clock_pair(device, condition, level)
                if level == "light":
                    _compare_times(entry, locked, free, device)
                else:
                    _compare_cycles(entry, locked, free, device)
            except AssayError as error:
                failures[level] = error
            device.memory.release()
        if len(failures) == len(_LEVELS):  # nothing is known of either level
            rows.fail(entry, failures["light"])
        else:
            entry.notes += [
                NoteEntry.of(note_of_error("level_not_compared", error, level=level))
                for level, error in failures.items()
            ]
        entry.clock_locked = not any(flag.name == "clock_unlocked" for flag in entry.flags)
        yield entry


def _clock_pair(device: DeviceRuns, condition: Condition, level: RunLevel) -> tuple[RunData, RunData]:
    """A run under the locked clock and the free run of the same repeat, else the first free run."""
    locked, where = device.of(level, condition), f", clock {condition.clock}"
    if not locked:
        subject = f"{device.workload} on {device.device_kind}{where}"
        raise RefusedError(subject, f"no {level} run under this clock has data", "see the failed runs")
    free = device.of(level, replace(condition, clock="none"))
    return device.pair(locked, free, f"no {level} run with free clocks has data to compare with", where=where)


def _compare_times(entry: LockedClockEntry, locked: RunData, free: RunData, device: DeviceRuns) -> None:
    locked_ns, free_ns = _matched_costs(entry, locked, free, _TIME, device)
    entry.launches, entry.match = len(locked_ns), device.match(free, locked, _SAME_KIND, "clocks")
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
    matched = device.matched(free, locked, _SAME_KIND)
    return (
        cost_of(device.memory.launches(locked), quantity).values[matched.right_rows],
        cost_of(device.memory.launches(free), quantity).values[matched.left_rows],
    )


def sm_share_entries(device: DeviceRuns, made: Sequence[MadeSelection]) -> Iterator[SmShareEntry]:
    """One entry for each SM share with a light run on a GPU; an AssayError becomes its status."""
    for shares in device.groups("light"):
        condition = shares[0].condition
        if condition.sm_percent is None or condition.sm_percent >= 100:
            continue
        entry = device.entry(
            SmShareEntry,
            condition,
            sm_percent=condition.sm_percent,
            sm_share=condition.sm_share,
            clocks_locked=condition.clock in ("base", "boost"),
        )
        with rows.status_of(entry):
            whole_condition = replace(condition, sm_percent=100.0, sm_share="limit")
            share, whole = device.pair(
                shares,
                device.of("light", whole_condition, under_mps=shares[0].under_mps)
                or device.of("light", whole_condition),
                "no light run at 100 % has data, so there is nothing to compare with",
                where=f" at {condition.sm_percent:g} % of the SMs",
            )
            _compare_shares(entry, share, whole, device)
            entry.predictions = [_prediction(each, share, whole, entry, device) for each in made]
        yield entry
        device.memory.release()


def _compare_shares(entry: SmShareEntry, share: RunData, whole: RunData, device: DeviceRuns) -> None:
    memory = device.memory
    device.rest_on(entry, (share, whole))
    if not (share.under_mps and whole.under_mps):
        detail = "the two runs were not made under the same kind of MPS daemon"
        rows.flag(entry, whole.run_id, "not_under_mps", detail)
    at_share, at_all = memory.launches(share), memory.launches(whole)
    rows.describe_launches(entry, memory.facts(share), share)
    _count_sms(entry, at_share, at_all, float(share.condition.sm_percent or 100.0))
    entry.match = device.match(whole, share, _ACROSS_KIND, "SM shares")
    matched = device.matched(whole, share, _ACROSS_KIND)
    share_ns = cost_of(at_share, _TIME).values[matched.right_rows]
    all_ns = cost_of(at_all, _TIME).values[matched.left_rows]
    entry.duration_ns, entry.duration_ns_all_sms = float(share_ns.sum()), float(all_ns.sum())
    entry.speedup_true = ratio_of_totals(share_ns, all_ns)


def _count_sms(entry: SmShareEntry, at_share: Launches, at_all: Launches, percent: float) -> None:
    """The SMs that the tool saw at the share if fewer than all; else the number to which MPS rounds."""
    all_sms, seen = _sm_count(at_all), _sm_count(at_share)
    if all_sms is None:
        return
    entry.all_sms = all_sms
    entry.effective_sms = seen if seen is not None and seen < all_sms else effective_sms(all_sms, percent)


def _sm_count(launches: Launches) -> int | None:
    """SMs of the GPUs on which launches ran, if all are known and equal."""
    used = set(pc.unique(launches.table["device"]).to_pylist())
    counts = {device.sm_count for device in launches.metadata.devices if device.index in used}
    [count] = counts if len(counts) == 1 else [None]
    return count or None


def _prediction(
    made: MadeSelection, share: RunData, whole: RunData, entry: SmShareEntry, device: DeviceRuns
) -> Prediction:
    """The ratio that a selection's representatives give; an AssayError becomes its status."""
    prediction = Prediction(method=made.method, selection=made.key)
    with rows.status_of(prediction):
        at_share, at_all = (_projected(made, run, device) for run in (share, whole))
        prediction.speedup_predicted = predicted = at_share[0] / at_all[0]
        if entry.speedup_true is not None:
            prediction.speedup_error_percent = 100.0 * abs(predicted / entry.speedup_true - 1.0)
        prediction.error_percent = at_share[1]
    return prediction


def _projected(made: MadeSelection, run: RunData, device: DeviceRuns) -> tuple[float, float]:
    """The projected total of a run in ns, and its error in percent.

    Another GPU may launch other kernels, so a selection by operation is scored there by operation.
    """
    calls, memory = made.calls, device.memory
    if calls is not None and run.device_kind != made.whole.device_kind:
        scores = score_operations(calls, memory.launches(run), _TIME).scores
        score = scores[made.selection.weights.elsewhere]
        return score.projected, score.error_percent
    evaluation, _ = score_on(
        made.selection,
        memory.launches(run),
        _ACROSS_KIND,
        reference=memory.launches(made.whole),
        quantity=_TIME,
        alignments=memory.aligned(made.whole, run),
    )
    return evaluation.projected, evaluation.error_percent
