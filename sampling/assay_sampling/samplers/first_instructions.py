"""The first instructions of the workload: simulate until a budget is spent, and scale what was seen.

Source: the practice that Principal Kernel Analysis compares with ("the first 1 billion instructions").
"""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.intervals import RANDOM_INSTEAD
from assay_sampling.profile import Profile
from assay_sampling.samplers.base import Parameters, grouped_selection, whole_cost
from assay_sampling.samplers.drawing import instructions_needed
from assay_sampling.samplers.joined_instructions import with_instructions_of_both_levels
from assay_sampling.samplers.needs import INSTRUCTIONS_OF_ALL, Needs
from assay_sampling.selection import Selection


class FirstInstructionsParameters(Parameters):
    """``instructions`` to execute, in the unit of the counter (warp instructions in Nsight Compute's)."""

    instructions: float = Field(default=1e9, gt=0)


class FirstInstructionsSampler:
    """The first launches until the budget is spent, the last of them whole; weight = all instructions /
    theirs. It fails where the beginning is not like the rest, which is nearly always."""

    name = "first_instructions"
    parameters: type[BaseModel] = FirstInstructionsParameters

    def needs(self, parameters: FirstInstructionsParameters) -> Needs:
        """Which counters it looks at."""
        return INSTRUCTIONS_OF_ALL

    def select(self, profile: Profile, parameters: FirstInstructionsParameters, *, seed: int) -> Selection:
        """Raises RefusedError for no launches, or two levels of other launches, CounterUnavailableError
        where instructions or cost of one were not measured."""
        profile = with_instructions_of_both_levels(profile, self.name)
        cost = whole_cost(profile)
        executed = instructions_needed(profile.whole, "a budget of instructions", self.name)
        spent = np.cumsum(executed)
        last = int(np.searchsorted(spent, parameters.instructions, side="left"))
        rows = np.arange(min(last + 1, len(spent)))
        weight = float(spent[-1] / spent[rows[-1]]) if len(rows) < len(spent) else 1.0
        return grouped_selection(
            profile,
            self.name,
            parameters,
            seed,
            labels=np.zeros(len(spent), np.int32),
            rows=rows,
            weights=np.full(len(rows), weight),
            cost=cost,
            interval_reason="the first launches are not drawn at random: nothing is known of how they "
            f"spread; {RANDOM_INSTEAD}",
        )
