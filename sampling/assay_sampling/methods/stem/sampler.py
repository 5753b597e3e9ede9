"""STEM+ROOT: clusters of one kernel's launches by cost, and as many random samples of each as a bound needs.

    weight of a sample = launches of its cluster / samples of it

The costs of all launches are known, so that the error bound is a prediction, not an estimate.

Source: STEM+ROOT's published artifact; docs/methods/stem.md, "The model".
Memory: at most 200 bytes a launch besides the profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.clustering.segments import Moments, moments
from assay_sampling.counters.definitions import ALL_CYCLES
from assay_sampling.engines.columns import engine_of, in_place_of, place_of
from assay_sampling.engines.seam import ArrayRows
from assay_sampling.errors import RefusedError
from assay_sampling.estimation.intervals import Interval, known_variance_interval
from assay_sampling.estimation.light_time_draws import draw_by_light_time
from assay_sampling.estimation.rank_draws import draw_rows
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import text_id
from assay_sampling.methods.base import grouped_selection, source_of, time_to_draw_by, whole_cost
from assay_sampling.methods.budgets import Budget
from assay_sampling.methods.kernel_values import KernelValues, kernel_values
from assay_sampling.methods.needs import NO_COUNTERS, Needs
from assay_sampling.methods.stem.allocation import allocate, variance
from assay_sampling.methods.stem.root_splits import Bound, split_as_artifact, split_jointly
from assay_sampling.methods.tried import Tried
from assay_sampling.notes.registry import make_note
from assay_sampling.parameters import MethodParameters
from assay_sampling.scoring.evaluation import Cost, cost_of
from assay_sampling.scoring.selection import Selection
from assay_sampling.scoring.trials import Draw, drawn_trials

# Powers of ten of the price of variance: a grid, then two finer ones around the best.
_COARSE_STEPS = (0.5, 0.0, -0.5, -1.0, -1.5, -2.0)
_FINE_STEPS = ((0.25, -0.25), (0.125, -0.125))


StemCost = Literal[
    "cycles_gpc_avg", "cycles_gpc_max", "cycles_sys_avg", "duration_ns", "cycles_simulated_active",
    "cycles_simulated",
]  # fmt: skip


class StemParameters(MethodParameters):
    """How close the total must come, and how launches are clustered."""

    epsilon_percent: float = Field(
        default=5.0,
        gt=0,
        lt=100,
        description="The bound on the error of the total.",
    )
    confidence: float = Field(
        default=0.95,
        gt=0.5,
        lt=1,
        description="The probability with which the bound holds.",
    )
    least_samples: int = Field(
        default=1,
        ge=1,
        description="The fewest launches to draw from each cluster.",
    )
    least_cluster: int = Field(
        default=2,
        ge=2,
        description="Clusters of fewer launches are not divided.",
    )
    variant: Literal["sound", "artifact"] = Field(
        default="sound",
        description='"sound", or "artifact", which computes as the authors\' published code, faults and all.',
    )
    cost: StemCost | None = Field(
        default=None,
        description="The cost to cluster and score; by default nanoseconds of a light run, else cycles.",
    )

    def bound(self) -> Bound:
        return Bound(self.epsilon_percent / 100, NormalDist().inv_cdf((1 + self.confidence) / 2))


@dataclass(frozen=True)
class Clusters:
    """Clusters and samples: cluster c is the atoms start[c] to start[c + 1]; ``sampled`` launches of each,
    shape (c,), of its ``moments``."""

    start: np.ndarray
    moments: Moments
    sampled: np.ndarray

    def cost(self) -> float:
        """Expected cost of the samples, in the unit of the cost."""
        return float((self.sampled * self.moments.mean).sum())


@dataclass(frozen=True)
class _Clustered:
    """The clusters of a profile by the parameters, whatever the seed, and that of each launch, shape (n,)."""

    profile: Profile
    parameters: StemParameters
    clusters: Clusters
    labels: np.ndarray


class StemSampler:
    """Clusters each kernel's launches by cost and samples each cluster at random; weight = N / m."""

    name = "stem"
    parameters: type[BaseModel] = StemParameters
    budget = Budget("epsilon_percent", 0.01, 99, "larger", start=5)

    def __init__(self) -> None:
        self._clustering: _Clustered | None = None

    def needs(self, parameters: StemParameters) -> Needs:
        """Which counters it looks at."""
        if parameters.cost in ALL_CYCLES:
            return Needs(counters=(parameters.cost,), of_every_launch=True)
        return NO_COUNTERS

    def select(self, profile: Profile, parameters: StemParameters, *, seed: int) -> Selection:
        """Raises RefusedError for no launches, or where the artifact would sample none;
        CounterUnavailableError where a launch lacks its cost."""
        return self.select_and_try(profile, parameters, seed=seed, count=0).selection

    def select_and_try(self, profile: Profile, parameters: StemParameters, *, seed: int, count: int) -> Tried:
        """As :meth:`select`, with ``count`` further draws from the same clusters."""
        cost = whole_cost(profile) if parameters.cost is None else cost_of(profile.whole, parameters.cost)
        artifact = parameters.variant == "artifact"
        clustered = self._clustered(profile, parameters, cost)
        clusters, labels = clustered.clusters, clustered.labels
        if not clusters.sampled.any():
            raise RefusedError(
                source_of(profile.whole),
                "the artifact samples no launches: it takes none from clusters whose launches cost the same",
                "use variant=sound",
            )
        light_time = time_to_draw_by(profile, parameters)
        if light_time is None:
            rows, groups = draw(labels, clusters, seed)
        else:
            rows = draw_by_light_time(labels, clusters.sampled, light_time, np.random.default_rng(seed))
            groups = labels[rows]
        launches = clusters.moments.launches
        weights = launches[groups] / clusters.sampled[groups]
        selection = grouped_selection(
            profile,
            self.name,
            parameters.model_copy(update={"cost": cost.quantity}),
            seed,
            labels=labels,
            rows=rows,
            weights=weights,
            cost=cost,
            interval=None
            if artifact or light_time is not None
            else _interval(cost, rows, weights, clusters, parameters.confidence),
            interval_reason=make_note(
                "interval_of_stem_artifact" if artifact else "interval_of_light_time_draw"
            ),
            drawing="uniform" if light_time is None else "light_time",
            extra={
                "predicted_bound_percent": None
                if artifact
                else predicted_bound_percent(clusters, parameters),
                "clusters": len(launches),
                "clusters_without_sample": int((clusters.sampled == 0).sum()),
                "census_clusters": int((clusters.sampled == launches).sum()),
            },
        )
        if not count:
            return Tried(selection)

        def one(rng: np.random.Generator) -> Draw:
            sizes = launches.astype(np.int64)
            drawn, of = draw_rows(labels, sizes, clusters.sampled, rng)
            weight = launches[of] / clusters.sampled[of]
            if artifact:
                return drawn, weight, None
            interval = _interval(cost, drawn, weight, clusters, parameters.confidence)
            return drawn, weight, (interval.low, interval.high)

        return Tried(selection, drawn_trials(cost.values, one, seed, count))

    def _clustered(self, profile: Profile, parameters: StemParameters, cost: Cost) -> _Clustered:
        """The clusters, kept for draws of other seeds: they take most of the time."""
        clustering = self._clustering
        if clustering is None or clustering.profile is not profile or clustering.parameters != parameters:
            artifact = parameters.variant == "artifact"
            kernel = profile.whole.array("kernel_id")
            values = kernel_values(_short_names(profile.whole, kernel) if artifact else kernel, cost.values)
            clusters = (as_artifact if artifact else stem)(values, parameters)
            clustering = _Clustered(profile, parameters, clusters, values.groups(clusters.start))
            self._clustering = clustering
        return clustering


