"""Principal kernel selection as a sampler; with a light run, carried to the whole workload."""

from __future__ import annotations

from pydantic import BaseModel

from assay_sampling.counters.features import fitted_features, named_features
from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import source_of
from assay_sampling.methods.budgets import LAUNCHES_PER_GROUP
from assay_sampling.methods.needs import Needs, cycles
from assay_sampling.methods.pks.choices import cost_without_cycles
from assay_sampling.methods.pks.one_level import one_level_selection
from assay_sampling.methods.pks.parameters import OF_TWO_LEVELS, PksParameters
from assay_sampling.methods.registry import without_counters
from assay_sampling.methods.tried import Tried
from assay_sampling.scoring.selection import Selection


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
        asked = sorted(parameters.model_fields_set & set(OF_TWO_LEVELS))
        if asked:
            raise ParameterError(
                self.name,
                f"{' and '.join(asked)} apply to two levels only",
                "give a light recording (--light) too",
            )
        return one_level_selection(profile, detailed, parameters, seed, count)
