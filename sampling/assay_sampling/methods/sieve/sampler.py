"""Sieve: strata of launches of one kernel that execute about the same number of instructions.

    weight of a representative = instructions of the stratum / instructions of the representative

With it the projection of cycles is the paper's: total instructions / weighted harmonic mean IPC.

Source: Sieve (ISPASS'23), section III; docs/methods/sieve.md.
Memory: at most 200 bytes a launch besides the profile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.engines.blockwise import total
from assay_sampling.errors import ParameterError
from assay_sampling.estimation.intervals import NO_INTERVAL_FIXED_RULE, Interval
from assay_sampling.estimation.known_design import known_design_interval
from assay_sampling.estimation.light_time_draws import draw_by_light_time
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import drawing_of, grouped_selection, time_to_draw_by, whole_cost
from assay_sampling.methods.budgets import Budget
from assay_sampling.methods.kernel_values import KernelValues, kernel_values
from assay_sampling.methods.needs import INSTRUCTIONS_OF_ALL, Needs
from assay_sampling.methods.sieve.instructions import with_instructions
from assay_sampling.methods.sieve.representatives import (
    DominantKey,
    Rule,
    random_representatives,
    representatives,
    weights,
)
from assay_sampling.methods.sieve.tiers import Strata, Stratification, stratify
from assay_sampling.methods.tried import Tried, try_seeds
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import MethodParameters
from assay_sampling.scoring.evaluation import Cost, evaluate
from assay_sampling.scoring.selection import Selection

DEFAULT_THETA = 0.4
SWEPT_THETAS = tuple(round(0.1 * step, 1) for step in range(1, 11))


class SieveParameters(MethodParameters):
    """How kernels are divided into strata, and which launch stands for a stratum."""

    theta: float = Field(
        default=DEFAULT_THETA,
        gt=0,
        description="The coefficient of variation of instructions from which a kernel is divided.",
    )
    stratification: Stratification = Field(
        default="kde",
        description=(
            'How such a kernel is divided: by "kde", exactly into the fewest strata ("dp"), or as '
            'the authors\' "script" does.'
        ),
    )
    merge: bool = Field(
        default=True,
        description='Join neighbouring strata again ("kde" only).',
    )
    representative: Rule | None = Field(
        default=None,
        description=(
            "Which launch stands for a stratum; by default the paper's rule, for \"script\" the script's."
        ),
    )
    dominant_key: DominantKey | None = Field(
        default=None,
        description=(
            "The key by which a stratum's most frequent launch is found; by default the paper's, for "
            '"script" the script\'s.'
        ),
    )
    launches_per_group: int = Field(
        default=1,
        ge=1,
        description=(
            "From 2 on, this many launches of each stratum are drawn at random instead, which gives an "
            "interval."
        ),
    )
    theta_sweep: bool = Field(
        default=False,
        description="Also score theta from 0.1 to 1.0.",
    )


@dataclass(frozen=True)
class Sieved:
    """Sieve's choice: strata, and row, stratum and weight of each representative, shape (r,)."""

    strata: Strata
    rows: np.ndarray
    groups: np.ndarray
    weights: np.ndarray


class SieveSampler:
    """Groups launches by kernel and instructions; weight = instructions of the group / representative's."""

    name = "sieve"
    parameters: type[BaseModel] = SieveParameters
    budget = Budget("theta", 0.001, 100, "larger", start=0.4, per_group=True)

    def needs(self, parameters: SieveParameters) -> Needs:
        """Which counters it looks at."""
        return INSTRUCTIONS_OF_ALL

    def select_and_try(
        self, profile: Profile, parameters: SieveParameters, *, seed: int, count: int
    ) -> Tried:
        """As :meth:`select`; where launches are drawn, with tries of further seeds. The strata are made of
        instructions, by a given theta: costs decide nothing."""
        selection = self.select(profile, parameters, seed=seed)
        if not count or parameters.launches_per_group == 1:
            return Tried(selection)
        return try_seeds(lambda other: self.select(profile, parameters, seed=other), selection, seed, count)

    def select(self, profile: Profile, parameters: SieveParameters, *, seed: int) -> Selection:
        """Raises RefusedError without launches or instructions, CounterUnavailableError where a launch
        lacks them or its cost, ParameterError for parameters that exclude one another."""
        used = _resolved(parameters)
        cost = whole_cost(profile)
        profile, instructions = with_instructions(profile)
        launches = profile.whole
        values = kernel_values(launches.array("kernel_id"), instructions)
        sieved = sieve(launches, values, used, seed)
        labels = values.groups(sieved.strata.start)
        interval: Interval | None = None
        reason: Note | None = NO_INTERVAL_FIXED_RULE
        light_time = time_to_draw_by(profile, used)
        if used.launches_per_group > 1 and light_time is not None:
            sieved = _by_light_time(sieved, values, light_time, used.launches_per_group, seed)
            reason = make_note("interval_of_light_time_draw")
        elif used.launches_per_group > 1:
            interval = known_design_interval(cost.values, labels, sieved.rows, amounts=instructions)
            reason = None
        return grouped_selection(
            profile,
            self.name,
            used,
            seed,
            labels=labels,
            rows=sieved.rows,
            weights=sieved.weights,
            cost=cost,
            interval=interval,
            interval_reason=reason,
            weighed_by="instructions",
            drawing=drawing_of(used.launches_per_group, light_time),
            extra={
                "tiers": sieved.strata.tiers(values.kernel_start),
                "ipc": _ipc(cost, sieved, instructions),
                **({"sweep": _sweep(launches, values, used, seed, cost)} if used.theta_sweep else {}),
            },
        )


