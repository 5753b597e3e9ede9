"""Chooses slices from a light run: the most unseen light time per second of profiling first.

A slice is worth the light time of all launches whose signature it has and no earlier slice has; a signature
that is seen once counts as seen. It costs what the model says, the launches that it skips included
(:func:`assay_server.campaign_file.slices.cost_from_light`). The best slice is taken, then the best of what is
left, until few enough is unseen. Equal ones: the earliest. Nothing here is drawn at random.

Source: ours; docs/methods/two-level.md, "Which launches to profile". Memory: 70 bytes a launch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from assay_sampling.errors import AssayError
from assay_server.campaign_file.compiled import ChosenSlice, Ending, SlicePlan, Slicing
from assay_server.campaign_file.slices import (
    LEAST_SLICE_LAUNCHES,
    MOST_SLICES_OF_A_RUN,
    LightPace,
    SliceCost,
    cost_from_light,
)
from assay_server.campaigns.slicing.reslice import light_slicing, waiting_for_light
from assay_server.store.model import Run
from assay_server.store.sql import SqlTransaction

_NS_PER_S = 1e9


@dataclass(frozen=True)
class LightTimes:
    """A light run of one process, launch by launch: ``signature``, shape (n,), numbers from 0 on, and
    ``duration_ns``, shape (n,). Slices lie from ``first`` to the launch before ``stop``."""

    run_id: str
    signature: np.ndarray
    duration_ns: np.ndarray
    first: int = 0
    stop: int | None = None

    def within(self, rows: np.ndarray) -> LightTimes:
        """The same run where only some launches count: those at ``rows``, shape (m,), ascending, m > 0.

        All others are of one signature that takes no time.
        """
        signature = np.full(len(self.signature), self.signature.max() + 1, self.signature.dtype)
        signature[rows] = self.signature[rows]
        duration_ns = np.zeros_like(self.duration_ns)
        duration_ns[rows] = self.duration_ns[rows]
        return replace(
            self, signature=signature, duration_ns=duration_ns, first=int(rows[0]), stop=int(rows[-1]) + 1
        )


def chosen_slices(light: LightTimes, slicing: Slicing, costs: Sequence[SliceCost]) -> SlicePlan:
    """The slices for detailed runs with these costs, which all measure the same slices.

    The time budget, if there is one, is that of the dearest run; it never forbids the first slice.
    """
    share = slicing.unseen_percent or 0.0
    choice = _Choice(light, slicing.slice_launches or LEAST_SLICE_LAUNCHES, costs, slicing.time_budget_s)
    taken: list[ChosenSlice] = []
    ending: Ending = "unseen"
    while ending == "unseen" and choice.unseen_percent > share:
        piece = choice.next_slice()
        if piece is None:
            ending = "budget"
        elif len(taken) == MOST_SLICES_OF_A_RUN:
            ending = "slices"
        else:
            taken.append(piece)
    return SlicePlan(
        light_run=light.run_id,
        launches=len(light.signature),
        most_unseen_percent=share,
        ending=ending,
        **vars(choice.together),
        slices=tuple(taken),
    )


class _Choice:
    """The state of the choice: which signatures are unseen, and which launches are taken."""

    def __init__(
        self, light: LightTimes, slice_launches: int, costs: Sequence[SliceCost], budget_s: float
    ) -> None:
        self.signature = light.signature
        self.size = slice_launches
        self.worth_ns = np.bincount(light.signature, weights=light.duration_ns.astype(np.float64))
        self.total_ns = float(self.worth_ns.sum())
        self.seen = np.zeros(len(self.worth_ns), bool)
        self.previous = _previous_of_equal(light.signature)
        self.together = SliceCost(
            sum(cost.start_seconds for cost in costs),
            sum(cost.skip_seconds for cost in costs),
            sum(cost.launch_seconds for cost in costs),
        )
        self.costs, self.budget_s, self.spent_s = tuple(costs), budget_s, np.zeros(len(costs))
        # Sorted, each from a launch to the one after its last; first what lies outside of the window.
        ends = (0, light.first), (light.stop or len(light.signature), len(light.signature))
        self.taken = [end for end in ends if end[0] < end[1]]

    @property
    def unseen_percent(self) -> float:
        """The share of the light time in signatures that no slice has."""
        # Summed anew each time, so that nothing is left over where everything is seen.
        return 100.0 * float(self.worth_ns[~self.seen].sum()) / self.total_ns if self.total_ns > 0 else 0.0

    def next_slice(self) -> ChosenSlice | None:
        """The best slice of what is left; None: the budget is spent."""
        begin, end = self._best()
        seconds = np.array([cost.seconds(begin, end - begin) for cost in self.costs])
        if self.budget_s and self.spent_s.any() and (self.spent_s + seconds).max() > self.budget_s:
            return None
        before = self.unseen_percent
        self.seen[self.signature[begin:end]] = True
        self.spent_s += seconds
        self.taken = sorted([*self.taken, (begin, end)])
        left = self.unseen_percent
        return ChosenSlice(begin, end - begin, before - left, left, float(seconds.sum()))

    def _best(self) -> tuple[int, int]:
        """The slice of the most unseen time per second, among all that overlap none that is taken."""
        rows = np.flatnonzero(~self.seen[self.signature])
        free_from, free_to = self._free_around(rows)
        # A slice that begins at b has the launch i if b <= i < b + size; of equal launches only the first in
        # the slice counts, so b is also after the launch before i that equals it.
        last_begin = np.maximum(free_from, free_to - self.size)
        low = np.maximum(np.maximum(self.previous[rows] + 1, rows - self.size + 1), free_from)
        high = np.minimum(rows, last_begin)
        counts = low <= high
        low, high, gain = low[counts], high[counts], self.worth_ns[self.signature[rows[counts]]]
        launches = len(self.signature)
        steps = np.bincount(low, weights=gain, minlength=launches + 1)
        steps -= np.bincount(high + 1, weights=gain, minlength=launches + 1)
        gains = np.cumsum(steps)[:launches]
        begins = np.flatnonzero(gains > 0)
        _, ends = self._free_around(begins)
        sizes = np.minimum(self.size, ends - begins)
        cost = self.together
        seconds = cost.start_seconds + cost.skip_seconds * begins + cost.launch_seconds * sizes
        best = int(np.argmax(gains[begins] / np.maximum(seconds, 1e-9)))
        return int(begins[best]), int(begins[best] + sizes[best])

    def _free_around(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the stretch that no slice has taken begins and ends, around each of these free rows."""
        starts = np.array([begin for begin, _ in self.taken] + [len(self.signature)])
        stops = np.array([0] + [end for _, end in self.taken])
        place = np.searchsorted(starts, rows, "right")
        return stops[place], starts[place]


