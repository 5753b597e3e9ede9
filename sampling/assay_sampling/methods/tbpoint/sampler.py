"""TBPoint between launches: hierarchical clustering, one launch simulated for each cluster.

    total CPI = sum over clusters of CPI(representative) x instructions of the cluster / all instructions

so the cycles of a representative have the weight instructions of the cluster / its own instructions. The
clusters do not depend on the cost, unless a sweep chooses the threshold by the error. Launches of two kernels
share one with ``mixing=allowed`` only, as published.

Source: TBPoint (Huang et al., IPDPS 2014), section III, table IV; the sweep: Principal Kernel Analysis
(MICRO 2021), its baseline. Memory: that of :mod:`assay_sampling.clustering.complete_linkage`, and 100 bytes
a launch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, Field, field_validator

from assay_sampling.clustering.complete_linkage import DEFAULT_MAX_ROWS, CompleteLinkage, complete_linkage
from assay_sampling.counters.features import AUTO, check_features
from assay_sampling.errors import ParameterError
from assay_sampling.estimation.intervals import NO_INTERVAL_FIXED_RULE, Interval, draw_per_group
from assay_sampling.estimation.known_design import known_design_interval
from assay_sampling.estimation.light_time_draws import draw_by_light_time
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import drawing_of, grouped_selection, source_of, time_to_draw_by, whole_cost
from assay_sampling.methods.budgets import Budget
from assay_sampling.methods.groups.kernel_groups import Mixing
from assay_sampling.methods.needs import Needs
from assay_sampling.methods.tbpoint.features import (
    MemoryFeature,
    TBPointFeatures,
    counted_launches,
    fitted_counters,
    tbpoint_features,
    tbpoint_needs,
    with_instructions,
)
from assay_sampling.methods.tried import Tried, try_seeds
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import MethodParameters
from assay_sampling.scoring.evaluation import Cost
from assay_sampling.scoring.selection import Selection

DEFAULT_THRESHOLD = 0.1
SWEPT_THRESHOLDS = tuple(round(0.01 * step, 2) for step in range(1, 21))
DEFAULT_TARGET_ERROR_PERCENT = 5.0
_ROUNDING = 1e-9
MOST_DISTINCT = 40_000  # distances of so many take 12.8 GB


class TBPointParameters(MethodParameters):
    """How far apart the launches of a cluster may be, and how they are compared."""

    threshold: float = Field(
        default=DEFAULT_THRESHOLD,
        gt=0,
        description="The largest distance between two launches of a cluster.",
    )
    sweep: bool = Field(
        default=False,
        description=(
            "Try thresholds from 0.01 to 0.20 and take the fewest clusters with an error below "
            "target_error_percent, else the least error."
        ),
    )
    target_error_percent: float = Field(
        default=DEFAULT_TARGET_ERROR_PERCENT,
        ge=0,
        description="The error below which the sweep takes the fewest clusters.",
    )
    mixing: Mixing = Field(
        default="never",
        description=(
            'Whether a cluster may hold launches of several kernels: "never", or "allowed", as published.'
        ),
    )
    memory: MemoryFeature = Field(
        default="sectors",
        description='What a memory request is: 32-byte "sectors", or Nsight Compute\'s "requests".',
    )
    features: str = Field(
        default=AUTO,
        description=(
            'The counters that launches are compared by: a list a,b,c, or "all" that were measured but '
            'costs. "auto" takes the published ones where they were measured, else those that do not '
            "depend on the GPU."
        ),
    )
    thread_blocks: str | None = Field(
        default=None,
        description="A file with the sizes of thread blocks ('assay docs bbv-format').",
    )
    launches_per_group: int = Field(
        default=1,
        ge=1,
        description=(
            "From 2 on, this many launches of each cluster are drawn at random, which gives an interval."
        ),
    )
    max_distinct: int = Field(
        default=DEFAULT_MAX_ROWS,
        ge=2,
        le=MOST_DISTINCT,
        description=(
            "The most distinct launches within reach of each other; their distances take 8 bytes x its "
            "square."
        ),
    )

    @field_validator("features")
    @classmethod
    def _named(cls, value: str) -> str:
        return check_features(value, "tbpoint")


class TBPointSampler:
    """Groups launches by hierarchical clustering; weight = instructions of the group / representative's."""

    name = "tbpoint"
    parameters: type[BaseModel] = TBPointParameters
    budget = Budget("threshold", 0.001, 100, "larger", start=0.1, per_group=True)

    def needs(self, parameters: TBPointParameters) -> Needs:
        """Which counters it looks at."""
        return tbpoint_needs(parameters.memory, parameters.features)

    def fitted(self, parameters: TBPointParameters, profile: Profile) -> TBPointParameters:
        """The parameters for a profile: the counters that its launches are compared by."""
        if profile.detailed is None or not profile.detailed.counters:
            return parameters
        features = fitted_counters(profile.detailed, parameters.memory, parameters.features)
        return parameters.model_copy(update={"features": features})

    def select_and_try(
        self, profile: Profile, parameters: TBPointParameters, *, seed: int, count: int
    ) -> Tried:
        """As :meth:`select`; where launches are drawn, with tries of further seeds. With ``sweep`` the
        threshold was chosen by the error that is scored."""
        selection = self.select(profile, parameters, seed=seed)
        if parameters.sweep:
            return Tried(selection, otherwise="in_sample")
        if not count or parameters.launches_per_group == 1:
            return Tried(selection)
        return try_seeds(lambda other: self.select(profile, parameters, seed=other), selection, seed, count)

    def select(self, profile: Profile, parameters: TBPointParameters, *, seed: int) -> Selection:
        """Raises RefusedError without launches or counters, or where too many launches are distinct;
        CounterUnavailableError where a launch lacks a counter or its cost; ParameterError for parameters that
        exclude one another; InputError for a file of thread blocks; MissingExtraError without SciPy."""
        _check(self.name, parameters)
        cost = whole_cost(profile)
        launches = counted_launches(profile)
        blocks = None if parameters.thread_blocks is None else Path(parameters.thread_blocks)
        features = tbpoint_features(
            launches, memory=parameters.memory, features=parameters.features, block_sizes=blocks
        )
        if profile.light is not None:
            profile = replace(profile, light=with_instructions(profile.light, launches))
        swept = SWEPT_THRESHOLDS if parameters.sweep else (parameters.threshold,)
        linked = complete_linkage(
            features.matrix,
            max(swept),
            kind=None if parameters.mixing == "allowed" else _kernels(launches),
            max_rows=parameters.max_distinct,
            subject=source_of(launches),
        )
        distinct = _Distinct.of(features, linked)
        sweep = [_entry(threshold, *distinct.representatives(threshold), cost) for threshold in swept]
        threshold = _best(sweep, parameters.target_error_percent)
        chosen = _Clusters(linked.labels(threshold), *distinct.representatives(threshold))
        interval: Interval | None = None
        reason: Note | None = NO_INTERVAL_FIXED_RULE
        light_time = time_to_draw_by(profile, parameters)
        if parameters.launches_per_group > 1:
            rows = _rows(chosen.labels, parameters.launches_per_group, light_time, seed)
            chosen = _drawn(chosen, features.instructions, rows)
        if parameters.launches_per_group > 1 and light_time is not None:
            reason = make_note("interval_of_light_time_draw")
        elif parameters.launches_per_group > 1:
            interval = known_design_interval(
                cost.values, chosen.labels, chosen.rows, amounts=features.instructions
            )
            reason = None
        return grouped_selection(
            profile,
            self.name,
            parameters.model_copy(update={"threshold": threshold}),
            seed,
            labels=chosen.labels,
            rows=chosen.rows,
            weights=chosen.weights,
            cost=cost,
            interval=interval,
            interval_reason=reason,
            weighed_by="instructions",
            drawing=drawing_of(parameters.launches_per_group, light_time),
            extra={
                "features": list(features.counters),
                "notes": [note.to_dict() for note in features.notes],
                **({"sweep": sweep} if parameters.sweep else {}),
            },
        )


