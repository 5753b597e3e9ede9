"""Two-level selection: groups from a detailed window, the whole workload from a light run.

PKS groups the launches of the window by their counters; its cycles choose K and give the window error.
The other launches get their group from what the light recording knows of them: with mixing=never from their
kernel and size, and from a model where counters divide these; with mixing=allowed, as published, from a
model. The whole workload is then scored in the light run's nanoseconds:

    truth       = sum of duration_ns over all light launches
    projection  = sum over groups of launches x duration_ns of the representative in the same light run

Cycles and nanoseconds are never mixed. Of two runs of one simulator active cycles are the light time.

Source: Principal Kernel Analysis, "Two-level profiling"; docs/methods/two-level.md.
Memory: at most 250 bytes a launch besides the profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay_sampling.counters.definitions import SIMULATED_CYCLES
from assay_sampling.counters.features import named_features
from assay_sampling.counters.missing import how_to_collect
from assay_sampling.errors import RefusedError
from assay_sampling.labelling.light_run import LabellerChoice, label_rest
from assay_sampling.labelling.vote import DEFAULT_LABEL_ACCURACY_PERCENT
from assay_sampling.labelling.within_kernel import WindowCounters
from assay_sampling.launches.alignment import (
    LEAST_MATCH_PERCENT,
    Alignment,
    MatchKind,
    align_window,
    require_match,
)
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.levels import refuse_other_kind, source_of
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.unseen import signature_ordinals, unseen_time_percent
from assay_sampling.methods.groups.group_draws import (
    RepresentativeRule,
)
from assay_sampling.methods.groups.kernel_groups import Mixing
from assay_sampling.methods.pks.carried_groups import CarriedGroups
from assay_sampling.methods.pks.choices import with_light_time
from assay_sampling.methods.pks.k_of_slices import best_k, signature_weights, weighted_group_errors
from assay_sampling.methods.pks.principal_kernels import (
    PrincipalKernels,
    principal_kernels,
    seed_spread,
)
from assay_sampling.methods.pks.two_level_groups import TwoLevelGroups, labels_used
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.evaluation import cost_of

LIGHT_COST = "duration_ns"


def two_level_groups(
    profile: Profile,
    *,
    features: str = "table2",
    k: int | None = None,
    k_max: int = 20,
    target_error_percent: float = 5.0,
    representative: RepresentativeRule = "first",
    cost: str | None = None,
    seed: int = 0,
    mixing: Mixing = "allowed",
    launches_per_group: int = 1,
    least_speedup: float | None = None,
    seeds: int | None = None,
    match_kind: MatchKind = "exact",
    least_match_percent: float = LEAST_MATCH_PERCENT,
    model: LabellerChoice = "best",
    abstain: bool = False,
    label_accuracy_percent: float = DEFAULT_LABEL_ACCURACY_PERCENT,
    weights: WeightKind | None = None,
) -> TwoLevelGroups:
    """The groups of PKS on the detailed window, carried to every launch of the light run. The defaults here
    are the published ones.

    Args:
        profile: both levels of one workload on one kind of GPU under one condition.
        features, k, k_max, target_error_percent, representative, cost: for PKS on the window
            (:func:`assay_sampling.methods.pks.principal_kernels.principal_kernels`); the ``cost``
            duration_ns is the window's time in the light run.
        seed: for PKS, hashing, folds and models.
        mixing: whether groups may hold launches of several kernels
            (:class:`assay_sampling.methods.pks.parameters.PksParameters`).
        launches_per_group: from two on, this many launches of each group are drawn at random from the
        light run, which gives an interval; one takes the representative of the window.
        least_speedup: draw as many of each group as leave at least this speedup.
        seeds: report K and the window's error of this many seeds, from ``seed`` on.
        match_kind: what makes a launch of the light run the same as one of the window.
        least_match_percent: below this the profile is refused.
        model, abstain, label_accuracy_percent: of the labels after the window
            (:func:`assay_sampling.labelling.light_run.label_rest`). Where labels decide no group, models are
            trained only if one is named, for their scores.
        weights: for other GPUs; ``light_time`` draws launches in proportion to it where they are drawn.

    The groups of unknown signatures follow those of the window, and those of abstained ones follow them.

    Raises RefusedError if the levels must not be joined or have no counters, MisalignedError if they do not
    hold the same launches, CounterUnavailableError if a counter or duration is missing.
    """
    detailed, light = _levels(profile, features)
    # Checked before the long work: without durations it could not be scored.
    light_cost = cost_of(light, SIMULATED_CYCLES[0] if light.metadata.simulated else LIGHT_COST)
    alignment = align_window(detailed, light, match_kind)
    require_match(alignment, least_match_percent, f"{source_of(detailed)} and {source_of(light)}")
    grouping: dict[str, Any] = {
        "features": features,
        "k": k,
        "k_max": k_max,
        "target_error_percent": target_error_percent,
        "representative": "first" if representative in ("auto", "weighted_median") else representative,
        "cost": cost,
    }
    matched_all = len(alignment.left_rows) == len(detailed)
    of_window = detailed if matched_all else detailed.take(alignment.left_rows)
    if cost == LIGHT_COST:
        of_window = with_light_time(of_window, light.take(alignment.right_rows))
    window, weighted_error = _grouped(of_window, light, alignment, grouping, seed)
    spread = seed_spread(of_window, grouping, seed, seeds) if seeds else None
    labelled: dict[str, Any] = {
        "model": model,
        "abstain": abstain,
        "label_accuracy_percent": label_accuracy_percent,
    }
    carried: CarriedGroups | None = None
    if mixing == "never":
        carried = CarriedGroups.of(
            light,
            light_cost.values,
            alignment.right_rows,
            of_window=of_window,
            window=window,
            grouping=grouping,
            seed=seed,
        )
        window = carried.window
    counters = WindowCounters.of(of_window, window.features, window.space)
    labelling = label_rest(
        light,
        alignment.right_rows,
        window.labels,
        seed=seed,
        **labelled,
        counters=counters,
        train=model != "best" or labels_used(carried),
    )
    if carried is not None:
        carried = carried.divided_by(labelling, light_cost.values, seed)
    parameters = {
        **grouping,
        "mixing": mixing,
        "representative": representative,
        "launches_per_group": launches_per_group,
        "least_speedup": least_speedup,
        "seeds": seeds,
        "match_kind": match_kind,
        "least_match_percent": least_match_percent,
        **labelled,
        "weights": weights,
    }
    unseen = unseen_time_percent(light, alignment.right_rows, light_cost.values)
    return TwoLevelGroups(
        profile, detailed, light, light_cost, alignment, window, labelling, unseen, weighted_error, carried,
        parameters, seed, spread,
    )  # fmt: skip


def _grouped(
    of_window: Launches, light: Launches, alignment: Alignment, grouping: Mapping[str, Any], seed: int
) -> tuple[PrincipalKernels, float | None]:
    """The groups of the window; of slices that are not the beginning of the workload, with the K that suits
    what they stand for, and the error that it was chosen by."""
    window = principal_kernels(of_window, **grouping, seed=seed)
    rows = alignment.right_rows
    if alignment.kind != "exact" or (not alignment.by_range and not rows[0]):
        return window, None
    weights = signature_weights(signature_ordinals(light), rows)
    cost = cost_of(of_window, window.evaluation.quantity).values
    errors = weighted_group_errors(window, cost, weights)
    best = best_k(errors, grouping["target_error_percent"])
    if best != window.k:
        again = principal_kernels(of_window, **{**grouping, "k": best}, seed=seed)
        window = replace(again, sweep=window.sweep)
    return window, errors[best]


def _levels(profile: Profile, features: str) -> tuple[Launches, Launches]:
    """Both levels of the profile, after checking that they may be joined."""
    detailed, light = profile.detailed, profile.light
    if detailed is None or light is None:
        missing = "detailed" if detailed is None else "light"
        raise RefusedError(
            "two-level selection", f"the profile has no {missing} run", f"record its {missing} level"
        )
    subject = f"{source_of(detailed)} and {source_of(light)}"
    if not len(detailed) or not len(light):
        raise RefusedError(subject, "one of them holds no launches")
    if not detailed.counters:
        raise RefusedError(
            source_of(detailed),
            "PKS not applicable: no counters",
            how_to_collect((*named_features(features), "cycles_gpc_avg"), "pks", detailed.table),
            code="no_counters",
        )
    refuse_other_kind(subject, detailed, light)
    return detailed, light
