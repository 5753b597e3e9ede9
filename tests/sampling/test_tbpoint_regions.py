"""Occupancy, epochs and homogeneous regions of one launch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.projection.tbpoint.occupancy import SM_LIMITS, blocks_per_sm, limits_of, resident_blocks
from assay_sampling.projection.tbpoint.regions import NO_REGION, epochs_of, regions_of

VOLTA = SM_LIMITS["7.0"]


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (256, 16, 0, 8),  # 64 warps
        (32, 16, 0, 32),  # 32 blocks
        (128, 24, 0, 16),
        (256, 33, 0, 6),  # 33 registers take 40: 51 warps, 6 blocks of 8
        (33, 255, 0, 4),  # two warps of 8,192 registers each: 8 warps
        (64, 0, 40_000, 2),  # 96 KiB
        (64, 0, 48 << 10, 2),
        (64, 0, (48 << 10) + 1, 1),
    ],
)
def test_blocks_on_an_sm(threads: int, registers: int, shared: int, blocks: int) -> None:
    shape = {"block_threads": threads, "registers_per_thread": registers, "shared_memory_bytes": shared}
    assert blocks_per_sm(VOLTA, **shape) == blocks
    assert resident_blocks(VOLTA, 80, **shape) == 80 * blocks


def test_later_systems_keep_a_kibibyte_of_each_block() -> None:
    shape = {"block_threads": 32, "registers_per_thread": 0, "shared_memory_bytes": 81 << 10}
    assert blocks_per_sm(limits_of("8.0"), **shape) == 2  # 2 x 82 KiB = 164 KiB
    shape["shared_memory_bytes"] += 1
    assert blocks_per_sm(limits_of("8.0"), **shape) == 1


def test_what_occupancy_refuses() -> None:
    shape = {"block_threads": 64, "registers_per_thread": 0, "shared_memory_bytes": 0}
    with pytest.raises(RefusedError, match=r"a block of 64 threads .* 98,305 bytes .* does not fit"):
        blocks_per_sm(VOLTA, **{**shape, "shared_memory_bytes": (96 << 10) + 1})
    with pytest.raises(ParameterError, match="at least one thread"):
        blocks_per_sm(VOLTA, **{**shape, "block_threads": 0})
    with pytest.raises(ParameterError, match="0 SMs"):
        resident_blocks(VOLTA, 0, **shape)
    with pytest.raises(ParameterError, match=r"'6.1' are unknown; use one of 7.0, 7.5"):
        limits_of("6.1")


def test_the_example_of_figure_6() -> None:
    # Eight epochs of ten blocks; the first four have one stall probability, the rest another. Outliers in the
    # third and the fourth: one block of ten with five times the instructions.
    instructions = np.full(80, 100.0)
    instructions[[25, 35]] = 500
    requests = np.where(np.arange(80) < 40, 0.2, 0.5) * instructions
    epochs = epochs_of(instructions, requests, 10)
    assert epochs.first_block.tolist() == list(range(0, 80, 10))
    assert epochs.stall_probability == pytest.approx([0.2] * 4 + [0.5] * 4)
    # Nine of 100 and one of 500: mean 140, deviation 120.
    assert epochs.variance_factor == pytest.approx([0, 0, 120 / 140, 120 / 140, 0, 0, 0, 0])
    regions = regions_of(epochs, 80)
    assert regions.rows() == [
        {"region": 0, "first_block": 0, "last_block": 19, "cluster": 0},
        {"region": 1, "first_block": 40, "last_block": 79, "cluster": 1},
    ]
    assert regions.of_block.tolist() == [0] * 20 + [NO_REGION] * 20 + [1] * 40


def test_variance_is_of_requests_or_of_instructions() -> None:
    epochs = epochs_of(np.array([10, 10, 5, 15]), np.array([1, 3, 2, 2]), 2)
    assert epochs.variance_factor == pytest.approx([0.5, 0.5])
    assert epochs.stall_probability == pytest.approx([0.2, (2 / 5 + 2 / 15) / 2])
    assert regions_of(epochs, 4, variance_limit=0.5).of_block.tolist() == [0] * 4
    assert regions_of(epochs, 4, variance_limit=0.49).of_block.tolist() == [NO_REGION] * 4


def test_the_last_epoch_may_be_shorter() -> None:
    epochs = epochs_of(np.full(7, 10), np.arange(7), 3)
    assert epochs.first_block.tolist() == [0, 3, 6]
    assert epochs.stall_probability == pytest.approx([0.1, 0.4, 0.6])
    regions = regions_of(epochs, 7, variance_limit=9.0)
    assert [(r["first_block"], r["last_block"]) for r in regions.rows()] == [(0, 2), (3, 6)]


def test_the_threshold_is_the_largest_difference_in_a_cluster() -> None:
    epochs = epochs_of(np.full(3, 100), np.array([10, 25, 40]), 1)
    # 0.10 and 0.25 and 0.40: neighbours are 0.15 apart, the ends 0.30.
    assert len(regions_of(epochs, 3).rows()) == 2
    assert len(regions_of(epochs, 3, stall_threshold=0.31).rows()) == 1
    assert len(regions_of(epochs, 3, stall_threshold=0.14).rows()) == 3


def test_a_cluster_that_comes_back_is_a_region_of_its_own() -> None:
    epochs = epochs_of(np.full(6, 100), np.array([10, 10, 90, 90, 10, 10]), 1)
    rows = regions_of(epochs, 6).rows()
    assert [(r["first_block"], r["last_block"], r["cluster"]) for r in rows] == [
        (0, 1, 0),
        (2, 3, 1),
        (4, 5, 0),
    ]


def test_blocks_without_instructions() -> None:
    epochs = epochs_of(np.zeros(4), np.zeros(4), 2)
    assert epochs.stall_probability.tolist() == [0, 0]
    assert epochs.variance_factor.tolist() == [0, 0]
    assert regions_of(epochs, 4).of_block.tolist() == [0] * 4


def test_no_blocks_and_one() -> None:
    none = regions_of(epochs_of(np.empty(0), np.empty(0), 5), 0)
    assert none.rows() == []
    assert len(none.of_block) == 0
    one = regions_of(epochs_of(np.array([1e12]), np.array([1e11]), 5), 1)
    assert one.rows() == [{"region": 0, "first_block": 0, "last_block": 0, "cluster": 0}]


def test_what_epochs_refuse() -> None:
    with pytest.raises(ParameterError, match="instructions of 2 blocks and requests of 3"):
        epochs_of(np.ones(2), np.ones(3), 1)
    for bad in (np.nan, np.inf, -1.0):
        with pytest.raises(ParameterError, match="negative or not a number"):
            epochs_of(np.array([1.0, bad]), np.ones(2), 1)
    with pytest.raises(ParameterError, match="0 blocks are resident"):
        epochs_of(np.ones(2), np.ones(2), 0)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=60),
    st.integers(1, 9),
    st.floats(0.01, 1.0),
)
@settings(max_examples=150, deadline=None)
def test_what_holds_for_every_table(blocks: list[tuple[int, int]], resident: int, limit: float) -> None:
    instructions, requests = np.array(blocks).T
    epochs = epochs_of(instructions, requests, resident)
    regions = regions_of(epochs, len(blocks), stall_threshold=limit)
    epoch_of = np.arange(len(blocks)) // resident
    for block, region in enumerate(regions.of_block):
        alone = epochs.variance_factor[epoch_of[block]] > 0.3
        assert (region == NO_REGION) == alone
        if region != NO_REGION:
            assert regions.first_block[region] <= block <= regions.last_block[region]
    for cluster in set(regions.cluster.tolist()):
        of_cluster = np.isin(regions.of_block, np.flatnonzero(regions.cluster == cluster))
        stalls = epochs.stall_probability[epoch_of[of_cluster]]
        assert stalls.max() - stalls.min() <= limit * (1 + 1e-12)
    # Two regions that touch are of two clusters.
    touching = regions.first_block[1:] == regions.last_block[:-1] + 1
    assert (regions.cluster[1:] != regions.cluster[:-1])[touching].all()
