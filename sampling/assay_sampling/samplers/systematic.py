"""Systematic sampling: launches at equal spacing from a start within the first period."""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.errors import ParameterError
from assay_sampling.profile import Profile
from assay_sampling.samplers.base import Parameters, one_group_selection, whole_cost
from assay_sampling.samplers.random_sampling import sample_size
from assay_sampling.selection import Selection


class SystematicParameters(Parameters):
    """``launches`` to select, as for random sampling. ``start`` lies in [0, period), the period being all
    launches / launches selected, in launches; by default it is drawn by the seed."""

    launches: int | None = Field(default=None, ge=1)
    start: float | None = Field(default=None, ge=0)


class SystematicSampler:
    """Launches at equal spacing; weight = launches / selected. It fails where the workload repeats with
    the same period."""

    name = "systematic"
    parameters: type[BaseModel] = SystematicParameters

    def select(self, profile: Profile, parameters: SystematicParameters, *, seed: int) -> Selection:
        """Raises RefusedError for no launches, CounterUnavailableError where one lacks its cost,
        ParameterError for a start outside the period."""
        total = len(whole_cost(profile).values)
        selected = sample_size(parameters.launches, total)
        period = total / selected
        start = parameters.start
        if start is None:
            start = float(np.random.default_rng(seed).random()) * period
        if not start < period:
            raise ParameterError(
                self.name,
                f"start is {start:g}, but the period is {period:g} launches",
                "give a start of at least 0 and below the period",
            )
        # Whole launches and fractions apart: rounding must not carry a launch into the next.
        whole, rest = np.divmod(np.arange(selected) * total, selected)
        rows = whole + np.floor(start + rest / selected).astype(np.int64)
        resolved = SystematicParameters(launches=selected, start=start)
        # A start just below the period may round up to the launch after the last.
        return one_group_selection(profile, self.name, resolved, seed, np.minimum(rows, total - 1))
