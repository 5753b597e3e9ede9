"""Principal kernel selection as a sampler; with a light run, carried to the whole workload."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator

from assay_sampling.counters.features import (
    AUTO,
    check_features,
    fitted_features,
    named_features,
)
from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.launches.alignment import LEAST_MATCH_PERCENT, MatchKind
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.signatures import distinct_signatures
from assay_sampling.methods.base import instruction_share, source_of, time_to_draw_by
from assay_sampling.methods.budgets import Budget
from assay_sampling.methods.group_draws import choose_launches
from assay_sampling.methods.needs import Needs, cycles
from assay_sampling.methods.pks.choices import choice_notes, cost_without_cycles
from assay_sampling.methods.pks.principal_kernels import (
    DEFAULT_K_MAX,
    DEFAULT_TARGET_ERROR_PERCENT,
    Representative,
    principal_kernels,
    seed_spread,
)
from assay_sampling.methods.pks.split_halves import Halving
from assay_sampling.methods.registry import without_counters
from assay_sampling.methods.tried import Tried
from assay_sampling.parameters import MethodParameters
from assay_sampling.scoring.evaluation import cost_of, evaluate, instructions_of
from assay_sampling.scoring.selection import ProfileSummary, Representatives, Selection
from assay_sampling.scoring.weights import weigh

# Each number of groups that is tried is a clustering of its own.
MOST_GROUPS = 10_000
_TWO_LEVELS = ("match_kind", "least_match_percent", "model", "abstain", "label_accuracy_percent")
_NOT_OF_GROUPING = (*_TWO_LEVELS, "launches_per_group", "seeds", "weights")


PksCost = Literal[
    "cycles_gpc_avg", "cycles_gpc_max", "cycles_sys_avg", "cycles_simulated_active", "cycles_simulated",
    "duration_ns", "profiled_duration_ns",
]  # fmt: skip


class PksParameters(MethodParameters):
    """How many groups there are, which launch stands for each, and how two levels are joined."""

    features: Literal["auto", "all", "table2", "artifact12", "artifact11", "simulated"] | str = Field(
        default=AUTO,
        description=(
            'The counters that launches are compared by: those of the paper\'s "table2" or of the published '
            'artifact, "simulated" of a simulator\'s run, "all" that were measured but costs, or a list '
            'a,b,c. "auto" takes table2 (of a simulator\'s run simulated) where all of it was measured, else '
            "what was measured and does not depend on the GPU."
        ),
    )
    k: int | None = Field(
        default=None,
        ge=1,
        le=MOST_GROUPS,
        description=(
            "The number of groups; by default the smallest up to k_max with an error below "
            "target_error_percent, else the one of least error."
        ),
    )
    k_max: int = Field(
        default=DEFAULT_K_MAX,
        ge=1,
        le=MOST_GROUPS,
        description="The largest number of groups to try.",
    )
    target_error_percent: float = Field(
        default=DEFAULT_TARGET_ERROR_PERCENT,
        ge=0,
        description="The error below which the smallest number of groups is taken.",
    )
    representative: Representative = Field(
        default="first",
        description="Which launch stands for a group.",
    )
    cost: PksCost | None = Field(
        default=None,
        description=(
            "The cost that is projected; by default the first cycle counter that was measured for all "
            "launches, and without cycles the duration."
        ),
    )
    launches_per_group: int = Field(
        default=1,
        ge=1,
        description=(
            "From 2 on, this many launches of each group are drawn at random, which gives an interval; "
            "the number of groups is still chosen by the error of the representative."
        ),
    )
    seeds: int | None = Field(
        default=None,
        ge=2,
        le=1000,
        description="Report the number of groups and the error of this many seeds.",
    )
    match_kind: MatchKind = Field(
        default="exact",
        description="Two levels: how a launch of the light run is matched with one of the detailed run.",
    )
    least_match_percent: float = Field(
        default=LEAST_MATCH_PERCENT,
        ge=0,
        le=100,
        description="Two levels: the share of launches that must match.",
    )
    model: Literal[
        "best", "sgd", "gaussian_nb", "mlp", "combined", "nearest_light_time", "scaled_counters"
    ] = Field(
        default="best",
        description="Two levels: the model whose labels are used after the window; best is the one of the "
        "best expected accuracy.",
    )
    abstain: bool = Field(
        default=False,
        description=(
            "Two levels: signatures that the window does not have, and whose label is not sure enough, "
            "become groups of their own."
        ),
    )
    label_accuracy_percent: float = Field(
        default=95.0,
        ge=0,
        le=100,
        description="Two levels: how often a label must be right if abstain is set.",
    )

    @field_validator("features")
    @classmethod
    def _named(cls, value: str) -> str:
        return check_features(value, "pks")

    def of_one_level(self) -> dict[str, Any]:
        """The parameters of a single level."""
        return self.model_dump(mode="json", exclude=set(_TWO_LEVELS))

    def of_grouping(self) -> dict[str, Any]:
        """The parameters that decide the groups of a single level."""
        return self.model_dump(mode="json", exclude=set(_NOT_OF_GROUPING))


class PksSampler:
    """Groups launches by their counters; weight = launches of the group."""

    name = "pks"
    parameters: type[BaseModel] = PksParameters
    budget = Budget("k", 1, 1000, "smaller", start=20, whole=True, per_group=True)
    joins_levels = True

    def needs(self, parameters: PksParameters) -> Needs:
        """Which counters it looks at."""
        return Needs(counters=named_features(parameters.features), one_of=cycles(parameters.cost))

    def fitted(self, parameters: PksParameters, profile: Profile) -> PksParameters:
        """The parameters for a profile: the counters that its launches are compared by, and the cost where it
        has no cycles."""
        detailed = profile.detailed
        if detailed is None or not detailed.counters:
            return parameters  # the error says that there are none
        features = fitted_features(parameters.features, detailed, self.name)
        cost = parameters.cost or cost_without_cycles(profile)
        return parameters.model_copy(update={"features": features, "cost": cost})

    def select(self, profile: Profile, parameters: PksParameters, *, seed: int) -> Selection:
        """Raises RefusedError without counters or launches, CounterUnavailableError where a launch lacks
        one that is used, and what :func:`assay_sampling.methods.pks.two_level.two_level_selection` raises."""
        return self.select_and_try(profile, parameters, seed=seed, count=0).selection

    def select_and_try(self, profile: Profile, parameters: PksParameters, *, seed: int, count: int) -> Tried:
        """As :meth:`select`, with ``count`` scores on halves that did not choose K. Two levels choose it by
        the window's cycles and are scored in the light run's nanoseconds, so that they need none."""
        detailed = profile.detailed
        if detailed is None or not detailed.counters:
            raise RefusedError(
                source_of(profile.whole if detailed is None else detailed),
                "PKS not applicable: no counters",
                without_counters(self.name, self.needs(parameters), detailed or profile.whole),
                code="no_counters",
            )
        if profile.light is not None:
            # It loads the models, which single-level selection does not need.
            from assay_sampling.methods.pks.two_level import two_level_selection  # noqa: PLC0415

            return Tried(two_level_selection(profile, **parameters.model_dump(), seed=seed))
        asked = sorted(parameters.model_fields_set & set(_TWO_LEVELS))
        if asked:
            raise ParameterError(
                self.name,
                f"{' and '.join(asked)} apply to two levels only",
                "give a light recording (--light) too",
            )
        return _single_level(profile, detailed, parameters, seed, count)


def _single_level(
    profile: Profile, launches: Launches, parameters: PksParameters, seed: int, count: int
) -> Tried:
    light_time = time_to_draw_by(profile, parameters)
    grouping = parameters.of_grouping()
    principal = principal_kernels(launches, **grouping, seed=seed)
    cost = cost_of(launches, principal.evaluation.quantity)
    chosen = choose_launches(
        principal.labels,
        principal.counts,
        principal.representative_rows,
        cost,
        per_group=parameters.launches_per_group,
        seed=seed,
        light_time=light_time,
    )
    groups = principal.labels[chosen.rows]
    weighing = weigh(profile, principal.labels, chosen.rows, here="launches", asked=parameters.weights)
    extra: dict[str, Any] = {
        "sweep": [asdict(entry) for entry in principal.sweep],
        "pca_components": principal.pca_components,
    }
    if parameters.seeds:
        extra["seeds"] = seed_spread(launches, grouping, seed, parameters.seeds)
    selection = Selection(
        method=PksSampler.name,
        parameters=parameters.of_one_level(),
        seed=seed,
        profile=ProfileSummary.of(launches),
        representatives=Representatives.at(launches, chosen.rows, groups, chosen.weights),
        group_launches=principal.counts,
        evaluation=evaluate(
            cost,
            chosen.rows,
            chosen.weights,
            labels=principal.labels,
            representative_groups=groups,
            instructions=instructions_of(launches),
        ),
        instruction_share=instruction_share(launches, principal.labels, len(principal.counts)),
        labels=principal.labels,
        interval=chosen.interval,
        interval_reason=chosen.interval_reason,
        drawing=chosen.drawing,
        warnings=(*choice_notes(launches, parameters.features, principal.evaluation), *weighing.warnings),
        extra=extra,
        light_time_weights=weighing.light_time,
        weights=weighing.rule,
    )
    if not count or _fixed(parameters):
        return Tried(selection)
    if launches.is_on_disk:  # halves are shuffled in memory
        return Tried(selection, otherwise="in_sample")
    if light_time is not None and parameters.launches_per_group > 1:
        return Tried(selection, otherwise="by_construction")
    halving = Halving(
        principal,
        cost,
        distinct_signatures(launches).inverse,
        parameters.representative,
        parameters.target_error_percent,
        parameters.launches_per_group,
    )
    trials = halving.trials(seed, count)
    return Tried(selection, trials, "as_scored" if len(trials) else "in_sample")


def _fixed(parameters: PksParameters) -> bool:
    """Whether neither costs nor chance decide anything."""
    drawn = parameters.launches_per_group > 1 or parameters.representative == "random"
    return parameters.k is not None and not drawn
