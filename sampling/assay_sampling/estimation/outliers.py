"""Whether drawn launches are alike: none is an outlier of its group.

Source: deleted residuals, Cook and Weisberg, Residuals and Influence in Regression, 1982, section 2.2.1;
docs/methods/target-intervals.md.
"""

from __future__ import annotations

import numpy as np

from assay_sampling.estimation.moderated_errors import LEAST_SPREAD, PRIOR_FREEDOM
from assay_sampling.estimation.student_t import t_quantile

# How often launches that are alike are taken to be not: their interval is then wider than need be.
_FALSE_OUTLIERS = 0.1


def are_alike(groups: np.ndarray, values: np.ndarray, spreads: np.ndarray) -> bool:
    """Whether none is an outlier, by the logarithms of ``values``: costs, or costs for an amount.

    Args:
        groups: 0-based, shape (r,).
        values: of the drawn launches, at least 0, shape (r,).
        spreads: groups that count, shape (g,).

    The spread that each is compared with leaves it out, and is moderated towards that of all groups. Of two
    launches nobody can tell which one is the outlier, so groups of two have none.
    """
    drawn = np.bincount(groups, minlength=len(spreads))
    inside = (spreads & (drawn >= 3))[groups]
    if not inside.any():
        return True
    logs = np.log(np.maximum(values, values[values > 0].min(initial=1.0)))
    mean = np.bincount(groups, logs, len(spreads)) / np.maximum(drawn, 1)
    off = np.square(logs - mean[groups])
    squares = np.bincount(groups, off, len(spreads))
    used = spreads & (drawn >= 2)
    pooled = float(squares[used].sum()) / float((drawn[used] - 1).sum())
    number = drawn[groups][inside].astype(np.float64)
    own = off[inside] * number / (number - 1)
    rest = np.maximum(squares[groups][inside] - own, 0)
    freedom = PRIOR_FREEDOM + number - 2
    spread = (PRIOR_FREEDOM * pooled + rest) / freedom
    limit = np.array([t_quantile(1 - _FALSE_OUTLIERS / len(number), each) for each in np.unique(freedom)])
    limits = limit[np.unique(freedom, return_inverse=True)[1]]
    return not bool((own > np.square(limits) * np.maximum(spread, LEAST_SPREAD**2)).any())
