"""K for slices of a workload that are not its beginning: by what they stand for, not by what they hold.

Slices are chosen for what is new in them, so their mixture of launches is not that of the workload, and an
error over them cancels by chance. Here each launch counts as often as the light run has its signature,

    weight = launches of its signature in the light run / launches of it in the slices

and K is the smallest whose group error, in which nothing cancels, is below the target:

    group error = 100 x sum over groups of |weight of the group x cost of its representative - weighted cost|
                  / weighted cost

Source: ours; docs/methods/two-level.md, "Which launches to profile". The paper's window, the first launches,
keeps the paper's rule. Memory: 30 bytes a launch of the light run.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from assay_sampling.methods.pks.principal_kernels import PrincipalKernels


def signature_weights(signature: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """How many launches each launch of the slices stands for, shape (w,).

    ``signature``, shape (n,), numbers the signatures of the light run; ``rows``, shape (w,), are the launches
    that the slices have.
    """
    in_light = np.bincount(signature)
    in_slices = np.bincount(signature[rows], minlength=len(in_light))
    weights: np.ndarray = (in_light / np.maximum(in_slices, 1))[signature[rows]]
    return weights


def weighted_group_errors(
    window: PrincipalKernels, cost: np.ndarray, weights: np.ndarray
) -> Mapping[int, float]:
    """The group error of each K of the sweep, in percent; ``cost`` and ``weights`` have shape (w,)."""
    return {
        k: _group_error(window.labels_by_k[k], rows, cost, weights) for k, rows in window.rows_by_k.items()
    }


def best_k(errors: Mapping[int, float], target_percent: float) -> int:
    """The smallest K with an error below the target, else the one of least error."""
    below = [k for k, error in errors.items() if error < target_percent]
    return min(below) if below else min(errors, key=lambda k: errors[k])


def _group_error(labels: np.ndarray, rows: np.ndarray, cost: np.ndarray, weights: np.ndarray) -> float:
    stands_for = np.bincount(labels, weights, len(rows))
    true = np.bincount(labels, weights * cost, len(rows))
    return 100.0 * float(np.abs(stands_for * cost[rows] - true).sum() / true.sum())
