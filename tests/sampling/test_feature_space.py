"""Standardisation and principal components: those of scikit-learn, without its traps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assay_sampling.clustering.feature_space import FeatureSpace, feature_matrix
from assay_sampling.counters.definitions import FEATURE_SETS
from assay_sampling.errors import CounterUnavailableError
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import read_launches
from tests.support.sampling.counted_launches import counted_launches, table2_launches


def fit(rows: np.ndarray) -> FeatureSpace:
    return FeatureSpace.fit(rows, np.ones(len(rows)))


@pytest.mark.parametrize("features", ["artifact12", "artifact11", "table2"])
def test_the_space_is_that_of_scikit_learn(shared_data: Path, features: str) -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    path = shared_data / "ncu" / "synthetic_v100_5000_raw_page.csv.gz"
    launches = read_launches(path, ReadOptions(synthetic=True))
    matrix = feature_matrix(launches, FEATURE_SETS[features])
    space = fit(matrix)
    scaled = preprocessing.StandardScaler().fit_transform(matrix)
    assert space.standardised(matrix) == pytest.approx(scaled, abs=1e-9)
    pca = decomposition.PCA(n_components=0.9995, svd_solver="full").fit(scaled)
    assert space.components == pca.n_components_
    theirs = pca.transform(scaled)
    signs = np.sign((space.project(matrix) * theirs).sum(axis=0))
    assert space.project(matrix) * signs == pytest.approx(theirs, abs=1e-7)
    if features == "artifact12":
        assert space.components == 9


def test_weights_are_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    rows, weights = rng.normal(size=(30, 4)), rng.integers(1, 5, 30)
    weighted, repeated = FeatureSpace.fit(rows, weights), fit(np.repeat(rows, weights, axis=0))
    assert weighted.axes == pytest.approx(repeated.axes, abs=1e-9)
    assert weighted.project(rows) == pytest.approx(repeated.project(rows), abs=1e-9)


def test_a_constant_feature_is_zero_whatever_its_mean_rounds_to() -> None:
    rows = np.stack([np.full(7, 0.1), np.arange(7.0), np.full(7, 1e12 + 0.3)], axis=1)
    space = fit(rows)
    assert space.standardised(rows)[:, [0, 2]].tolist() == [[0.0, 0.0]] * 7
    assert space.standardised(rows)[:, 1] == pytest.approx((np.arange(7) - 3) / 2)
    assert space.components == 1


def test_equal_rows_have_no_components() -> None:
    rows = np.full((4, 3), 5.0)
    assert fit(rows).components == 0
    assert fit(rows).project(rows).shape == (4, 0)
    assert fit(rows[:1]).components == 0


def test_counters_of_any_size_are_finite_in_the_space() -> None:
    rows = np.array([[1e300, 1e12, 5e-324], [2e300, 1e12 + 1, 0.0], [0.0, 1e12 + 2, 0.0]])
    placed = fit(rows).project(rows)
    assert np.isfinite(placed).all()
    assert np.square(fit(rows).standardised(rows)).mean(axis=0) == pytest.approx(np.ones(3))


def test_more_features_than_rows() -> None:
    rows = np.array([[1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 0.0, 9.0]])
    assert fit(rows).components == 1
    assert np.abs(fit(rows).project(rows)[:, 0]) == pytest.approx([2.0, 2.0])


def test_a_counter_that_was_not_measured_is_named_with_its_file() -> None:
    launches = counted_launches({"instructions": [1.0, 2.0], "global_load_instructions_sass": [1.0, 2.0]})
    with pytest.raises(CounterUnavailableError) as caught:
        feature_matrix(launches, ("instructions", "global_load_instructions"))
    assert caught.value.subject == "counted.csv"
    assert "'global_load_instructions' was not measured" in caught.value.cause
    assert "'global_load_instructions_sass' was measured, but" in caught.value.remedy


@pytest.mark.parametrize(("value", "shown"), [(float("inf"), "inf"), (float("nan"), "nan")])
def test_a_counter_that_is_no_number_is_named_with_its_launch(value: float, shown: str) -> None:
    launches = table2_launches(np.array([[1.0], [2.0], [value]]), [1.0, 2.0, 3.0])
    with pytest.raises(CounterUnavailableError, match="global_load_sectors") as caught:
        feature_matrix(launches, FEATURE_SETS["table2"])
    assert "launch 2" in caught.value.cause
    assert shown in caught.value.cause.lower()
