"""PKS on launches that all have counters: a selection with its further tries."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from assay_sampling.engines.blockwise import counts_by
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.signatures import distinct_signatures
from assay_sampling.methods.base import instruction_share, time_to_draw_by
from assay_sampling.methods.groups.group_draws import (
    ChosenLaunches,
    by_rule,
    choose_automatically,
    drawn_by_light_time,
    drawn_uniformly,
    within_budget,
)
from assay_sampling.methods.groups.kernel_groups import KernelGroups, kernel_groups
from assay_sampling.methods.groups.weighted_median import weighted_median_rows
from assay_sampling.methods.pks.choices import choice_notes
from assay_sampling.methods.pks.parameters import PksParameters
from assay_sampling.methods.pks.principal_kernels import PrincipalKernels, principal_kernels, seed_spread
from assay_sampling.methods.pks.split_halves import Halving, halves_of_groups
from assay_sampling.methods.pks.within_kernels import groups_within_kernels
from assay_sampling.methods.tried import Tried
from assay_sampling.scoring.evaluation import Cost, cost_of, evaluate, instructions_of
from assay_sampling.scoring.selection import ProfileSummary, Representatives, Selection
from assay_sampling.scoring.weights import light_time_of_profile, weigh

METHOD = "pks"


def one_level_selection(
    profile: Profile, launches: Launches, one_level: OneLevelGroups, seed: int, count: int
) -> Tried:
    """A selection in groups of launches with counters, and ``count`` scores on halves that did not choose.

    Raises what :func:`assay_sampling.scoring.weights.weigh` raises.
    """
    parameters = one_level.parameters
    principal, labels, cost = one_level.principal, one_level.labels, one_level.cost
    chosen = within_budget(
        lambda several: one_level.choose(None, labels, several, seed),
        labels,
        cost.values,
        parameters.least_speedup,
        parameters.launches_per_group,
    )
    groups = labels[chosen.rows]
    weighing = weigh(
        profile,
        labels,
        chosen.rows,
        here="launches",
        requested_kind=parameters.weights,
        drawing=chosen.drawing,
    )
    extra: dict[str, Any] = {
        "sweep": [asdict(entry) for entry in principal.sweep],
        "pca_components": principal.pca_components,
    }
    notes = choice_notes(launches, parameters.features, principal.evaluation)
    if one_level.by_kernel is not None:
        extra["grouping"] = one_level.by_kernel.facts()
        notes = (*notes, *one_level.by_kernel.notes())
    if parameters.seeds:
        extra["seeds"] = seed_spread(launches, parameters.of_grouping(), seed, parameters.seeds)
    counts = counts_by(labels)
    selection = Selection(
        method=METHOD,
        parameters=parameters.of_one_level(),
        seed=seed,
        profile=ProfileSummary.of(launches),
        representatives=Representatives.at(launches, chosen.rows, groups, chosen.weights),
        group_launches=counts,
        evaluation=evaluate(
            cost,
            chosen.rows,
            chosen.weights,
            labels=labels,
            representative_groups=groups,
            instructions=instructions_of(launches),
        ),
        instruction_share=instruction_share(launches, labels, len(counts)),
        labels=labels,
        interval=chosen.interval,
        interval_reason=chosen.interval_reason,
        drawing=chosen.drawing,
        warnings=(*notes, *weighing.warnings),
        extra=extra,
        light_time_weights=weighing.light_time,
        weights=weighing.rule,
    )
    return _tried(one_level, selection, launches, seed, count)


def _tried(groups: OneLevelGroups, selection: Selection, launches: Launches, seed: int, count: int) -> Tried:
    parameters = groups.parameters
    if not count or groups.fixed:
        return Tried(selection)
    if launches.is_on_disk:  # halves are shuffled in memory
        return Tried(selection, otherwise="in_sample")
    if selection.drawing == "light_time":
        return Tried(selection, otherwise="by_construction")
    signatures = distinct_signatures(launches).inverse
    if groups.published:
        trials = Halving(
            groups.principal,
            groups.cost,
            signatures,
            parameters.representative,
            parameters.target_error_percent,
            parameters.launches_per_group,
        ).trials(seed, count)
    else:
        per_group = parameters.launches_per_group

        def choose(rows: np.ndarray, labels: np.ndarray, stream: int) -> ChosenLaunches:
            return groups.choose(rows, labels, per_group, stream)

        trials = halves_of_groups(groups.labels, groups.cost, signatures, choose, seed=seed, count=count)
    return Tried(selection, trials, "as_scored" if len(trials) else "in_sample")


@dataclass(frozen=True)
class OneLevelGroups:
    """Groups of n launches: ``labels``, shape (n,); the clusters of the counters; the groups within kernels
    that they divide, None with mixing=allowed. ``time``, shape (n,), is the light time to choose by."""

    parameters: PksParameters
    principal: PrincipalKernels
    by_kernel: KernelGroups | None
    labels: np.ndarray
    cost: Cost
    time: np.ndarray | None

    @classmethod
    def of(cls, profile: Profile, launches: Launches, parameters: PksParameters, seed: int) -> OneLevelGroups:
        """Raises what :func:`assay_sampling.methods.pks.principal_kernels.principal_kernels` and
        :func:`time_to_choose_by` raise."""
        time = time_to_choose_by(profile, parameters)
        principal = principal_kernels(launches, **parameters.of_grouping(), seed=seed)
        cost = cost_of(launches, principal.evaluation.quantity)
        if parameters.mixing == "allowed":
            return cls(parameters, principal, None, principal.labels, cost, time)
        target = parameters.target_error_percent
        by_kernel = groups_within_kernels(
            kernel_groups(launches, cost.values, target_error_percent=target, seed=seed),
            principal,
            cost.values,
            target_error_percent=target,
            k=parameters.k,
            seed=seed,
        )
        return cls(parameters, principal, by_kernel, by_kernel.labels, cost, time)

    def chosen_by(self, profile: Profile, parameters: PksParameters) -> OneLevelGroups:
        """The same groups, with weights and budget of other parameters."""
        return replace(self, parameters=parameters, time=time_to_choose_by(profile, parameters))

    @property
    def published(self) -> bool:
        """Whether groups and representatives are chosen as published."""
        return self.by_kernel is None and self.parameters.representative in ("first", "centre", "random")

    @property
    def fixed(self) -> bool:
        """Whether neither costs nor chance decide anything."""
        drawn = self.parameters.launches_per_group > 1 or self.parameters.representative == "random"
        budget = self.parameters.least_speedup is not None
        return self.published and self.parameters.k is not None and not drawn and not budget

    def choose(
        self, rows: np.ndarray | None, labels: np.ndarray, per_group: int, seed: int
    ) -> ChosenLaunches:
        """The launches that stand for groups, by the rule of the parameters.

        ``rows``, shape (m,), are the launches that are grouped, None for all; ``labels``, shape (m,), their
        groups. Rows of the result count within ``rows``.
        """
        rule = self.parameters.representative
        cost = self.cost if rows is None else replace(self.cost, values=self.cost.values[rows])
        time = self.time if rows is None or self.time is None else self.time[rows]
        if rule == "auto":
            return choose_automatically(labels, cost, time, per_group=per_group, seed=seed)
        if per_group == 1 and rule == "weighted_median":
            return by_rule(labels, weighted_median_rows(labels, cost.values if time is None else time))
        if per_group == 1 and rule != "random":
            return by_rule(labels, self._by_counters(rows, labels))
        if per_group == 1 and self.published and rows is None:
            return by_rule(labels, self.principal.representative_rows)
        if time is not None:
            return drawn_by_light_time(labels, time, per_group=per_group, seed=seed)
        return drawn_uniformly(labels, cost, per_group=per_group, seed=seed)

    def _by_counters(self, rows: np.ndarray | None, labels: np.ndarray) -> np.ndarray:
        """The first launch of each group, or the one nearest to the centre of its counters."""
        if rows is None and self.published:
            return self.principal.representative_rows
        if self.parameters.representative == "first":
            return np.unique(labels, return_index=True)[1]
        return self.principal.grouping.nearest_to_centres(rows, labels)


def time_to_choose_by(profile: Profile, parameters: PksParameters) -> np.ndarray | None:
    """Light time of every launch, shape (n,), if representatives are chosen by it, else None.

    Raises RefusedError if weights=light_time asks for it and there is no light run.
    """
    if parameters.representative in ("auto", "weighted_median") and parameters.weights is None:
        return light_time_of_profile(profile)
    return time_to_draw_by(profile, parameters)
