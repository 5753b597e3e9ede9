"""Detailed runs whose slices wait for a light run: which they are, and the plan that its launches give.

With ``detailed.first: auto`` the light run under the baseline comes first. Its launches decide the slices of
every detailed run of the workload on that kind of GPU, of all repeats and conditions. Without it (it failed,
or its launches do not tell) the slices begin at the first launch, and end when nothing new comes.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from assay_core.records.campaign import RunState
from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.errors import AssayError
from assay_sampling.launches.table import BASELINE
from assay_server.campaign_file.compiled import SlicePlan
from assay_server.campaign_file.slices import (
    MOST_SLICES_OF_A_RUN,
    LightPace,
    cost_from_light,
    planned_windows,
)
from assay_server.campaigns.slicing.by_light import LightTimes, chosen_slices
from assay_server.campaigns.slicing.learned import RECENT_SLICES, SliceCosts
from assay_server.store.model import OPEN_RUNS, Run, Slice
from assay_server.store.sql import SqlTransaction

if TYPE_CHECKING:
    from assay_sampling.launches.in_memory import Launches

_log = logging.getLogger(__name__)
_NS_PER_S = 1e9


def waiting_for_light(store: SqlTransaction, light: Run) -> list[Run]:
    """The detailed runs that have no slices until this run has ended; none if it is not their light run."""
    if not decides_slices(light):
        return []
    campaign = store.campaign(light.campaign_id)
    slicing = None if campaign is None else campaign.compiled.slicing
    if slicing is None or not slicing.by_light or light.command is None:
        return []
    return [
        run
        for run in store.runs(light.campaign_id)
        if (run.workload, run.device_kind) == (light.workload, light.device_kind)
        and run.in_windows
        and run.state is RunState.WAITING
        and not store.slices(run.run_id)
    ]


def awaited_lights(store: SqlTransaction, campaign_id: str) -> list[Run]:
    """The ended light runs for whose end runs of a campaign wait: a person had these tried again since."""
    campaign = store.campaign(campaign_id)
    slicing = None if campaign is None else campaign.compiled.slicing
    if slicing is None or not slicing.by_light:
        return []
    runs = store.runs(campaign_id)
    waiting = {
        (run.workload, run.device_kind)
        for run in runs
        if run.in_windows and run.state is RunState.WAITING and not store.slices(run.run_id)
    }
    return [
        run
        for run in runs
        if (run.workload, run.device_kind) in waiting and decides_slices(run) and run.state not in OPEN_RUNS
    ]


def decides_slices(run: Run) -> bool:
    """Whether detailed runs of its workload and GPU may wait for this run."""
    return (run.level, run.condition, run.repeat, run.under_mps) == ("light", BASELINE, 0, False)


def plan_from(store: SqlTransaction, light: Run, path: Path) -> SlicePlan | None:
    """The plan for the detailed runs that wait for ``light``, from its published file.

    None if none waits, or if its launches do not tell: they are of several processes, or without times.
    """
    waiting = waiting_for_light(store, light)
    campaign = store.campaign(light.campaign_id) if waiting else None
    slicing = None if campaign is None else campaign.compiled.slicing
    if slicing is None:
        return None
    try:
        read = _read(path, light.run_id)
    except AssayError as error:
        _log.warning("no slices can be chosen from run %s: %s", light.run_id, error)
        return None
    if read is None:
        return None
    times, pace = read
    return chosen_slices(times, slicing, [cost_from_light(run.counters, pace) for run in waiting])


def slices_of(store: SqlTransaction, run: Run, plan: SlicePlan | None) -> tuple[Slice, ...]:
    """The slices of a run that waited for its light run: those of the plan, else those from the beginning."""
    if plan is not None:
        windows = [(piece.launch_skip, piece.launch_count) for piece in plan.slices]
    else:
        campaign = store.campaign(run.campaign_id)
        slicing = None if campaign is None else campaign.compiled.slicing
        assert slicing is not None  # else the run would not wait
        windows = planned_windows(slicing, SliceCosts(store.slice_times(RECENT_SLICES)).of(run))
    return tuple(Slice(run.run_id, index, *window) for index, window in enumerate(windows))


def flags_of_plan(plan: SlicePlan | None, budget_s: float) -> tuple[ValidityFlag, ...]:
    """The flag of a run whose plan ends before few enough is unseen."""
    if plan is None or plan.ending == "unseen":
        return ()
    why = (
        f"another slice would exceed the time budget of {budget_s:g} s"
        if plan.ending == "budget"
        else f"a run has at most {MOST_SLICES_OF_A_RUN} slices"
    )
    detail = (
        f"{plan.unseen_percent:.2f} % of the light time stays unseen, more than "
        f"{plan.most_unseen_percent:g} %: {why}"
    )
    return (ValidityFlag("window_cut", detail),)


def _read(path: Path, run_id: str) -> tuple[LightTimes, LightPace] | None:
    """Signatures and pace from a light run; None unless it holds the launches of one process, with times."""
    # Readers load Arrow's datasets, which a server that only schedules recordings does not need.
    from assay_sampling.gathering.named_range import rows_in_window  # noqa: PLC0415
    from assay_sampling.launches.unseen import signature_ordinals  # noqa: PLC0415
    from assay_sampling.readers.opening import read_launches  # noqa: PLC0415

    launches = read_launches(path, whole=True)  # slices are counted from the program's first launch
    count = len(launches)
    ordinal, process = launches.column("launch"), launches.column("process")
    if not count or process[0] != process[-1] or ordinal[0] != 0 or ordinal[-1] != count - 1:
        return None
    if launches.table["duration_ns"].null_count:
        return None
    duration_ns = launches.column("duration_ns")
    total_s = float(duration_ns.sum()) / _NS_PER_S
    if total_s <= 0:
        return None
    inside = rows_in_window(launches)
    times = LightTimes(run_id, signature_ordinals(launches), duration_ns)
    times = times.within(inside) if len(inside) else times
    return times, LightPace(count, max(_span_s(launches), total_s), total_s / count)


def _span_s(launches: Launches) -> float:
    """Seconds from the first launch's start to the last end; 0 where starts are not known."""
    if launches.table["start_ns"].null_count:
        return 0.0
    start_ns = launches.column("start_ns")
    return float((start_ns + launches.column("duration_ns")).max() - start_ns.min()) / _NS_PER_S
