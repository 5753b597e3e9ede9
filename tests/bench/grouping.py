"""PKS's sweep over K = 1..20 beside plain scikit-learn: ``KMeans(n_init=10)`` for each K on all rows.

The same standardised and projected rows go into both. The peer runs with ten seeds where its inertias are
wanted; its time is that of one seed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans

from assay_sampling.clustering.feature_space import FeatureSpace, feature_matrix
from assay_sampling.clustering.kmeans import cluster_sweep
from assay_sampling.counters.definitions import features_of
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import read_launches
from tests.bench.measure import Measurement

K_MAX = 20
PEER_SEEDS = 10
_RECORDING = "ncu/synthetic_v100_5000_raw_page.csv.gz"


def recording() -> Path:
    """The raw page of 5,000 launches beside the checkout; it need not be there."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("ASSAY_SHARED_DATA", beside)) / _RECORDING


def _recorded_rows() -> np.ndarray:
    """The recording's rows as PKS groups them: standardised counters on their principal components."""
    launches = read_launches(recording(), ReadOptions(synthetic=True))
    matrix = feature_matrix(launches, features_of("artifact12"))
    return FeatureSpace.fit(matrix, np.ones(len(matrix))).project(matrix)


def _distinct_rows(count: int) -> np.ndarray:
    """Rows of which no two are equal: groups of several widths in nine dimensions."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(30, 9))
    widths = rng.choice([0.1, 0.5, 1.0], size=(count, 1))
    return centres[rng.integers(30, size=count)] + rng.normal(size=(count, 9)) * widths


def _ours(rows: np.ndarray) -> Measurement:
    began = time.perf_counter()
    found = cluster_sweep(rows, K_MAX, seed=0)
    seconds = time.perf_counter() - began
    return Measurement(len(rows), seconds, {f"inertia_{k}": c.inertia for k, c in enumerate(found, start=1)})


def _peer(rows: np.ndarray, seeds: int) -> Measurement:
    inertias, seconds = np.empty((seeds, K_MAX)), np.empty(seeds)
    for seed in range(seeds):
        began = time.perf_counter()
        for k in range(1, K_MAX + 1):
            inertias[seed, k - 1] = KMeans(k, n_init=10, random_state=seed).fit(rows).inertia_
        seconds[seed] = time.perf_counter() - began
    median = np.median(inertias, axis=0)
    return Measurement(
        len(rows),
        float(np.median(seconds)),
        {f"inertia_{k}": float(value) for k, value in enumerate(median, start=1)},
    )


def assay_recorded(_launches: int) -> Measurement:
    """Ours on the recording's rows."""
    return _ours(_recorded_rows())


def scikit_learn_recorded(_launches: int) -> Measurement:
    """The peer on the recording's rows, seeds 0..9."""
    return _peer(_recorded_rows(), PEER_SEEDS)


def assay_distinct(launches: int) -> Measurement:
    """Ours on rows that all differ."""
    return _ours(_distinct_rows(launches))


def scikit_learn_distinct(launches: int) -> Measurement:
    """The peer on rows that all differ, seeds 0..9."""
    return _peer(_distinct_rows(launches), PEER_SEEDS)


def scikit_learn_one_seed(launches: int) -> Measurement:
    """The peer on rows that all differ, seed 0."""
    return _peer(_distinct_rows(launches), 1)
