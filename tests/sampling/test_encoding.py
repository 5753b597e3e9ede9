"""Distinct signatures and their encoding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.labelling import encoding
from assay_sampling.labelling.encoding import MOST_FEATURES, Encoder
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.signatures import distinct_signatures
from tests.support.sampling.made_launches import made_launches


def test_signatures_are_numbered_in_order_of_first_appearance() -> None:
    launches = made_launches(
        ["b", "a", "b", "a", "b"],
        grid_x=[1, 1, 1, 2, 1],
        grid_y=[None, 3, None, 3, 3],
        nvtx_id=["x", None, "x", None, "x"],
    )
    signatures = distinct_signatures(launches)
    assert signatures.inverse.tolist() == [0, 1, 0, 2, 3]
    assert signatures.inverse.dtype == np.int32
    assert signatures.first_rows.tolist() == [0, 1, 3, 4]
    assert signatures.columns["grid_x"].tolist() == [1, 1, 2, 1]
    assert signatures.columns["grid_y"].tolist() == [-1, 3, 3, 3]
    assert (signatures.columns["nvtx_id"] == 0).tolist() == [False, True, True, False]
    assert signatures.columns["operator_id"].tolist() == [0, 0, 0, 0]


def test_every_part_of_a_signature_tells_launches_apart() -> None:
    parts: dict[str, list[Any]] = {
        **{f"{what}_{axis}": [1, 2] for what in ("grid", "block") for axis in "xyz"},
        "nvtx_id": ["a", "b"],
        "operator_id": ["a", None],
        "input_shapes_id": ["[[1]]", "[[2]]"],
    }
    for name, values in parts.items():
        assert len(distinct_signatures(made_launches(["k", "k"], **{name: values}))) == 2, name
    assert len(distinct_signatures(made_launches(["k", "l"]))) == 2
    assert len(distinct_signatures(made_launches(["k", "k"], duration_ns=[1, 2], stream=[1, 2]))) == 1


def test_no_launches_have_no_signatures() -> None:
    assert len(distinct_signatures(made_launches([]))) == 0


rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(1, 2)), min_size=1)


@settings(deadline=None)
@given(rows, st.integers(1, 64))
def test_groups_are_exact_even_where_hashes_collide(made: list[tuple[str, int, int]], hash_bits: int) -> None:
    launches = made_launches(
        [kernel for kernel, _, _ in made],
        grid_x=[x for _, x, _ in made],
        block_y=[y for _, _, y in made],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "hash_rows", lambda columns: _few_bits(columns, hash_bits))
        signatures = distinct_signatures(launches)
    first = {row: made.index(row) for row in made}
    assert [int(signatures.first_rows[i]) for i in signatures.inverse] == [first[row] for row in made]
    assert signatures.first_rows.tolist() == sorted(set(first.values()))


def _few_bits(columns: list[np.ndarray], bits: int) -> np.ndarray:
    from assay_sampling.launches.row_hash import hash_rows  # noqa: PLC0415 - the true one, beneath the patch

    return hash_rows(columns) >> np.uint64(64 - bits)


def fitted(launches: Launches, seed: int = 0) -> tuple[Encoder, np.ndarray]:
    signatures = distinct_signatures(launches)
    encoder = Encoder.fit(signatures.columns, launches.names, seed=seed)
    return encoder, encoder.transform(signatures.columns)


def test_kernels_and_launch_shapes_are_indicators_and_sizes_are_logarithms() -> None:
    window = made_launches(["a", "b", "b"], grid_x=[8, 8, 4], block_x=[32, 32, 64], block_y=[1, 2, None])
    encoder, features = fitted(window)
    assert features.shape == (3, encoder.width) == (3, 2 + 3 + 7)
    assert features.dtype == np.float32
    assert features[:, :2].sum(axis=0).tolist() in ([1, 2], [2, 1])
    assert features[:, 2:5].sum(axis=0).tolist() == [1, 1, 1]
    assert features[:, 2:5].sum(axis=1).tolist() == [1, 1, 1]
    assert features[:, 5:].tolist() == [
        [3, 0, 0, 5, 0, 0, 8],
        [3, 0, 0, 5, 1, 0, 9],
        [2, 0, 0, 6, 0, 0, 8],
    ]
    assert encoder.numeric.tolist() == [False] * 5 + [True] * 7


def test_what_the_window_lacks_has_no_indicator() -> None:
    encoder, _ = fitted(made_launches(["a", "b"]))
    rest = made_launches(["a", "c"], grid_x=[2, 1], operator_id=["x", "y"])
    features = encoder.transform(distinct_signatures(rest).columns, rest.names)
    assert features[:, :2].sum(axis=1).tolist() == [1, 0]
    assert features[:, 2:4].sum(axis=1).tolist() == [0, 0]
    assert features.shape == (2, 2 + 2 + 7)


def test_more_kernels_than_columns_are_hashed() -> None:
    count = 1_000
    window = made_launches([f"kernel {i}" for i in range(count)])
    _, features = fitted(window)
    assert features.shape == (count, 256 + 512 + 7)
    assert features[:, :256].sum(axis=1).tolist() == [1] * count
    assert (features[:, :256].sum(axis=0) > 0).sum() > 200
    assert features[:, 256:768].sum() == 512
    other_seed = fitted(window, seed=1)[1]
    assert not np.array_equal(features[:, :256], other_seed[:, :256])


def test_launch_shapes_with_most_launches_get_the_indicators() -> None:
    shapes = np.arange(1, 601)
    signatures = distinct_signatures(made_launches(["k"] * 600, grid_x=shapes))
    names = made_launches(["k"]).names
    encoder = Encoder.fit(signatures.columns, names, weights=shapes.astype(float))
    marked = encoder.transform(signatures.columns)[:, 1:513].sum(axis=1)
    assert marked.tolist() == [0] * 88 + [1] * 512


def test_texts_become_features_only_where_the_window_has_them() -> None:
    columns = {
        "nvtx_id": ["step 1/conv 2", "step 7/conv 2", "step 1/pool"],
        "operator_id": ["aten::conv2d", "aten::conv2d", "aten::max_pool2d"],
        "input_shapes_id": ["[[8, 3, 32, 64], [], [16]]", "[]", "[[8, 3, 32, 64], [], [16]]"],
    }
    launches = made_launches(["k"] * 3, **columns)
    encoder, features = fitted(launches)
    nvtx = features[:, 9:73]
    operator = features[:, 73:105]
    inputs = features[:, 105:]
    assert encoder.width == 105 + 13 + 16 <= MOST_FEATURES
    # Two passes over one layer are nearer to one another than two layers in one pass.
    assert np.abs(nvtx[0] - nvtx[1]).sum() < np.abs(nvtx[0] - nvtx[2]).sum()
    assert np.array_equal(operator[0], operator[1])
    assert not np.array_equal(operator[0], operator[2])
    log_elements = np.log2(8 * 3 * 32 * 64)
    expected = [2, 4, log_elements, 3, np.log2(3), 5, 6, 1, 4, 4, 0, 0, 0]
    assert inputs[0, :13] == pytest.approx(expected)
    assert inputs[1, :13].tolist() == [0] * 13
    assert encoder.numeric[105:].tolist() == [True] * 13 + [False] * 16


def test_encoding_is_the_same_in_every_recording() -> None:
    texts = {"nvtx_id": ["x/y", "z"], "input_shapes_id": ["[[2]]", "[[4]]"]}
    _, features = fitted(made_launches(["a", "b"], **texts))
    turned = {name: values[::-1] for name, values in texts.items()}
    _, again = fitted(made_launches(["b", "a"], **turned))
    assert np.array_equal(features, again[::-1])


def test_a_hostile_input_shape_stays_finite() -> None:
    _, features = fitted(made_launches(["k"], input_shapes_id=["[[" + "9" * 10_000 + ", 0]]"]))
    assert np.isfinite(features).all()
