"""STEM+ROOT: clusters of one kernel's launches by cost, and as many random samples of each as a bound needs.

    weight of a sample = launches of its cluster / samples of it

The costs of all launches are known, so that the error bound is a prediction, not an estimate.

Source: STEM+ROOT, its published artifact, and spec ``sieve_stem_photon.md`` 2 (the model is derived there).
Memory: at most 200 bytes a launch beside the profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.allocation import allocate, variance
from assay_sampling.counters import CYCLE_COUNTERS
from assay_sampling.errors import RefusedError
from assay_sampling.evaluation import Cost, cost_of
from assay_sampling.intervals import Interval, known_variance_interval
from assay_sampling.kernel_values import KernelValues, kernel_values
from assay_sampling.launch_table import text_id
from assay_sampling.launches import Launches
from assay_sampling.profile import Profile
from assay_sampling.rank_draws import draw_rows
from assay_sampling.root_splits import Bound, split_as_artifact, split_jointly
from assay_sampling.samplers.base import Parameters, grouped_selection, source_of, whole_cost
from assay_sampling.samplers.needs import NO_COUNTERS, Needs
from assay_sampling.segments import Moments, moments
from assay_sampling.selection import Selection

# Powers of ten of the price of variance: a grid, then two times around the best.
_COARSE_STEPS = (0.5, 0.0, -0.5, -1.0, -1.5, -2.0)
_FINE_STEPS = ((0.25, -0.25), (0.125, -0.125))
_NO_INTERVAL_ARTIFACT = (
    "variant=artifact leaves clusters without a sample and bounds each kernel alone: no bound holds for the "
    "total; variant=sound has one"
)


class StemParameters(Parameters):
    """``epsilon_percent`` bounds the error of the total at ``confidence``.

    ``least_samples`` of each cluster at least; clusters of fewer than ``least_cluster`` launches are not
    divided. ``variant=artifact`` does as the authors' published code, faults and all. ``cost`` is what is
    clustered and scored; by default nanoseconds of a light run, else cycles.
    """

    epsilon_percent: float = Field(default=5.0, gt=0, lt=100)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    least_samples: int = Field(default=1, ge=1)
    least_cluster: int = Field(default=2, ge=2)
    variant: Literal["sound", "artifact"] = "sound"
    cost: Literal["cycles_gpc_avg", "cycles_gpc_max", "cycles_sys_avg", "duration_ns"] | None = None

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
        """Cost of the samples to expect, in the unit of the cost."""
        return float((self.sampled * self.moments.mean).sum())


class StemSampler:
    """Clusters each kernel's launches by cost and samples each cluster at random; weight = N / m."""

    name = "stem"
    parameters: type[BaseModel] = StemParameters

    def needs(self, parameters: StemParameters) -> Needs:
        """Which counters it looks at."""
        if parameters.cost in CYCLE_COUNTERS:
            return Needs(counters=(parameters.cost,), of_every_launch=True)
        return NO_COUNTERS

    def select(self, profile: Profile, parameters: StemParameters, *, seed: int) -> Selection:
        """Raises RefusedError for no launches, or where the artifact would sample none;
        CounterUnavailableError where a launch lacks its cost."""
        cost = whole_cost(profile) if parameters.cost is None else cost_of(profile.whole, parameters.cost)
        artifact = parameters.variant == "artifact"
        kernel = profile.whole.column("kernel_id")
        values = kernel_values(_short_names(profile.whole, kernel) if artifact else kernel, cost.values)
        clusters = (as_artifact if artifact else stem)(values, parameters)
        if not clusters.sampled.any():
            raise RefusedError(
                source_of(profile.whole),
                "the artifact samples no launch: it takes none of clusters whose launches cost the same",
                "use variant=sound",
            )
        labels = values.groups(clusters.start)
        rows, groups = draw(labels, clusters, seed)
        launches = clusters.moments.launches
        weights = launches[groups] / clusters.sampled[groups]
        return grouped_selection(
            profile,
            self.name,
            parameters.model_copy(update={"cost": cost.quantity}),
            seed,
            labels=labels,
            rows=rows,
            weights=weights,
            cost=cost,
            interval=None if artifact else _interval(cost, rows, weights, clusters, parameters.confidence),
            interval_reason=_NO_INTERVAL_ARTIFACT,
            extra={
                "predicted_bound_percent": None
                if artifact
                else predicted_bound_percent(clusters, parameters),
                "clusters": len(launches),
                "clusters_without_sample": int((clusters.sampled == 0).sum()),
                "census_clusters": int((clusters.sampled == launches).sum()),
            },
        )


def stem(values: KernelValues, parameters: StemParameters) -> Clusters:
    """Clusters and samples of the least cost found, together within the bound.

    The price of variance decides what to divide, and what is divided decides the price. Prices around the
    one of undivided kernels are tried, coarse steps first; every try meets the bound, the cheapest is taken.
    """
    best, price = _allocated(values, values.kernel_start, parameters)
    if price == 0:  # the least samples are enough
        return best
    middle = 0.0
    for steps in (_COARSE_STEPS, *_FINE_STEPS):
        for power in middle + np.array(steps):
            limits = parameters.least_cluster, parameters.least_samples
            start = split_jointly(values, price * 10**power, *limits)
            found, _ = _allocated(values, start, parameters)
            if found.cost() < best.cost():
                best, middle = found, power
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
    """Error of the total, in percent of it, that holds at the confidence asked for."""
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
        confidence=confidence,
    )


def _short_names(launches: Launches, kernel: np.ndarray) -> np.ndarray:
    """Ids of the kernels' names up to the first parenthesis, shape (n,): what the artifact groups by."""
    distinct, codes = np.unique(kernel, return_inverse=True)
    short = [text_id(launches.names[int(i)].split("(")[0]) for i in distinct.tolist()]
    return np.array(short, np.uint64)[codes]
