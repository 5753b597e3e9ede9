"""Principal kernel selection as a sampler; with a light run, carried to the whole workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from assay_sampling.counters.features import fitted_features, named_features
from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import source_of
from assay_sampling.methods.budgets import LAUNCHES_PER_GROUP
from assay_sampling.methods.needs import Needs, cycles
from assay_sampling.methods.pks.choices import cost_without_cycles
from assay_sampling.methods.pks.one_level import OneLevelGroups, one_level_selection
from assay_sampling.methods.pks.parameters import OF_DRAWS, OF_TWO_LEVELS, PksParameters
from assay_sampling.methods.registry import without_counters
from assay_sampling.methods.tried import Tried
from assay_sampling.scoring.selection import Selection

if TYPE_CHECKING:
    from assay_sampling.methods.pks.two_level_groups import TwoLevelGroups

    Groups = OneLevelGroups | TwoLevelGroups


class PksSampler:
    """Groups launches by their counters; weight = launches of the group."""

    name = "pks"
    parameters: type[BaseModel] = PksParameters
    budget = LAUNCHES_PER_GROUP
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
        one that is used, and what :func:`assay_sampling.methods.pks.two_level.two_level_groups` raises."""
        return self.select_and_try(profile, parameters, seed=seed, count=0).selection

    def select_and_try(self, profile: Profile, parameters: PksParameters, *, seed: int, count: int) -> Tried:
        """As :meth:`select`, with ``count`` scores on halves that did not choose K. Two levels choose it by
        the window's cycles and are scored in the light run's nanoseconds, so that they need none."""
        groups = self.grouped(profile, parameters, seed=seed)
        if isinstance(groups, OneLevelGroups):
            assert profile.detailed is not None
            return one_level_selection(profile, profile.detailed, groups, seed, count)
        return Tried(groups.selection())

    def select_grouped(
        self, profile: Profile, parameters: PksParameters, groups: Groups, *, seed: int
    ) -> Selection:
        """As :meth:`select`, in groups that :meth:`grouped` made with other weights or another budget."""
        if isinstance(groups, OneLevelGroups):
            assert profile.detailed is not None
            chosen = groups.chosen_by(profile, parameters)
            return one_level_selection(profile, profile.detailed, chosen, seed, 0).selection
        return groups.selection(**parameters.model_dump(include=set(OF_DRAWS)))

    def grouped(self, profile: Profile, parameters: PksParameters, *, seed: int) -> Groups:
        """The groups that launches are chosen from. Raises as :meth:`select`."""
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
            from assay_sampling.methods.pks.two_level import two_level_groups  # noqa: PLC0415

            return two_level_groups(profile, **parameters.model_dump(), seed=seed)
        of_two_levels = sorted(parameters.model_fields_set & set(OF_TWO_LEVELS))
        if of_two_levels:
            raise ParameterError(
                self.name,
                f"{' and '.join(of_two_levels)} apply to two levels only",
                "give a light recording (--light) too",
            )
        return OneLevelGroups.of(profile, detailed, parameters, seed)
