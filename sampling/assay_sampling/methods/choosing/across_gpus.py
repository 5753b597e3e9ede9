"""Methods scored on other GPUs at one speedup, with each kind of their weights, over several draws.

Source: docs/methods/comparing.md, "On other GPUs".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay_sampling.launches.profile import Profile
from assay_sampling.methods import registry
from assay_sampling.methods.budgets import LAUNCHES_PER_GROUP, Budget, budget_of, value_for_speedup
from assay_sampling.methods.tried import select_alike
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.selection import Selection
from assay_sampling.scoring.targets.judging import EQUAL_WITHIN, ContenderElsewhere
from assay_sampling.scoring.targets.matched import Target, TargetScore

# Selects by a seed.
_Select = Callable[[int], Selection]
_DRAWS_FOR_A_SPEEDUP = 3
_MOST_DRAWS, _LEAST_DRAWS = 60, 10
_LAUNCHES_DRAWN_FROM = 400_000


def draws_for(launches: int) -> int:
    """How many draws a workload of this size gets on other GPUs: from 10 for large ones up to 60."""
    return int(np.clip(_LAUNCHES_DRAWN_FROM // max(launches, 1), _LEAST_DRAWS, _MOST_DRAWS))


@dataclass(frozen=True)
class ErrorsThere:
    """Errors of a method on one other GPU over its draws: root mean squares, and the mean signed error."""

    error_percent: float
    part_error_percent: float | None
    mean_signed_error_percent: float

    @classmethod
    def of(cls, scores: Sequence[TargetScore]) -> ErrorsThere:
        signed = np.array([each.signed_error_percent for each in scores])
        parts = [each.part_error_percent for each in scores if each.part_error_percent is not None]
        complete = len(parts) == len(scores)
        return cls(
            error_percent=float(np.sqrt(np.square(signed).mean())),
            part_error_percent=float(np.sqrt(np.square(parts).mean())) if complete else None,
            mean_signed_error_percent=float(signed.mean()),
        )


@dataclass(frozen=True)
class AtSpeedup:
    """A method with one kind of weights, at the speedup nearest to the one wanted that it can have.

    ``parameters`` are those to select with; ``speedup`` (a ratio of means) and ``launches``, the mean number
    to simulate, are over ``draws``, at home; ``there`` has an entry for each target.
    """

    method: str
    weights: WeightKind
    parameters: Mapping[str, Any]
    draws: int
    launches: float
    speedup: float
    there: tuple[ErrorsThere, ...]

    def contender(self) -> ContenderElsewhere:
        """What it is judged by: the worst and the mean over the targets."""
        return ContenderElsewhere.of(
            self.method,
            self.weights,
            self.speedup,
            [(each.error_percent, each.part_error_percent) for each in self.there],
        )


def at_speedup(
    method: str,
    profile: Profile,
    targets: Sequence[Target],
    *,
    parameters: Mapping[str, Any],
    weights: WeightKind,
    speedup: float,
    seed: int,
    draws: int,
    groups: dict[int, Any] | None = None,
) -> AtSpeedup:
    """Score a method on other GPUs at a speedup.

    Args:
        method: its name.
        profile: to select on; its rows are those that the targets were matched with.
        targets: at least one.
        parameters: given by people; the method's budget is not changed if they give it.
        weights: the kind of weights.
        speedup: wanted at home.
        seed: of the first draw; the others follow.
        draws: at most so many; one where the seed changes nothing.
        groups: by seed those that the method made on this profile with other weights; more are added.

    Raises what :func:`assay_sampling.methods.registry.select` raises, ParameterError for weights that the
    method does not have.
    """
    groups = {} if groups is None else groups
    with_budget = _parameters_at_speedup(
        method, profile, {**parameters, "weights": weights}, speedup, seed=seed, groups=groups
    )
    # Only launches, weights and groups are scored.
    made = list(
        _drawn(_regrouped(registry.prepared(method, profile, with_budget), seed, groups), seed, draws)
    )
    there = tuple(ErrorsThere.of([target.score(one, weights) for one in made]) for target in targets)
    return AtSpeedup(
        method=method,
        weights=weights,
        parameters=with_budget,
        draws=len(made),
        launches=sum(len(one.representatives.row) for one in made) / len(made),
        speedup=_speedup(made),
        there=there,
    )


def drawn_at_speedup(
    method: str, profile: Profile, parameters: Mapping[str, Any], speedup: float, *, seed: int, draws: int
) -> tuple[dict[str, Any], list[Selection]]:
    """The parameters that leave nearly that speedup, and selections by them: one, where the seed changes
    nothing. Arguments as in :func:`at_speedup`."""
    groups: dict[int, Any] = {}
    with_budget = _parameters_at_speedup(method, profile, parameters, speedup, seed=seed, groups=groups)
    made = registry.prepared(method, profile, with_budget)
    select = _regrouped(made, seed, groups)
    return with_budget, list(_drawn(lambda each: made.completed(select(each)), seed, draws))


def _regrouped(made: registry.Prepared, first: int, groups: dict[int, Any]) -> _Select:
    """Selects by a seed from ``first`` on, in the groups of that seed where a method made them before. Of
    large workloads those of a few seeds are kept."""
    seed_count = max(_DRAWS_FOR_A_SPEEDUP, _LAUNCHES_DRAWN_FROM // max(len(made.profile.whole), 1))
    return lambda seed: made.drawn(seed, groups if seed - first < seed_count else None)


def _parameters_at_speedup(
    method: str,
    profile: Profile,
    parameters: Mapping[str, Any],
    speedup: float,
    *,
    seed: int,
    groups: dict[int, Any],
) -> dict[str, Any]:
    """The parameters with the value of the method's budget that leaves nearly the speedup, unless it is
    given."""
    budget = budget_of(registry.samplers()[method])
    if budget is None or budget.parameter in parameters:
        return dict(parameters)

    def speedup_of(tried: Mapping[str, Any]) -> float:
        made = registry.prepared(method, profile, tried)
        return _speedup(list(_drawn(_regrouped(made, seed, groups), seed, None)))

    return _with_budget(budget, parameters, speedup, len(profile.whole), speedup_of)


def _with_budget(
    budget: Budget,
    parameters: Mapping[str, Any],
    speedup: float,
    launches: int,
    speedup_of: Callable[[Mapping[str, Any]], float],
) -> dict[str, Any]:
    """The parameters with the value of a budget that leaves nearly the speedup wanted."""

    def fitted(which: Budget, options: Mapping[str, Any]) -> dict[str, Any]:
        name = which.parameter
        value = value_for_speedup(
            which, speedup, launches, lambda value: speedup_of({**options, name: value})
        )  # fmt: skip
        return {**options, name: value}

    with_budget = fitted(budget, parameters)
    per_group = LAUNCHES_PER_GROUP.parameter
    if not budget.per_group or per_group in parameters or speedup_of(with_budget) <= speedup * EQUAL_WITHIN:
        return with_budget
    return fitted(LAUNCHES_PER_GROUP, with_budget)


def _drawn(select: _Select, seed: int, draws: int | None) -> Iterator[Selection]:
    """Selections of consecutive seeds; one, where the second seed selects the same."""
    first = select(seed)
    yield first
    count = _DRAWS_FOR_A_SPEEDUP if draws is None else draws
    for index in range(1, count):
        other = select(seed + index)
        if index == 1 and select_alike(first, other):
            return
        yield other


def _speedup(made: Sequence[Selection]) -> float:
    """Total / mean cost of the representatives: a ratio of means."""
    scores = [one.evaluation for one in made]
    return scores[0].total * len(scores) / sum(one.simulated for one in scores)
