"""The cold start: a window with caches flushed between launches against the same window with warm caches.

    weighted_difference_percent = 100 sum w |flushed - warm| / sum w warm, in cycles of one kind

over the window's launches (w = 1), and over a selection's representatives (w = their weights).
Source: docs/conditions.md, "What is compared".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from assay_report.model.compared import (
    ColdStartEntry,
    Compared,
    InstructionShare,
    SelectionDifference,
    WorstLaunch,
)
from assay_sampling.counters.definitions import COST_UNITS, CYCLE_COUNTERS
from assay_sampling.counters.missing import how_to_collect
from assay_sampling.documents.base import plain
from assay_sampling.documents.common import ErrorDecomposition
from assay_sampling.errors import CounterUnavailableError, RefusedError
from assay_sampling.launches.alignment import MatchKind, align_window, require_match
from assay_sampling.launches.in_memory import Launches
from assay_sampling.scoring.error_parts.decomposition import decompose, with_costs_elsewhere
from assay_sampling.scoring.evaluation import cost_of
from assay_sampling.scoring.two_conditions import (
    DIFFERENCE_THRESHOLDS_PERCENT,
    counterparts,
    differences_percent,
    ipc_differences_percent,
    shares_over_percent,
    weighted_difference_percent,
)
from assay_server.analysis import rows
from assay_server.analysis.comparisons.device_runs import DeviceRuns, MadeSelection
from assay_server.analysis.runs.request import RunData

KIND: MatchKind = "exact"
_ACROSS_KIND: MatchKind = "name_block"
_DISTURBED = "cycles_of_several_passes"


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
    entry.match = device.match(warm, flushed, KIND, "caches")
    matched = device.matched(warm, flushed, KIND)
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
    known = differences[np.isfinite(differences)]
    if len(known):
        entry.median_difference_percent = float(np.median(known))
        entry.mean_difference_percent = float(known.mean())
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
    matched = align_window(device.memory.launches(warm), device.memory.launches(light), KIND)
    require_match(matched, subject=f"{warm.run_id} and {light.run_id}")
    return counterparts(in_light, matched.right_rows, matched.left_rows)


def _across(chosen: np.ndarray, made_on: RunData, here: RunData, device: DeviceRuns) -> np.ndarray:
    """Rows of the chosen launches in another run."""
    if made_on.run_id == here.run_id:
        return chosen
    matched = device.matched(made_on, here, _ACROSS_KIND)
    return counterparts(chosen, matched.left_rows, matched.right_rows)
