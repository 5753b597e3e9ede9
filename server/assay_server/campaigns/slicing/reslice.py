"""Slices of runs while their campaign runs: those that wait for a light run, and the rest after each slice.

With ``detailed.first: auto`` the light run under the baseline comes first. Its launches decide the slices of
every detailed run of the workload on that kind of GPU, of all repeats and conditions
(:mod:`assay_server.campaigns.slicing.by_light`). Without it (it failed, or its launches do not tell) the
slices begin at the first launch, and end when nothing new comes.

After the end of a slice the later slices that were never leased are decided anew. Slices that the campaign
file fixes stay as they are, and so do those that were chosen from a light run, until the time budget is
spent. In other runs the rest is cut again with the measured cost of slices, continues while new kinds of
launches come, and ends when the workload ends, nothing new comes, or the time budget is spent. Decided inside
the transaction that publishes the slice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from assay_core.records.campaign import RunState
from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.launches.table import BASELINE
from assay_server.campaign_file.compiled import SlicePlan, Slicing
from assay_server.campaign_file.slices import (
    MOST_SKIPPED_PERCENT,
    MOST_SLICES_OF_A_RUN,
    SLICES_AHEAD,
    SliceCost,
    Window,
    cut,
    planned_windows,
)
from assay_server.campaigns.slicing.published import RECENT_SLICES, LaunchKinds, SliceCosts
from assay_server.store.model import ENDED_RUNS, OPEN_RUNS, Run, Slice, SliceState
from assay_server.store.sql import SqlTransaction

# An open run ends after this many slices in a row without a new kind of launch.
QUIET_SLICES = 2


def light_slicing(store: SqlTransaction, campaign_id: str) -> Slicing | None:
    """How a campaign's slices are chosen, if that is from a light run."""
    campaign = store.campaign(campaign_id)
    slicing = None if campaign is None else campaign.compiled.slicing
    return slicing if slicing is not None and slicing.by_light else None


def waiting_for_light(store: SqlTransaction, light: Run) -> list[Run]:
    """The detailed runs that have no slices until this run has ended; none if it is not their light run."""
    if not decides_slices(light) or light_slicing(store, light.campaign_id) is None:
        return []
    return [
        run
        for run in store.runs(light.campaign_id)
        if (run.workload, run.device_kind) == (light.workload, light.device_kind)
        and _has_no_slices(store, run)
    ]


def _has_no_slices(store: SqlTransaction, run: Run) -> bool:
    """Whether it waits for a light run to decide its slices."""
    return run.in_windows and run.state is RunState.WAITING and not store.slices(run.run_id)


def awaited_lights(store: SqlTransaction, campaign_id: str) -> list[Run]:
    """The ended light runs for whose end runs of a campaign wait: a person had these tried again since."""
    if light_slicing(store, campaign_id) is None:
        return []
    runs = store.runs(campaign_id)
    waiting = {(run.workload, run.device_kind) for run in runs if _has_no_slices(store, run)}
    return [
        run
        for run in runs
        if (run.workload, run.device_kind) in waiting and decides_slices(run) and run.state not in OPEN_RUNS
    ]


def decides_slices(run: Run) -> bool:
    """Whether detailed runs of its workload and GPU may wait for this run."""
    of_baseline = (run.level, run.condition, run.repeat, run.under_mps) == ("light", BASELINE, 0, False)
    return of_baseline and run.command is not None


def slices_of(store: SqlTransaction, run: Run, plan: SlicePlan | None) -> tuple[Slice, ...]:
    """The slices of a run that waited for its light run: those of the plan, else those from the beginning."""
    if plan is not None:
        windows = [(piece.launch_skip, piece.launch_count) for piece in plan.slices]
    else:
        slicing = light_slicing(store, run.campaign_id)
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


@dataclass(frozen=True)
class Rest:
    """The new slices from ``index`` on; ``flag`` says why the run ends early."""

    index: int
    slices: tuple[Slice, ...]
    flag: ValidityFlag | None = None


def slicing_of(store: SqlTransaction, run: Run) -> Slicing | None:
    """How to cut a run while it runs; None if its slices are fixed."""
    campaign = store.campaign(run.campaign_id) if run.in_windows else None
    slicing = None if campaign is None else campaign.compiled.slicing
    return None if slicing is None or slicing.is_fixed else slicing


