"""Simple random sampling: launches drawn without replacement, the plainest honest baseline."""

from __future__ import annotations

import math

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.profile import Profile
from assay_sampling.samplers.base import Parameters, one_group_selection, whole_cost
from assay_sampling.selection import Selection

_LEAST_LAUNCHES = 10
_DEFAULT_SHARE = 100


class RandomParameters(Parameters):
    """``launches`` to draw; by default 1 % of them, at least 10; never more than there are."""

    launches: int | None = Field(default=None, ge=1)


def sample_size(asked: int | None, launches: int) -> int:
    """How many of ``launches`` to select where ``asked`` were asked for, or None for the default."""
    if asked is None:
        asked = max(_LEAST_LAUNCHES, math.ceil(launches / _DEFAULT_SHARE))
    return min(asked, launches)


class RandomSampler:
    """Launches drawn uniformly without replacement; weight = launches / drawn (an unbiased total)."""

    name = "random"
    parameters: type[BaseModel] = RandomParameters

    def select(self, profile: Profile, parameters: RandomParameters, *, seed: int) -> Selection:
        """Raises RefusedError for no launches, CounterUnavailableError where one lacks its cost."""
        total = len(whole_cost(profile).values)
        size = sample_size(parameters.launches, total)
        drawn = np.random.default_rng(seed).choice(total, size, replace=False, shuffle=False)
        resolved = RandomParameters(launches=size)
        return one_group_selection(profile, self.name, resolved, seed, np.sort(drawn))
