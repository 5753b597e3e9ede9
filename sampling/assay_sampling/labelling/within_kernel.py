"""Models that label a signature by the seen signatures of the same kernel.

``nearest_light_time`` gives it the group of the one that takes the most similar time in the light run.

``scaled_counters`` predicts its counters and puts it where the clustering would: those of the nearest seen
signature (by blocks, warps a block and light time, as logarithms), times the ratio of the two sizes, then
the nearest centre of a group in the space in which the window was clustered. The ratio is that of the warps
or that of the light times, whichever labels more of the window's signatures when each is left out (of
equals, that of the warps). Ratios such as ``threads_per_instruction`` are taken as they are, and
``thread_blocks`` follows from the grid. It rests on counters that grow with the grid: a kernel whose work
depends on its data is placed wrongly, which the held-out accuracies show.

Both are ours; docs/methods/two-level.md has what they were measured to be worth.
Memory: 64 bytes a seen signature besides its counters, and for 8,192 asked ones at a time their counters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from assay_sampling.clustering.feature_space import FeatureSpace, feature_matrix
from assay_sampling.counters.definitions import registry
from assay_sampling.counters.simulated import simulated_counters
from assay_sampling.labelling.classifiers import Answers, Examples
from assay_sampling.labelling.extra import spatial
from assay_sampling.labelling.light_facts import LightFacts
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import counter_columns

KernelModelName = Literal["nearest_light_time", "scaled_counters"]
KERNEL_MODEL_NAMES: tuple[KernelModelName, ...] = ("nearest_light_time", "scaled_counters")

_NEIGHBOURS = 5
# Logarithms of counts and nanoseconds stay below 50: another kernel is never nearer than this.
_APART = 1e4
_SCALED_UNITS = ("inst", "request", "sector", "byte")
# Counts that have no unit.
_SCALED_COUNTS = ("shared_bank_conflicts",)
_SMALLEST = 1e-12

Answerer = Callable[[LightFacts, int], Answers]


@dataclass(frozen=True)
class WindowCounters:
    """Counters of the window's w launches, ``values`` of shape (w, f) by ``names``, and the space that they
    were clustered in. ``units`` are their units; "" for those of a registry."""

    names: tuple[str, ...]
    values: np.ndarray
    space: FeatureSpace
    units: tuple[str, ...] = ()

    @classmethod
    def of(cls, launches: Launches, names: tuple[str, ...], space: FeatureSpace) -> WindowCounters:
        """Those of some launches; raises CounterUnavailableError where one lacks a counter."""
        units = {column.name: column.unit for column in counter_columns(launches.table.schema)}
        return cls(names, feature_matrix(launches, names), space, tuple(units[name] for name in names))

    def grows(self, index: int) -> bool:
        """Whether a counter of silicon or of a simulator counts work, rather than being a ratio."""
        name = self.names[index]
        counters = simulated_counters() if name in simulated_counters() else registry()
        unit = counters[name].unit if name in counters else self.units[index]
        return unit in _SCALED_UNITS or name in _SCALED_COUNTS


@dataclass(frozen=True)
class Donors:
    """The d signatures that were trained on, with the group of most of their launches, shape (d,).

    ``counters``, shape (d, f), are the mean ones of the launches in that group; None if unknown. They are
    in the order of their launches, most first. ``fallback`` is the group of most launches, which a kernel
    that was not seen gets.
    """

    facts: LightFacts
    label: np.ndarray
    counters: np.ndarray | None
    fallback: int

    @classmethod
    def of(cls, facts: LightFacts, examples: Examples) -> Donors:
        """``facts`` are those of the signatures that ``examples.signature`` numbers."""
        main = examples.main
        main = main[np.argsort(-examples.weight[main], kind="stable")]
        counters = None if examples.counters is None else examples.counters[main]
        fallback = int(np.bincount(examples.label, weights=examples.weight).argmax())
        return cls(facts.take(examples.signature[main]), examples.label[main], counters, fallback)


class Nearest:
    """The nearest of the seen signatures of a kernel, by positions of shape (d, p), 1-norm.

    Of seen signatures at one position only the first counts.
    """

    def __init__(self, kernel: np.ndarray, position: np.ndarray) -> None:
        self._kernels, number = np.unique(kernel, return_inverse=True)
        points = np.column_stack([number * _APART, position])
        first = np.sort(np.unique(points, axis=0, return_index=True)[1])
        self.rows = first
        self._tree = spatial().cKDTree(points[first])

    def query(
        self, kernel: np.ndarray, position: np.ndarray, neighbours: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Distances and seen signatures, both of shape (m, neighbours), nearest first.

        Where there are fewer, the distance is infinite and the number -1.
        """
        number = np.minimum(np.searchsorted(self._kernels, kernel), len(self._kernels) - 1)
        has_kernel = self._kernels[number] == kernel
        points = np.column_stack([np.where(has_kernel, number * _APART, -_APART), position])
        distance, at = self._tree.query(points, k=neighbours, p=1, distance_upper_bound=_APART / 2)
        distance, at = distance.reshape(len(points), neighbours), at.reshape(len(points), neighbours)
        rows = np.where(np.isfinite(distance), np.append(self.rows, -1)[at], -1)
        return distance, rows