def rest_after(store: SqlTransaction, run: Run, kinds: LaunchKinds) -> Rest | None:
    """The new rest of a run of which a slice has just been done; None if it stays as it is.

    Raises InputError if the file of a published slice cannot be read.
    """
    slicing = slicing_of(store, run)
    if slicing is None or run.state in ENDED_RUNS:
        return None
    cost = SliceCosts(store.slice_times(RECENT_SLICES)).of(run)
    slices = store.slices(run.run_id)
    progress = _Progress(slicing, run, slices, store.untried_from(run.run_id), cost)
    # A slice that the workload did not fill is its end; this sets no flag.
    ended = run.plan is None and any(piece.launches < piece.launch_count for piece in progress.done)
    why = progress.nothing_new(kinds) if run.plan is None and not ended else None
    why = why if ended or why is not None else progress.budget(store)
    rest: tuple[Slice, ...] = ()
    if not ended and why is None:
        rest = progress.rest(ahead=max(SLICES_AHEAD, _slots_that_fit(store, run)))
    if [_window(piece) for piece in rest] == [_window(piece) for piece in progress.untried]:
        return None
    return Rest(progress.index, rest, why if progress.untried or slicing.is_open else None)


def _window(piece: Slice) -> Window:
    return piece.launch_skip, piece.launch_count


def _slots_that_fit(store: SqlTransaction, run: Run) -> int:
    """The number of GPUs that can make slices of this run at the same time."""
    return sum(
        slot.device_key == run.device_key
        and slot.synthetic == run.synthetic
        and run.profiler in slot.profilers
        for agent in store.agents()
        for slot in agent.slots
    )


class _Progress:
    """A run between two slices: begun slices stay, the untried rest can change."""

    def __init__(
        self, slicing: Slicing, run: Run, slices: Sequence[Slice], untried_from: int, cost: SliceCost
    ) -> None:
        self.slicing, self.run, self.cost = slicing, run, cost
        self.index = untried_from
        self.begun = [piece for piece in slices if piece.index < untried_from]
        self.untried = [piece for piece in slices if piece.index >= untried_from]
        self.done = [piece for piece in self.begun if piece.state is SliceState.DONE]

    @property
    def _end(self) -> int:
        """The launch after the last slice that was begun."""
        return sum(_window(self.begun[-1]))

    def nothing_new(self, kinds: LaunchKinds) -> ValidityFlag | None:
        """The last of the slices done without a gap from the beginning brought no new kinds of launches."""
        if not self.slicing.is_open:
            return None
        together = list(takewhile(lambda piece: piece.state is SliceState.DONE, self.begun))
        if len(together) <= QUIET_SLICES or any(kinds.new_in(together)[-QUIET_SLICES:]):
            return None
        launches = sum(piece.launches for piece in together[-QUIET_SLICES:])
        return ValidityFlag(
            "window_cut",
            f"the window ends after {self._end:,} launches: the last {launches:,} brought no new kind",
        )

    def budget(self, store: SqlTransaction) -> ValidityFlag | None:
        """The next slice would exceed the time that the campaign gives to a run."""
        budget = self.slicing.time_budget_s
        if not budget:
            return None
        running = [piece for piece in self.begun if piece.state is not SliceState.DONE]
        follows = self.untried[:1] or list(self.rest(ahead=len(running) + 1))[:1]
        expected = sum(self.cost.seconds(*_window(piece)) for piece in [*running, *follows])
        if not follows or store.seconds_spent(self.run.run_id) + expected <= budget:
            return None
        where = (
            f"the window ends after {self._end:,} launches"
            if self.run.plan is None
            else f"{len(self.begun):,} of the {len(self.run.plan.slices):,} slices were measured"
        )
        detail = f"{where}: another slice would exceed the time budget of {budget:g} s"
        return ValidityFlag("window_cut", detail)

    def rest(self, ahead: int) -> tuple[Slice, ...]:
        """The slices after those that were begun; for an open run as many as ``ahead`` allows. Those of
        a plan stay as they are."""
        slicing, most = self.slicing, None
        if self.run.plan is not None:
            return tuple(self.untried)
        if slicing.is_open:
            most = max(0, ahead - (len(self.begun) - len(self.done)))
            if len(self.untried) >= most:
                return tuple(self.untried)
        else:
            shares = (self.cost.skipped_percent(*_window(piece)) for piece in self.untried)
            if slicing.slice_launches or max(shares, default=-math.inf) < MOST_SKIPPED_PERCENT:
                return tuple(self.untried)
        windows = enumerate(cut(slicing, self.cost, self._end, most), self.index)
        return tuple(Slice(self.run.run_id, index, *window) for index, window in windows)
