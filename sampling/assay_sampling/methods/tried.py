"""Selections with further tries of their method, for fair comparison; an optional part of a sampler.

A sampler that draws at random, or that chooses by the costs that it is scored by, has ``select_and_try``: its
selection is the one that ``select`` gives, and its tries need no second grouping. For samplers of other
packages without it, further seeds are tried (:func:`try_seeds`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from assay_sampling.launches.profile import Profile
from assay_sampling.scoring.fair import Fair, FairBasis
from assay_sampling.scoring.selection import Selection
from assay_sampling.scoring.trials import LEAST_TRIALS, Trials


@dataclass(frozen=True)
class Tried:
    """A selection and its further tries; without tries ``otherwise`` says on what its score rests."""

    selection: Selection
    trials: Trials | None = None
    otherwise: FairBasis = "as_scored"

    @property
    def fair(self) -> Fair:
        scores = self.selection.evaluation
        return Fair.of(self.trials, scores.signed_error_percent, scores.speedup, self.otherwise)


@runtime_checkable
class TryingSampler(Protocol):
    """An optional part of a sampler, besides :class:`assay_sampling.methods.base.Sampler`."""

    def select_and_try(self, profile: Profile, parameters: Any, *, seed: int, count: int) -> Tried:
        """As ``select``, with ``count`` further tries, or none where a fixed rule chooses."""
        ...


@runtime_checkable
class GroupingSampler(Protocol):
    """An optional part of a sampler whose groups depend neither on weights nor on its budget: grouped once
    with a seed, it selects several times."""

    def grouped(self, profile: Profile, parameters: Any, *, seed: int) -> Any:
        """The groups that ``select`` would make with this seed."""
        ...

    def select_grouped(self, profile: Profile, parameters: Any, groups: Any, *, seed: int) -> Selection:
        """As ``select``, on groups that were made with other weights or another budget."""
        ...


def try_seeds(select: Callable[[int], Selection], first: Selection, seed: int, count: int) -> Tried:
    """Tries of a sampler that only knows seeds: none if another seed selects the same.

    ``select`` gives the selection of a seed, ``first`` is that of ``seed``. At most LEAST_TRIALS are made:
    each groups anew.
    """
    second = select(seed + 1)
    if select_alike(first, second):
        return Tried(first)
    selections = [second, *(select(seed + 1 + index) for index in range(1, min(count, LEAST_TRIALS)))]
    in_interval = [
        each.interval.low <= each.evaluation.total <= each.interval.high
        for each in selections
        if each.interval is not None
    ]
    trials = Trials(
        basis="draws",
        total=first.evaluation.total,
        signed_error_percent=np.array([each.evaluation.signed_error_percent for each in selections]),
        simulated=np.array([each.evaluation.simulated for each in selections]),
        in_interval=np.array(in_interval, bool) if in_interval else None,
    )
    return Tried(first, trials)


def select_alike(one: Selection, other: Selection) -> bool:
    """Whether two selections have the same representatives and weights."""
    left, right = one.representatives, other.representatives
    return np.array_equal(left.row, right.row) and np.array_equal(left.weight, right.weight)