@dataclass(frozen=True)
class _Clusters:
    """Cluster of each launch, shape (n,); rows and weights of the representatives, shape (r,), rows by
    cluster or ascending."""

    labels: np.ndarray
    rows: np.ndarray
    weights: np.ndarray


def _check(method: str, parameters: TBPointParameters) -> None:
    if parameters.sweep and "threshold" in parameters.model_fields_set:
        raise ParameterError(method, "sweep=true chooses the threshold", "leave threshold or sweep out")
    if not parameters.sweep and "target_error_percent" in parameters.model_fields_set:
        raise ParameterError(
            method, "target_error_percent applies to the sweep only", "give sweep=true too, or leave it out"
        )


@dataclass(frozen=True)
class _Distinct:
    """Distinct launches, m of them in the order of their first: ``counts`` of each, and instructions, of all
    ``instructions`` and of the first ``own_instructions``, shape (m,); ``points``, shape (m, 4)."""

    linked: CompleteLinkage
    points: np.ndarray
    counts: np.ndarray
    instructions: np.ndarray
    own_instructions: np.ndarray

    @classmethod
    def of(cls, features: TBPointFeatures, linked: CompleteLinkage) -> _Distinct:
        first, inverse = linked.first, linked.inverse
        executed = np.bincount(inverse, weights=features.instructions)
        points, own = features.matrix[first], features.instructions[first]
        return cls(linked, points, np.bincount(inverse), executed, own)

    def representatives(self, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """Rows and weights, shape (g,), of the launch nearest to each cluster's centre; ties go to the
        first."""
        labels = self.linked.distinct_labels(threshold)
        sizes = np.bincount(labels, weights=self.counts)
        centres = [np.bincount(labels, weights=self.counts * column) / sizes for column in self.points.T]
        apart = np.square(self.points - np.stack(centres, axis=1)[labels]).sum(axis=1)
        chosen = _first_of_nearest(apart, labels)
        executed, own = np.bincount(labels, weights=self.instructions), self.own_instructions[chosen]
        return self.linked.first[chosen], _weights(executed, own, sizes)


def _kernels(launches: Launches) -> np.ndarray:
    """The kernel of every launch, a number from 0 on, shape (n,)."""
    kernels: np.ndarray = np.unique(launches.column("kernel_id"), return_inverse=True)[1]
    return kernels


def _first_of_nearest(apart: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Index of the least ``apart`` of each label, shape (g,); ties go to the first; both have shape (m,).

    Two launches are equally far from their common centre: rounding must not decide which one is nearer.
    """
    order = np.argsort(labels, kind="stable")
    members = np.bincount(labels)
    starts = np.cumsum(members) - members
    ordered = apart[order]
    least = np.repeat(np.minimum.reduceat(ordered, starts), members)
    hits = np.flatnonzero(ordered <= least * (1 + _ROUNDING))
    first: np.ndarray = order[hits[np.searchsorted(hits, starts)]]
    return first


def _rows(labels: np.ndarray, per_group: int, light_time: np.ndarray | None, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if light_time is None:
        return draw_per_group(labels, per_group, rng)
    return draw_by_light_time(labels, per_group, light_time, rng)


def _drawn(clusters: _Clusters, instructions: np.ndarray, rows: np.ndarray) -> _Clusters:
    groups = clusters.labels[rows]
    executed = np.bincount(clusters.labels, weights=instructions)
    by_drawn = np.bincount(groups, weights=instructions[rows])
    weights = _weights(executed, by_drawn, np.bincount(clusters.labels) / np.bincount(groups))
    return _Clusters(clusters.labels, rows, weights[groups])


def _weights(executed: np.ndarray, by_chosen: np.ndarray, launches: np.ndarray) -> np.ndarray:
    """Instructions of each cluster / those of its representatives; where these have none, its launches / how
    many represent it. All of shape (g,)."""
    weights: np.ndarray = launches.astype(np.float64)
    np.divide(executed, by_chosen, out=weights, where=by_chosen > 0)
    return weights


def _entry(threshold: float, rows: np.ndarray, weights: np.ndarray, cost: Cost) -> dict[str, Any]:
    """Scores of one threshold; the speedup is None where its representatives cost nothing."""
    total = float(cost.values.sum())
    of_representatives = cost.values[rows]
    simulated = float(of_representatives.sum())
    projected = float((weights * of_representatives).sum())
    return {
        "threshold": threshold,
        "groups": len(rows),
        "error_percent": abs(100.0 * (projected - total) / total),
        "speedup": total / simulated if simulated > 0 else None,
    }


def _best(sweep: list[dict[str, Any]], target_error_percent: float) -> float:
    """The threshold with the fewest clusters below the target error, else of the least error."""
    good = [entry for entry in sweep if entry["error_percent"] < target_error_percent]
    if good:
        return float(min(good, key=lambda entry: entry["groups"])["threshold"])
    return float(min(sweep, key=lambda entry: entry["error_percent"])["threshold"])
