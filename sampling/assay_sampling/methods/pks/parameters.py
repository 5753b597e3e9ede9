"""The parameters of PKS."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from assay_sampling.counters.features import AUTO, check_features
from assay_sampling.launches.alignment import LEAST_MATCH_PERCENT, MatchKind
from assay_sampling.methods.groups.group_draws import RepresentativeRule
from assay_sampling.methods.groups.kernel_groups import Mixing
from assay_sampling.methods.pks.principal_kernels import DEFAULT_K_MAX, DEFAULT_TARGET_ERROR_PERCENT
from assay_sampling.parameters import MethodParameters

# Each number of groups that is tried is a clustering of its own.
MOST_GROUPS = 10_000
OF_TWO_LEVELS = ("match_kind", "least_match_percent", "model", "abstain", "label_accuracy_percent")
# Which launches stand for groups, and with which weights; no group depends on them.
OF_DRAWS = ("launches_per_group", "least_speedup", "weights")
_NOT_OF_GROUPING = (*OF_TWO_LEVELS, *OF_DRAWS, "mixing", "seeds")


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
    mixing: Mixing = Field(
        default="never",
        description=(
            'Whether a group may hold launches of several kernels. "never": groups are kernels and sizes, '
            "and clusters of the counters divide them further where that lowers the group error. "
            '"allowed": groups are the clusters, as published.'
        ),
    )
    k: int | None = Field(
        default=None,
        ge=1,
        le=MOST_GROUPS,
        description=(
            "The number of clusters of the counters; by default the smallest up to k_max with an error below "
            "target_error_percent, else the one of least error."
        ),
    )
    k_max: int = Field(
        default=DEFAULT_K_MAX,
        ge=1,
        le=MOST_GROUPS,
        description="The largest number of clusters to try.",
    )
    target_error_percent: float = Field(
        default=DEFAULT_TARGET_ERROR_PERCENT,
        ge=0,
        description=(
            "The error below which the fewest groups are taken: with mixing=never the group error of "
            "launches that were held out, with mixing=allowed the error of the total."
        ),
    )
    representative: RepresentativeRule = Field(
        default="auto",
        description=(
            'Which launch stands for a group. "auto": with weights by light time the one at which cumulative '
            "light time, sorted by duration, reaches half (weighted_median; launches_per_group draws in "
            "proportion to light time), else a random one."
        ),
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
    least_speedup: float | None = Field(
        default=None,
        ge=1,
        description=(
            "Draw as many launches of each group as leave at least this speedup; where it is too high for "
            "two, launches_per_group counts."
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
        description=(
            "Two levels: the model whose labels are used after the window; best is the one of the best "
            "expected accuracy. Where labels decide no group, models are trained only if one is named."
        ),
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
        return self.model_dump(mode="json", exclude=set(OF_TWO_LEVELS))

    def of_grouping(self) -> dict[str, Any]:
        """The parameters that decide the clusters of a single level, with a published representative."""
        parameters = self.model_dump(mode="json", exclude=set(_NOT_OF_GROUPING))
        if self.representative in ("auto", "weighted_median"):
            parameters["representative"] = "first"
        return parameters
