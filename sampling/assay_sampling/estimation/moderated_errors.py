"""Standard errors of sums over groups of few launches each, with variances moderated towards a common one.

    s_g^2 = (3 x prior + freedom x own) / (3 + freedom)
    error = sqrt(sum over groups of factor x max(s_g^2 + besides, 0.01^2)),  freedom as Satterthwaite has it

Source: Smyth, Statistical Applications in Genetics and Molecular Biology 2004 (moderated variances); Cochran,
Sampling Techniques, 3rd edition, section 5.4 (Satterthwaite); docs/methods/target-intervals.md.
"""

from __future__ import annotations

import math

import numpy as np

# Launches that cost the same where they were drawn still spread by as much as a clock shows.
LEAST_SPREAD = 0.01
# The spread of all groups counts as much as so many further launches of each.
PRIOR_FREEDOM = 3.0


def pooled_variance(costs: np.ndarray, own: np.ndarray) -> float:
    """Mean of relative variances of groups by their projected ``costs``, shape (g,) each; 0 without any."""
    total = float(costs.sum())
    return float((costs * own).sum()) / total if total > 0 else 0.0


def moderated_error(
    factor: np.ndarray,
    own: np.ndarray,
    prior: float | np.ndarray,
    freedom: np.ndarray,
    besides: float | np.ndarray = 0.0,
) -> tuple[float, float]:
    """Standard error, and its degrees of freedom, at most those of the sample.

    Args:
        factor: of each group's relative variance, in the square of the cost's unit, shape (g,).
        own: relative variance of each group, shape (g,).
        prior: what each is moderated towards.
        freedom: degrees of freedom of each, 0 for one that is not known, shape (g,).
        besides: variance that adds to each.
    """
    shrunk = (PRIOR_FREEDOM * prior + freedom * own) / (PRIOR_FREEDOM + freedom)
    parts = factor * np.maximum(shrunk + besides, LEAST_SPREAD**2)
    total = float(parts.sum())
    if not total > 0:
        return 0.0, math.inf
    of_sum = 1 / float((np.square(parts / total) / (PRIOR_FREEDOM + freedom)).sum())
    # Down to a tenth: a quantile is costly, and kept.
    return math.sqrt(total), min(math.floor(10 * of_sum) / 10, float(freedom.sum()))