def nearest_light_time(donors: Donors) -> Answerer:
    """Answers by the light durations of the seen signatures, which must be known."""
    nearest = Nearest(donors.facts.kernel, _log_time(donors.facts))

    def answers(facts: LightFacts, groups: int) -> Answers:
        distance, neighbour = nearest.query(facts.kernel, _log_time(facts), _NEIGHBOURS)
        near = np.where(neighbour >= 0, 1 / np.maximum(np.square(distance), _SMALLEST), 0.0)
        probabilities = np.zeros((len(facts), groups))
        rows = np.arange(len(facts))
        for index in range(_NEIGHBOURS):
            probabilities[rows, donors.label[neighbour[:, index]]] += near[:, index]
        return _with_fallback(donors, donors.label[neighbour[:, 0]], probabilities, neighbour[:, 0] >= 0)

    return answers


def scaled_counters(donors: Donors, examples: Examples, window: WindowCounters) -> Answerer:
    """Answers by counters predicted from the nearest seen signature.

    ``examples``, which ``donors`` were made of, have counters.
    """
    return _ScaledCounters.of(donors, examples, window).answers


@dataclass(frozen=True)
class _ScaledCounters:
    """``groups`` and ``centres``, of shapes (g,) and (g, c): where the groups of the seen signatures lie."""

    donors: Donors
    window: WindowCounters
    nearest: Nearest
    groups: np.ndarray
    centres: np.ndarray
    by_light_time: bool = False

    @classmethod
    def of(cls, donors: Donors, examples: Examples, window: WindowCounters) -> _ScaledCounters:
        assert examples.counters is not None
        placed = window.space.project(examples.counters)
        groups, number = np.unique(examples.label, return_inverse=True)
        launches = np.bincount(number, examples.weight)
        sums = [np.bincount(number, examples.weight * along) for along in placed.T]
        # Of the whole window these are the centres of its clustering.
        centres = np.stack(sums, axis=1) / launches[:, None] if sums else np.zeros((len(groups), 0))
        nearest = Nearest(donors.facts.kernel, _sizes(donors.facts))
        by_warps = cls(donors, window, nearest, groups, centres)
        if donors.facts.light_ns is None:
            return by_warps
        by_time = cls(donors, window, nearest, groups, centres, by_light_time=True)
        return by_time if by_time._left_out_right() > by_warps._left_out_right() else by_warps

    def answers(self, facts: LightFacts, groups: int) -> Answers:
        distance, neighbour = self.nearest.query(facts.kernel, _sizes(facts), 1)
        donor = neighbour[:, 0]
        probabilities = np.zeros((len(facts), groups))
        probabilities[:, self.groups] = self._memberships(facts, donor)
        labels = self.groups[probabilities[:, self.groups].argmax(axis=1)]
        # A signature that was seen needs no prediction.
        labels = np.where(distance[:, 0] == 0, self.donors.label[donor], labels)
        return _with_fallback(self.donors, labels, probabilities, donor >= 0)

    def _memberships(self, facts: LightFacts, donor: np.ndarray) -> np.ndarray:
        """How near the predicted counters lie to each centre, shape (m, g): the memberships of fuzzy c-means
        (Bezdek 1981, exponent 2)."""
        placed = self.window.space.project(self._predicted(facts, donor))
        squared = np.stack([np.square(placed - centre).sum(axis=1) for centre in self.centres], axis=1)
        near: np.ndarray = 1 / np.maximum(squared, _SMALLEST)
        return near

    def _predicted(self, facts: LightFacts, donor: np.ndarray) -> np.ndarray:
        """Counters of signatures from those of their donors, shape (m, f)."""
        assert self.donors.counters is not None
        of_donor = self.donors.facts.take(donor)
        predicted: np.ndarray = self.donors.counters[donor].copy()
        ratio = facts.warps / of_donor.warps
        if self.by_light_time:
            assert facts.light_ns is not None and of_donor.light_ns is not None
            ratio = facts.light_ns / of_donor.light_ns
        for index, name in enumerate(self.window.names):
            if name == "thread_blocks":
                predicted[:, index] *= facts.blocks / of_donor.blocks
            elif self.window.grows(index):
                predicted[:, index] *= ratio
        return predicted

    def _left_out_right(self) -> int:
        """How many seen signatures get their group from their nearest neighbour."""
        facts = self.donors.facts.take(self.nearest.rows)
        _, neighbour = self.nearest.query(facts.kernel, _sizes(facts), 2)
        other = np.where(neighbour[:, 0] == self.nearest.rows, neighbour[:, 1], neighbour[:, 0])
        with_other = np.flatnonzero(other >= 0)
        labels = self.groups[self._memberships(facts.take(with_other), other[with_other]).argmax(axis=1)]
        return int((labels == self.donors.label[self.nearest.rows[with_other]]).sum())


def _with_fallback(donors: Donors, labels: np.ndarray, near: np.ndarray, has_donor: np.ndarray) -> Answers:
    """Answers with probabilities that add up to 1; kernels that were not seen get the fallback, unsurely."""
    probabilities = np.where(has_donor[:, None], near, 1.0)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return Answers(np.where(has_donor, labels, donors.fallback).astype(np.int32), probabilities)


def _log_time(facts: LightFacts) -> np.ndarray:
    assert facts.light_ns is not None
    return np.asarray(np.log(facts.light_ns))


def _sizes(facts: LightFacts) -> np.ndarray:
    """Where a signature lies among those of its kernel, shape (m, p)."""
    parts = [np.log(facts.blocks), np.log(facts.warps / facts.blocks)]
    return np.column_stack([*parts, *([] if facts.light_ns is None else [_log_time(facts)])])