def stem(values: KernelValues, parameters: StemParameters) -> Clusters:
    """Clusters and samples of the least cost found, together within the bound.

    The price of variance decides what to divide, and what is divided decides the price. Prices around the
    one of undivided kernels are tried, coarse steps first; every try meets the bound, the cheapest is taken.
    """
    best, price = _allocated(values, values.kernel_start, parameters)
    if price == 0:  # the fewest samples are enough
        return best
    middle = 0.0
    for steps in (_COARSE_STEPS, *_FINE_STEPS):
        for power in middle + np.array(steps):
            limits = parameters.least_cluster, parameters.least_samples
            start = split_jointly(values, price * 10**power, *limits)
            clusters, _ = _allocated(values, start, parameters)
            if clusters.cost() < best.cost():
                best, middle = clusters, power
    return best


def as_artifact(values: KernelValues, parameters: StemParameters) -> Clusters:
    """Clusters and samples as the authors' published code makes them."""
    start, sampled = split_as_artifact(values, parameters.bound())
    return Clusters(start, moments(values.value, values.count, start), sampled)


def draw(labels: np.ndarray, clusters: Clusters, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the samples and their clusters, shape (r,), drawn without replacement; labels shape (n,)."""
    sizes = clusters.moments.launches.astype(np.int64)
    return draw_rows(labels, sizes, clusters.sampled, np.random.default_rng(seed))


def predicted_bound_percent(clusters: Clusters, parameters: StemParameters) -> float:
    """Bound on the error of the total, in percent of it, that holds at the confidence asked for."""
    total = float((clusters.moments.launches * clusters.moments.mean).sum())
    return 100 * parameters.bound().z * float(np.sqrt(variance(clusters.moments, clusters.sampled))) / total


def _allocated(values: KernelValues, start: np.ndarray, parameters: StemParameters) -> tuple[Clusters, float]:
    parts = moments(values.value, values.count, start)
    bound = parameters.bound()
    half_width = bound.epsilon * float((parts.launches * parts.mean).sum())
    allocation = allocate(parts, half_width, bound.z, parameters.least_samples)
    return Clusters(start, parts, allocation.sampled), allocation.multiplier


def _interval(
    cost: Cost, rows: np.ndarray, weights: np.ndarray, clusters: Clusters, confidence: float
) -> Interval:
    return known_variance_interval(
        float((weights * cost.values[rows]).sum()),
        clusters.moments.deviation,
        clusters.sampled,
        clusters.moments.launches,
        drawn_cost=float(cost.values[rows].sum()),
        confidence=confidence,
    )


def _short_names(launches: Launches, kernel: np.ndarray) -> np.ndarray:
    """Ids of the kernels' names up to the first parenthesis, shape (n,): what the artifact groups by."""
    if place_of(kernel) is None:
        distinct, codes = np.unique(kernel, return_inverse=True)
        return _short_ids(launches, distinct)[codes]
    distinct = np.sort(engine_of(kernel).groups(ArrayRows({"kernel": kernel}), ["kernel"]).key("kernel"))
    short = _short_ids(launches, distinct)
    return in_place_of(kernel, np.uint64, lambda block: short[np.searchsorted(distinct, kernel[block])])


def _short_ids(launches: Launches, kernels: np.ndarray) -> np.ndarray:
    return np.array([text_id(launches.names[int(i)].split("(")[0]) for i in kernels.tolist()], np.uint64)
