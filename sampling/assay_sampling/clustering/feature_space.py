"""The space that launches are grouped in: standardised counters on their principal components.

Source: Principal Kernel Analysis as its artifact does it: StandardScaler on the raw counters, then PCA
that keeps the smallest number of components with more than 99.95 % of the variance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from assay_sampling.counters.missing import require_counters
from assay_sampling.errors import CounterUnavailableError
from assay_sampling.launches.in_memory import Launches

EXPLAINED_VARIANCE = 0.9995
_BLOCK_ROWS = 1 << 16


def feature_matrix(launches: Launches, features: Sequence[str], *, method: str = "") -> np.ndarray:
    """Counters of every launch, shape (n, f), in their base units, for ``method``.

    Raises CounterUnavailableError naming the source and the counters if some were not measured for every
    launch, or one is not a finite number.
    """
    require_features(launches, features, method=method)
    matrix = np.empty((len(launches), len(features)))
    for index, name in enumerate(features):
        matrix[:, index] = launches.column(name)
        finite = np.isfinite(matrix[:, index])
        if not finite.all():
            row = int(np.argmin(finite))
            raise _not_finite(launches, name, matrix[row, index], row)
    return matrix


def require_features(launches: Launches, features: Sequence[str], *, method: str = "") -> None:
    """Raise CounterUnavailableError unless every launch has the counters."""
    source = ", ".join(launches.sources) or "launches"
    require_counters(launches.table, features, source, launches.unreadable, method=method)


def feature_parts(launches: Launches, features: Sequence[str]) -> Iterator[np.ndarray]:
    """Counters of launches on disk, in parts of shape (b, f), in order; as :func:`feature_matrix`."""
    first = 0
    for columns in launches.batches(features):
        part = np.stack(columns, axis=1)
        finite = np.isfinite(part)
        if not finite.all():
            row, index = (int(each) for each in np.argwhere(~finite)[0])
            raise _not_finite(launches, features[index], part[row, index], first + row)
        first += len(part)
        yield part


def _not_finite(launches: Launches, feature: str, value: float, row: int) -> CounterUnavailableError:
    return CounterUnavailableError(
        ", ".join(launches.sources) or "launches",
        f"the counter {feature!r} is {value} for launch {launches.table['launch'][row].as_py()}",
        "profile that launch again, or choose features without this counter",
    )


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
        projected = np.empty((len(rows), self.components))
        for block in _blocks(len(rows)):
            np.matmul(self.standardised(rows[block]), self.axes.T, out=projected[block])
        return projected

    @classmethod
    def fit(cls, rows: np.ndarray, weights: np.ndarray) -> FeatureSpace:
        """The space of distinct rows (m, f), finite, which occur ``weights`` times each, shape (m,)."""
        lowest, highest = rows.min(axis=0), rows.max(axis=0)
        magnitude = np.maximum(np.abs(lowest), np.abs(highest))
        magnitude[magnitude == 0] = 1.0
        share = weights / weights.sum()
        mean, variance = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
        for block in _blocks(len(rows)):
            mean += share[block] @ (rows[block] / magnitude)
        for block in _blocks(len(rows)):
            variance += share[block] @ np.square(rows[block] / magnitude - mean)
        # Rounding of the mean must not turn a constant feature into noise of unit variance.
        varies = (lowest < highest) & (variance > 0)
        inverse = np.divide(1.0, np.sqrt(variance), out=np.zeros_like(variance), where=varies)
        space = cls(magnitude, mean, inverse, np.empty((0, rows.shape[1])))
        factor: np.ndarray = np.empty((0, rows.shape[1]))
        for block in _blocks(len(rows)):
            weighted = space.standardised(rows[block]) * np.sqrt(share[block])[:, None]
            factor = np.asarray(np.linalg.qr(np.concatenate([factor, weighted]), mode="r"))
        return replace(space, axes=_principal_axes(factor))


def _blocks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, _BLOCK_ROWS):
        yield slice(start, start + _BLOCK_ROWS)


def _principal_axes(factor: np.ndarray) -> np.ndarray:
    """Leading right singular vectors of a centred matrix (m, f), from its triangular ``factor``."""
    _, singular, axes = np.linalg.svd(factor, full_matrices=False)
    variance = np.square(singular)
    total = float(variance.sum())
    if not total > 0:
        return np.empty((0, axes.shape[1]))
    explained = np.cumsum(variance / total)
    count = min(int(np.searchsorted(explained, EXPLAINED_VARIANCE, side="right")) + 1, len(axes))
    axes = axes[:count]
    # The sign of a singular vector is arbitrary: make the largest loading positive.
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    signed: np.ndarray = axes * np.sign(largest)
    return signed
