"""The space that launches are grouped in: standardised counters on their principal components.

Source: Principal Kernel Analysis as its artifact does it: StandardScaler on the raw counters, then PCA
that keeps the smallest number of components with more than 99.95 % of the variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay_sampling.counters import require_counters
from assay_sampling.errors import CounterUnavailableError
from assay_sampling.launches import Launches

EXPLAINED_VARIANCE = 0.9995


def feature_matrix(launches: Launches, features: Sequence[str]) -> np.ndarray:
    """Counters of every launch, shape (n, f), in their base units.

    Raises CounterUnavailableError naming the source and the counter where one was not measured for
    every launch or is not a finite number.
    """
    source = ", ".join(launches.sources) or "launches"
    require_counters(launches.table, features, source)
    matrix = np.empty((len(launches), len(features)))
    for index, name in enumerate(features):
        matrix[:, index] = launches.column(name)
        finite = np.isfinite(matrix[:, index])
        if not finite.all():
            row = int(np.argmin(finite))
            raise CounterUnavailableError(
                source,
                f"the counter {name!r} is {matrix[row, index]} for launch "
                f"{launches.table['launch'][row].as_py()}",
                "profile that launch again, or choose features without this counter",
            )
    return matrix


@dataclass(frozen=True)
class FeatureSpace:
    """A standardisation and the principal axes after it.

    ``magnitude``, ``mean`` and ``inverse_deviation`` have shape (f,): a feature is divided by its largest
    magnitude, less the mean, times the inverse of the population standard deviation, 0 where it is
    constant. ``axes`` has shape (c, f), c the components kept; c is 0 where all launches are equal.
    """

    magnitude: np.ndarray
    mean: np.ndarray
    inverse_deviation: np.ndarray
    axes: np.ndarray

    @property
    def components(self) -> int:
        return len(self.axes)

    def standardised(self, rows: np.ndarray) -> np.ndarray:
        """Rows (n, f) less their mean, in standard deviations."""
        scaled: np.ndarray = rows / self.magnitude
        scaled -= self.mean
        scaled *= self.inverse_deviation
        return scaled

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Rows (n, f) on the principal axes, shape (n, c)."""
        projected: np.ndarray = self.standardised(rows) @ self.axes.T
        return projected

    @classmethod
    def fit(cls, rows: np.ndarray, weights: np.ndarray) -> FeatureSpace:
        """The space of distinct rows (m, f), finite, that stand ``weights`` times each, shape (m,)."""
        magnitude = np.abs(rows).max(axis=0)
        magnitude[magnitude == 0] = 1.0
        scaled = rows / magnitude
        share = weights / weights.sum()
        mean = share @ scaled
        deviation = np.sqrt(share @ np.square(scaled - mean))
        # Rounding of the mean must not turn a constant feature into noise of unit variance.
        varies = (scaled.min(axis=0) < scaled.max(axis=0)) & (deviation > 0)
        inverse = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)
        scaled -= mean
        scaled *= inverse
        scaled *= np.sqrt(share)[:, None]
        return cls(magnitude, mean, inverse, _principal_axes(scaled))


def _principal_axes(weighted: np.ndarray) -> np.ndarray:
    """Leading right singular vectors of a centred matrix (m, f): those of its triangular factor."""
    _, singular, axes = np.linalg.svd(np.linalg.qr(weighted, mode="r"), full_matrices=False)
    variance = np.square(singular)
    total = float(variance.sum())
    if not total > 0:
        return np.empty((0, axes.shape[1]))
    explained = np.cumsum(variance / total)
    kept = min(int(np.searchsorted(explained, EXPLAINED_VARIANCE, side="right")) + 1, len(axes))
    axes = axes[:kept]
    # The sign of a singular vector is arbitrary: make the largest loading positive.
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    signed: np.ndarray = axes * np.sign(largest)
    return signed
