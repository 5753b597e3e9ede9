"""Balanced sampling, Assay's own method: the launches that say most about a total for the time they take.

    probability in proportion to the root of light time; the longest launches whole; drawn at equal steps
    along the serpentine order of kernels, sizes and times
    weight = (time of the group not taken whole / sum over its drawn launches of d / pi) / pi

The weights are those of the ratio estimator, group by group: the light time of every group is exact, so that
only cost per light time is estimated. They depend on light time alone, and are fixed where they are made.

Source: docs/methods/balanced.md.
Memory: at most 200 bytes a launch besides the profile; of launches on disk, as much for each distinct
combination of kernel, threads and time.
"""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.engines.blockwise import relabelled
from assay_sampling.errors import ParameterError
from assay_sampling.estimation.root_time_draws import RootTimePlan, systematic_draw
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.balanced.alike import AlikeLaunches
from assay_sampling.methods.balanced.cells import Cells
from assay_sampling.methods.base import grouped_selection, time_to_draw_by, whole_cost
from assay_sampling.methods.budgets import Budget
from assay_sampling.methods.needs import NO_COUNTERS, Needs
from assay_sampling.methods.tried import Tried
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import MethodParameters
from assay_sampling.scoring.selection import Selection

_DEFAULT_TARGET_PERCENT = 2.0
# With fewer there is no interval on another GPU.
_LEAST_FOR_A_TARGET = 18
# Kernels with less of the time may share the group of another without a word.
_SHARE_SILENTLY_PERCENT = 1.0
_BUDGETS = ("launches", "speedup", "target_error_percent")


class BalancedParameters(MethodParameters):
    """How many launches are taken: by their number, by the speedup, or by the error that is aimed at."""

    launches: int | None = Field(
        default=None,
        ge=1,
        description="How many launches to take; never more than there are with any light time.",
    )
    speedup: float | None = Field(
        default=None,
        ge=1,
        description="Take as many launches as leave this speedup: light time of all / that of the taken.",
    )
    target_error_percent: float | None = Field(
        default=None,
        gt=0,
        lt=100,
        description=(
            "Take as many launches, at least 18, as bring the standard error of the total on another GPU "
            f"down to this, if `ratio_spread_percent` holds; {_DEFAULT_TARGET_PERCENT:g} if nothing else "
            "says how many."
        ),
    )
    ratio_spread_percent: float = Field(
        default=25.0,
        gt=0,
        le=1000,
        description=(
            "For `target_error_percent`: by how much cost per light time is expected to vary between "
            "launches on the other GPU (standard deviation / mean)."
        ),
    )


class BalancedSampler:
    """Launches drawn systematically in proportion to the root of their light time; weighed group by group so
    that light time is exact."""

    name = "balanced"
    parameters: type[BaseModel] = BalancedParameters
    budget = Budget("speedup", 1, 1e12, "larger", start=100)

    def needs(self, parameters: BalancedParameters) -> Needs:
        """Which counters it looks at."""
        return NO_COUNTERS

    def select(self, profile: Profile, parameters: BalancedParameters, *, seed: int) -> Selection:
        """Raises RefusedError for no launches, or none with any time;
        CounterUnavailableError where one lacks its time; ParameterError for two budgets."""
        return self.select_and_try(profile, parameters, seed=seed, count=0).selection

    def select_and_try(
        self, profile: Profile, parameters: BalancedParameters, *, seed: int, count: int
    ) -> Tried:
        """As :meth:`select`, without tries: each draw projects the total exactly."""
        parameters = _with_budget(parameters)
        cost = whole_cost(profile)
        time_to_draw_by(profile, parameters)
        alike = AlikeLaunches.of(profile.whole, cost.values)
        plan = RootTimePlan(alike.time, alike.count)
        cells = Cells.of(alike.kernel, alike.threads, alike.time, alike.count)
        probabilities = plan.probabilities(_launches(plan, parameters))
        drawn, place = systematic_draw(probabilities, alike.count, cells.order, np.random.default_rng(seed))
        rows, kind = alike.rows(np.flatnonzero(probabilities == 1), drawn, place)
        whole = probabilities[kind] == 1
        labels = cells.groups(kind, whole, np.sqrt(alike.time) * alike.count)
        selection = grouped_selection(
            profile,
            self.name,
            parameters,
            seed,
            labels=relabelled(alike.of_launch, labels),
            rows=rows,
            weights=ratio_weights(alike.time, labels, kind, probabilities[kind], alike.count),
            draws=np.where(whole, 0, 1),
            weighed_by="light_time",
            drawing="root_light_time",
            cost=cost,
            interval_reason=make_note("interval_exact_by_weights", quantity=cost.quantity),
            warnings=(
                *_without_time(alike, cost.quantity),
                *_without_draw(cells, kind, alike),
            ),
        )
        return Tried(selection, otherwise="by_construction")


