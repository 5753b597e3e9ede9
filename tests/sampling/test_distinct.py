"""Distinct rows: exact whatever the hash does, and in an order of their own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from assay_sampling.clustering import distinct
from assay_sampling.clustering.distinct import distinct_rows

ROWS = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 30), st.integers(1, 3)),
    elements=st.sampled_from([-1e300, -1.0, -0.0, 0.0, 5e-324, 1.0, 1.0 + 2**-52, 1e12]),
)


@given(ROWS)
def test_rows_are_rebuilt_from_their_distinct_ones(rows: np.ndarray) -> None:
    found = distinct_rows(rows)
    assert np.array_equal(rows[found.first][found.inverse], rows)
    assert len(found.first) == len(np.unique(rows + 0.0, axis=0))
    assert np.array_equal(found.counts, np.bincount(found.inverse))
    for index, first in enumerate(found.first):
        assert first == np.flatnonzero(found.inverse == index)[0]


@given(ROWS, st.randoms(use_true_random=False))
def test_the_order_depends_on_the_values_alone(rows: np.ndarray, random: object) -> None:
    order = np.random.default_rng(random.randrange(2**32)).permutation(len(rows))  # type: ignore[attr-defined]
    shuffled = rows[order]
    one, other = distinct_rows(rows), distinct_rows(shuffled)
    assert np.array_equal(rows[one.first], shuffled[other.first])
    assert np.array_equal(one.counts, other.counts)


def test_rows_that_share_a_hash_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distinct, "hash_rows", lambda columns: np.zeros(len(columns[0]), np.uint64))
    rows = np.array([[2.0, 1.0], [1.0, 1.0], [2.0, 1.0], [1.0, -0.0], [1.0, 0.0]])
    found = distinct_rows(rows)
    assert np.array_equal(rows[found.first], [[1.0, 0.0], [1.0, 1.0], [2.0, 1.0]])
    assert found.inverse.tolist() == [2, 1, 2, 0, 0]
    assert found.first.tolist() == [3, 1, 0]
    assert found.counts.tolist() == [2, 1, 2]


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).integers(0, 3, (100, 2)).astype(float)
    whole = distinct_rows(rows)
    monkeypatch.setattr(distinct, "_BLOCK_ROWS", 7)
    parts = distinct_rows(rows)
    assert np.array_equal(whole.inverse, parts.inverse)
    assert len(whole.first) == 9