def _previous_of_equal(signature: np.ndarray) -> np.ndarray:
    """The launch before each one that has its signature, shape (n,); -1: there is none."""
    order = np.argsort(signature, kind="stable")
    previous = np.full(len(signature), -1, np.int64)
    equal = signature[order][1:] == signature[order][:-1]
    previous[order[1:][equal]] = order[:-1][equal]
    return previous


_log = logging.getLogger(__name__)


def plan_from(store: SqlTransaction, light: Run, path: Path) -> SlicePlan | None:
    """The plan for the detailed runs that wait for ``light``, from its published file.

    None if none waits, or if its launches do not tell: they are of several processes, or without times.
    """
    waiting = waiting_for_light(store, light)
    slicing = light_slicing(store, light.campaign_id) if waiting else None
    if slicing is None:
        return None
    try:
        times_and_pace = _read(path, light.run_id)
    except AssayError as error:
        _log.warning("no slices can be chosen from run %s: %s", light.run_id, error)
        return None
    if times_and_pace is None:
        return None
    times, pace = times_and_pace
    return chosen_slices(times, slicing, [cost_from_light(run.counters, pace) for run in waiting])


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
    span_s = 0.0  # from the first launch's start to the last end, where starts are known
    if not launches.table["start_ns"].null_count:
        start_ns = launches.column("start_ns")
        span_s = float((start_ns + duration_ns).max() - start_ns.min()) / _NS_PER_S
    pace = LightPace(count, max(span_s, total_s), total_s / count)
    return times.within(inside) if len(inside) else times, pace
