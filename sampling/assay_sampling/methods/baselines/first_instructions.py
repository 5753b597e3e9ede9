"""The first instructions of the workload: simulate until a budget is spent, and scale what was seen.

Source: the practice that Principal Kernel Analysis compares with ("the first 1 billion instructions").
"""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import grouped_selection, whole_cost
from assay_sampling.methods.baselines.drawing import instructions_needed
from assay_sampling.methods.budgets import Budget
from assay_sampling.methods.joined_instructions import with_instructions_of_both_levels
from assay_sampling.methods.needs import INSTRUCTIONS_OF_ALL, Needs
from assay_sampling.notes.registry import make_note
from assay_sampling.parameters import MethodParameters
from assay_sampling.scoring.selection import Selection


class FirstInstructionsParameters(MethodParameters):
    """How much of the workload's beginning is simulated."""

    instructions: float = Field(
        default=1e9,
        gt=0,
        description=(
            "The instructions to execute, in the unit of the counter (warp instructions in Nsight Compute's)."
        ),
    )


class FirstInstructionsSampler:
    """The first launches until the budget is spent, the last of them whole; weight = all instructions /
    theirs. It fails where the beginning is not like the rest, which is nearly always."""

    name = "first_instructions"
    parameters: type[BaseModel] = FirstInstructionsParameters
    budget = Budget("instructions", 1, 1e18, "smaller", start=1e9)

    def needs(self, parameters: FirstInstructionsParameters) -> Needs:
        """Which counters it looks at."""
        return INSTRUCTIONS_OF_ALL

    def select(self, profile: Profile, parameters: FirstInstructionsParameters, *, seed: int) -> Selection:
        """Raises RefusedError for no launches, or two levels with different launches, CounterUnavailableError
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
            interval_reason=make_note("interval_of_first_launches"),
            weighed_by="instructions",
        )
