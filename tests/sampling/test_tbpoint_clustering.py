"""Complete linkage by components: the same clusters as one tree of all rows gives."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage

from assay_sampling.clustering.complete_linkage import complete_linkage
from assay_sampling.errors import MissingExtraError, ParameterError, RefusedError


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    return len(pairs) == len(set(a.tolist())) == len(set(b.tolist()))


@given(st.integers(2, 120), st.integers(1, 4), st.floats(0.02, 0.5), st.integers(0, 2**31))
@settings(max_examples=80, deadline=None)
def test_components_change_nothing(n: int, dimensions: int, limit: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.choice(random.random((n, dimensions)) * random.uniform(0.2, 3), n)
    ours = complete_linkage(rows, limit)
    distinct = np.unique(rows, axis=0)
    if len(distinct) < 2:
        assert ours.labels(limit).tolist() == [0] * n
        return
    tree = linkage(distinct, "complete")
    which = np.array([int(np.flatnonzero((distinct == row).all(axis=1))[0]) for row in rows])
    for threshold in (limit, limit / 2, limit / 20, 0.0):
        expected = fcluster(tree, threshold, "distance")[which]
        assert same_partition(ours.labels(threshold), expected)


@given(st.integers(2, 60), st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_rows_of_unlike_kind_are_clustered_apart(n: int, dimensions: int, kinds: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, kind = random.choice(random.random((n, dimensions)), n), random.integers(0, kinds, n)
    together = complete_linkage(rows, 0.5, kind=kind).labels(0.3)
    alone = np.empty(n, int)
    for number in range(kinds):
        members = np.flatnonzero(kind == number)
        if len(members):
            alone[members] = 1_000 * number + complete_linkage(rows[members], 0.5).labels(0.3)
    assert same_partition(together, alone)


def test_the_threshold_itself_still_joins() -> None:
    linked = complete_linkage(np.array([[0.0], [0.25], [1.0]]), 0.5)
    assert linked.labels(0.25).tolist() == [0, 0, 1]
    assert linked.labels(np.nextafter(0.25, 0)).tolist() == [0, 1, 2]


def test_a_chain_of_close_rows_is_no_cluster() -> None:
    rows = np.arange(5.0)[:, None] * 0.09
    labels = complete_linkage(rows, 0.1).labels(0.1)
    assert labels.tolist() in ([0, 0, 1, 1, 2], [0, 1, 1, 2, 2], [0, 0, 1, 2, 2])


def test_clusters_are_numbered_by_their_first_row() -> None:
    rows = np.array([[5.0], [0.0], [5.01], [0.0], [-3.0]])
    assert complete_linkage(rows, 0.1).labels(0.1).tolist() == [0, 1, 0, 1, 2]


def test_equal_rows_are_held_once() -> None:
    rows = np.tile(np.array([[0.0, 1.0], [0.05, 1.0]]), (50_000, 1))
    linked = complete_linkage(rows, 0.1, max_rows=2)
    assert len(linked.first) == 2
    assert np.array_equal(linked.labels(0.1), np.zeros(100_000))
    assert np.array_equal(linked.labels(0.01), np.arange(100_000) % 2)


def test_far_rows_cost_no_distances() -> None:
    # 100,000 pairs, far apart: all distances would take 300 GB.
    base = np.repeat(np.arange(200.0), 2)
    rows = np.stack([base + np.tile([0.0, 0.05], 200), np.zeros(400)], axis=1)
    assert np.array_equal(complete_linkage(rows, 0.1, max_rows=2).labels(0.1), np.repeat(np.arange(200), 2))


def test_too_many_close_rows_are_refused() -> None:
    rows = np.random.default_rng(0).random((300, 2)) * 0.1
    with pytest.raises(RefusedError) as caught:
        complete_linkage(rows, 0.1, max_rows=299, subject="file.csv")
    assert caught.value.subject == "file.csv"
    assert "300 of 300 distinct launches" in caught.value.cause
    assert "use pks" in caught.value.remedy
    assert len(complete_linkage(rows, 0.1, max_rows=300).first) == 300


def test_no_rows_and_one() -> None:
    assert complete_linkage(np.empty((0, 3)), 0.1).labels(0.1).tolist() == []
    assert complete_linkage(np.array([[1e12, -4.0]]), 0.1).labels(0.1).tolist() == [0]


@pytest.mark.parametrize("limit", [0.0, -1.0, np.nan, np.inf])
def test_limits_that_are_refused(limit: float) -> None:
    with pytest.raises(ParameterError, match="give a number above 0"):
        complete_linkage(np.ones((2, 1)), limit)


def test_a_threshold_above_the_limit_is_refused() -> None:
    linked = complete_linkage(np.ones((2, 1)), 0.1)
    for threshold in (0.11, -0.01, np.nan):
        with pytest.raises(ParameterError, match=r"from 0 to 0\.1"):
            linked.labels(threshold)


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match="analysis"):
        complete_linkage(np.array([[0.0], [0.01], [0.02]]), 0.1)