def sieve(launches: Launches, values: KernelValues, parameters: SieveParameters, seed: int) -> Sieved:
    """Strata, representatives and weights; ``values`` are the launches' instructions by kernel."""
    strata = stratify(values, parameters.theta, parameters.stratification, merge=parameters.merge)
    if parameters.launches_per_group > 1:
        rows, groups = random_representatives(values, strata, parameters.launches_per_group, seed)
    else:
        assert parameters.representative is not None
        assert parameters.dominant_key is not None
        rows = representatives(launches, values, strata, parameters.representative, parameters.dominant_key)
        groups = np.arange(len(strata))
    return Sieved(strata, rows, groups, weights(values, strata, rows, groups))


def _by_light_time(
    sieved: Sieved, values: KernelValues, light_time: np.ndarray, per_group: int, seed: int
) -> Sieved:
    """The strata with representatives drawn in proportion to light time."""
    labels = values.groups(sieved.strata.start)
    rows = draw_by_light_time(labels, per_group, light_time, np.random.default_rng(seed))
    groups = labels[rows]
    return replace(sieved, rows=rows, groups=groups, weights=weights(values, sieved.strata, rows, groups))


def _resolved(parameters: SieveParameters) -> SieveParameters:
    """The parameters with the defaults that depend on others."""
    set_fields = parameters.model_fields_set
    if parameters.stratification != "kde" and "merge" in set_fields and parameters.merge:
        raise ParameterError("sieve", "merge=true joins strata of kde only", "leave merge out")
    rules = {"representative", "dominant_key"} & set_fields
    if parameters.launches_per_group > 1 and rules:
        raise ParameterError(
            "sieve",
            f"{' and '.join(sorted(rules))} choose one launch, but launches_per_group="
            f"{parameters.launches_per_group} draws several at random",
            "leave one of them out",
        )
    if parameters.launches_per_group > 1:
        return parameters.model_copy(update={"merge": _merges(parameters)})
    script = parameters.stratification == "script"
    return parameters.model_copy(
        update={
            "merge": _merges(parameters),
            "representative": parameters.representative or ("median" if script else "first_dominant"),
            "dominant_key": parameters.dominant_key or ("thread_count" if script else "block_threads"),
        }
    )


def _merges(parameters: SieveParameters) -> bool:
    return parameters.merge and parameters.stratification == "kde"


def _ipc(cost: Cost, sieved: Sieved, instructions: np.ndarray) -> float | None:
    """Weighted harmonic mean IPC of the workload; None if the cost is not in cycles.

    1 / sum of share_s / IPC_s over strata; strata without instructions have neither share nor IPC.
    """
    if cost.unit != "cycle":
        return None
    chosen = instructions[sieved.rows] > 0
    projected = float((sieved.weights * cost.values[sieved.rows])[chosen].sum())
    return total(instructions) / projected if projected > 0 else None


def _sweep(
    launches: Launches, values: KernelValues, parameters: SieveParameters, seed: int, cost: Cost
) -> list[dict[str, Any]]:
    """Scores at every theta from 0.1 to 1.0."""
    entries = []
    for theta in SWEPT_THETAS:
        sieved = sieve(launches, values, parameters.model_copy(update={"theta": theta}), seed)
        scores = evaluate(
            cost,
            sieved.rows,
            sieved.weights,
            labels=values.groups(sieved.strata.start),
            representative_groups=sieved.groups,
            instructions=values.of_launches(),
        )
        entries.append(
            {
                "theta": theta,
                "strata": len(sieved.strata),
                "kernels_by_tier": [t["kernels"] for t in sieved.strata.tiers(values.kernel_start)],
                "error_percent": scores.error_percent,
                "speedup": scores.speedup,
                "speedup_instructions": scores.speedup_instructions,
                "weighted_cov_percent": scores.weighted_cov_percent,
            }
        )
    return entries