def ratio_weights(
    time: np.ndarray,
    labels: np.ndarray,
    rows: np.ndarray,
    probabilities: np.ndarray,
    counts: np.ndarray | None = None,
) -> np.ndarray:
    """Weight of each representative, shape (r,): those of a group have its time in all.

    Args:
        time, labels: of every launch, shape (n,); with ``counts``, shape (n,), of so many launches each.
        rows: of the representatives, shape (r,), all with positive time; of each group at least one.
        probabilities: with which they were drawn, shape (r,); 1 if taken whole.

    A launch taken whole stands for itself, but where nothing else of its group was drawn it stands for the
    rest of it, too.
    """
    groups, whole = labels[rows], probabilities == 1
    count = int(labels.max()) + 1
    rest_time = time.copy() if counts is None else time * counts
    rest_time[rows[whole]] = 0.0
    rest = np.bincount(labels, rest_time, count)
    expanded = np.bincount(groups, np.where(whole, 0.0, time[rows] / probabilities), count)
    of_whole = np.bincount(groups, np.where(whole, time[rows], 0.0), count)
    drawn_from = expanded > 0
    ratio = rest / np.where(drawn_from, expanded, 1.0)
    beside = np.where(drawn_from, 0.0, rest / np.where(of_whole > 0, of_whole, 1.0))
    weights: np.ndarray = np.where(whole, 1.0 + beside[groups], ratio[groups] / probabilities)
    return weights


def _with_budget(parameters: BalancedParameters) -> BalancedParameters:
    """The parameters with exactly one budget; raises ParameterError for several."""
    budgets = [name for name in _BUDGETS if getattr(parameters, name) is not None]
    if len(budgets) > 1:
        raise ParameterError("balanced", f"{' and '.join(budgets)} each say how many launches", "give one")
    if budgets:
        return parameters
    return parameters.model_copy(update={"target_error_percent": _DEFAULT_TARGET_PERCENT})


def _launches(plan: RootTimePlan, parameters: BalancedParameters) -> int:
    if parameters.launches is not None:
        return min(parameters.launches, plan.most)
    if parameters.speedup is not None:
        return plan.within_time(plan.time(plan.most) / parameters.speedup)
    assert parameters.target_error_percent is not None
    enough = plan.within_error(parameters.target_error_percent / 100, parameters.ratio_spread_percent / 100)
    return min(max(enough, _LEAST_FOR_A_TARGET), plan.most)


def _without_time(alike: AlikeLaunches, quantity: str) -> tuple[Note, ...]:
    count = int(alike.count[alike.time == 0].sum())
    return (make_note("launches_never_drawn", launches=count, quantity=quantity),) if count else ()


def _without_draw(cells: Cells, drawn: np.ndarray, alike: AlikeLaunches) -> tuple[Note, ...]:
    """A note on kernels that no representative is of, if they matter."""
    kernel, time = cells.kernel[cells.of_launch], alike.time * alike.count
    of_kernel = np.bincount(kernel, time)
    of_kernel[kernel[drawn]] = 0.0
    kernels, percent = int((of_kernel > 0).sum()), 100 * float(of_kernel.sum() / time.sum())
    if percent < _SHARE_SILENTLY_PERCENT:
        return ()
    return (make_note("kernels_without_draw", kernels=kernels, time_percent=percent),)
