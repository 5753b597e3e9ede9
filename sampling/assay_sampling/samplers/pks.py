"""Principal kernel selection as a sampler; with a light run, carried to the whole workload."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.alignment import LEAST_MATCH_PERCENT, MatchKind
from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.launches import Launches
from assay_sampling.principal_kernels import (
    DEFAULT_K_MAX,
    DEFAULT_TARGET_ERROR_PERCENT,
    Representative,
    principal_kernels,
)
from assay_sampling.profile import Profile
from assay_sampling.samplers.base import Parameters, instruction_share, source_of
from assay_sampling.selection import ProfileSummary, Representatives, Selection

_MATCHING = ("match_kind", "least_match_percent")


class PksParameters(Parameters):
    """``k`` fixes the number of groups; else the smallest K up to ``k_max`` with an error below
    ``target_error_percent`` is taken, else the one of least error. ``cost`` is the cycle counter that is
    projected; by default the first that was measured for all launches. ``match_kind`` and
    ``least_match_percent`` say when a light run holds the same launches (two levels only).
    """

    features: Literal["table2", "artifact12", "artifact11"] = "table2"
    k: int | None = Field(default=None, ge=1)
    k_max: int = Field(default=DEFAULT_K_MAX, ge=1)
    target_error_percent: float = Field(default=DEFAULT_TARGET_ERROR_PERCENT, ge=0)
    representative: Representative = "first"
    cost: Literal["cycles_gpc_avg", "cycles_gpc_max", "cycles_sys_avg"] | None = None
    match_kind: MatchKind = "exact"
    least_match_percent: float = Field(default=LEAST_MATCH_PERCENT, ge=0, le=100)

    def of_grouping(self) -> dict[str, Any]:
        """What concerns a single level: everything but how two are matched."""
        return self.model_dump(mode="json", exclude=set(_MATCHING))


class PksSampler:
    """Groups launches by their counters; weight = launches of the group."""

    name = "pks"
    parameters: type[BaseModel] = PksParameters
    joins_levels = True

    def select(self, profile: Profile, parameters: PksParameters, *, seed: int) -> Selection:
        """Raises RefusedError without counters or launches, CounterUnavailableError where a launch lacks
        one that is used, and what :func:`assay_sampling.two_level.two_level_selection` raises."""
        detailed = profile.detailed
        if detailed is None or not detailed.counters:
            raise RefusedError(
                source_of(profile.whole if detailed is None else detailed),
                "PKS not applicable: no counters",
                "give a recording with hardware counters, or use random or systematic",
            )
        if profile.light is not None:
            # It brings the models, which single-level selection can do without.
            from assay_sampling.two_level import two_level_selection  # noqa: PLC0415

            return two_level_selection(profile, **parameters.model_dump(), seed=seed)
        asked = sorted(parameters.model_fields_set & set(_MATCHING))
        if asked:
            raise ParameterError(
                self.name, f"{' and '.join(asked)} concern two levels", "give a light recording (--light) too"
            )
        return _single_level(detailed, parameters, seed)


def _single_level(launches: Launches, parameters: PksParameters, seed: int) -> Selection:
    principal = principal_kernels(launches, **parameters.of_grouping(), seed=seed)
    groups = np.arange(len(principal.counts))
    return Selection(
        method=PksSampler.name,
        parameters=parameters.of_grouping(),
        seed=seed,
        profile=ProfileSummary.of(launches),
        representatives=Representatives.at(
            launches, principal.representative_rows, groups, principal.counts.astype(np.float64)
        ),
        group_launches=principal.counts,
        evaluation=principal.evaluation,
        instruction_share=instruction_share(launches, principal.labels, len(groups)),
        labels=principal.labels,
        extra={
            "sweep": [asdict(entry) for entry in principal.sweep],
            "pca_components": principal.pca_components,
        },
    )
