"""Groups of PKS that never mix kernels: kernel and size, divided further by counters where these say more.

The clusters of the counters, for each K of the sweep, divide the groups of kernel and size
(:mod:`assay_sampling.methods.groups.kernel_groups`) where launches of one of them lie in several clusters. K
is 1, so that counters divide nothing, if the held-out group error of kernel and size is below the target.
Else it is the smallest K that brings it below; else the K of least error, if that is a tenth less than
without. A K whose groups would take more than half of the time to simulate is not considered.

Source: ours; docs/methods/pks.md, "Groups".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from assay_sampling.engines.blockwise import counts_by
from assay_sampling.methods.groups.held_out_groups import HeldOut
from assay_sampling.methods.groups.kernel_groups import KernelGroups, TriedSplit, numbered
from assay_sampling.methods.groups.saving import GroupTimes
from assay_sampling.methods.pks.principal_kernels import PrincipalKernels

# How much of the error counters must remove to divide groups without reaching the target.
_LEAST_GAIN = 0.1


@dataclass(frozen=True)
class CounterSplit:
    """How many clusters of the counters divide groups, 1 for none, and the divisions that were judged."""

    k: int
    tried: tuple[TriedSplit, ...]


def counter_split(
    base: np.ndarray,
    clusters: Mapping[int, np.ndarray],
    judged: HeldOut,
    without: TriedSplit,
    *,
    target_error_percent: float,
    k: int | None = None,
) -> CounterSplit:
    """The number of clusters that divide groups further.

    Args:
        base: groups of kernel and size of all w launches with counters, shape (w,).
        clusters: their clusters by K, each of shape (w,).
        judged: some of these launches.
        without: groups of kernel and size, as they were judged.
        target_error_percent: held-out group error below which the fewest groups are taken.
        k: fixed number of clusters.
    """
    if k is not None:
        return CounterSplit(k, ())
    of_judged = base[judged.rows]
    error = judged.group_error_percent(of_judged)
    if error < target_error_percent:
        return CounterSplit(1, ())
    tried: list[TriedSplit] = []
    for number in (each for each in clusters if each > 1):
        code = _pairs(of_judged, clusters[number][judged.rows])
        if not _saves(code, judged.cost):
            break
        tried.append(
            replace(
                without,
                counter_groups=number,
                groups=len(np.unique(code)),
                held_out_group_error_percent=judged.group_error_percent(code),
            )
        )
        if tried[-1].held_out_group_error_percent < target_error_percent:
            return CounterSplit(number, tuple(tried))
    best = min(tried, key=lambda split: split.held_out_group_error_percent, default=without)
    if best.held_out_group_error_percent > (1 - _LEAST_GAIN) * error:
        return CounterSplit(1, tuple(tried))
    return CounterSplit(best.counter_groups, tuple(tried))


def divided(groups: KernelGroups, clusters: np.ndarray, split: CounterSplit, judged: HeldOut) -> KernelGroups:
    """Groups of n launches divided by their clusters, shape (n,); the group that kernels share stays whole.

    ``judged`` are some of these launches.
    """
    shared = groups.shared
    apart = -1 if shared is None else shared.group

    def code(base: np.ndarray, cluster: np.ndarray) -> np.ndarray:
        return _pairs(base, np.where(base == apart, 0, cluster))

    labels = numbered(groups.labels, clusters, code)
    if shared is not None:
        shared = replace(shared, group=int(labels[int(np.argmax(groups.labels == shared.group))]))
    chosen = replace(
        groups.chosen,
        counter_groups=split.k,
        groups=int(counts_by(labels).size),
        held_out_group_error_percent=judged.group_error_percent(labels[judged.rows]),
    )
    return replace(groups, labels=labels, tried=(*groups.tried, *split.tried, chosen), shared=shared)


def groups_within_kernels(
    groups: KernelGroups,
    principal: PrincipalKernels,
    cost: np.ndarray,
    *,
    target_error_percent: float,
    k: int | None,
    seed: int,
) -> KernelGroups:
    """The groups of launches that all have counters: kernel and size, divided by counters where that helps.

    ``cost``, shape (n,), is the one that ``groups`` were divided by; ``principal`` has the clusters of the
    same launches.
    """
    judged = HeldOut.of(cost, groups.cell, seed)
    split = counter_split(
        groups.labels,
        principal.labels_by_k,
        judged,
        groups.chosen,
        target_error_percent=target_error_percent,
        k=k,
    )
    if split.k == 1:
        return replace(groups, tried=(*groups.tried[:-1], *split.tried, groups.chosen))
    return divided(groups, principal.labels_by_k[split.k], split, judged)


def _saves(code: np.ndarray, cost: np.ndarray) -> bool:
    return GroupTimes.of(np.unique(code, return_inverse=True)[1], cost).saves()


def _pairs(base: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    pairs: np.ndarray = base.astype(np.int64) << 32 | cluster.astype(np.int64)
    return pairs
