"""How much longer a launch takes because slots of the GPU stay empty at its end, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.projection.launch_end import end_share


def share(blocks: list[list[int]], wave_ctas: int) -> float:
    """Of a launch whose blocks have warps of so many instructions."""
    warps = [each for block in blocks for each in block]
    return end_share(
        np.array(warps, np.int64), np.array([len(block) for block in blocks], np.int64), wave_ctas
    )


def test_of_blocks_that_are_alike_the_last_wave_takes_a_fifth_longer() -> None:
    assert share([[100]] * 100, 10) == pytest.approx(0.2 * 10 / 100)
    assert share([[50, 100]] * 40, 10) == pytest.approx(0.2 * 10 / 40)


def test_a_last_wave_that_is_not_full_still_executes_alike() -> None:
    # The last of 35 blocks start at 3,000 of 3,500 units of time: five warps, each at twice its share.
    assert share([[100]] * 35, 10) == pytest.approx(0.2 * 10 / 35)
    # Two warps run at 4 / 10 each, so at 0.8 of the throughput: 200 instructions take 250 units.
    assert share([[100]] * 12, 10) == pytest.approx(max(50 / 1200, 0.2 * 10 / 12))


def test_a_long_last_block_runs_alone_at_four_times_its_share() -> None:
    # 1,000 units for each of two waves, then 900 instructions of one warp at 0.4: 2,250 units.
    assert share([[100]] * 19 + [[1000]], 10) == pytest.approx(4250 / 2900 - 1)
    # Begun first, it is done in less time than the others take.
    assert share([[1000]] + [[100]] * 190, 10) == pytest.approx(0.2 * 1000 / 20_000)


def test_a_block_ends_with_its_longest_warp() -> None:
    # Two warps a block, two blocks at once. From 200 on one warp of four runs, at its fastest: 1 an unit.
    assert share([[100, 100]] * 3 + [[100, 1000]], 2) == pytest.approx(max(0.0, 0.2 * 1300 / 1700))
    # Of eight warps one alone runs at half of the throughput: 900 instructions take 1,800 units.
    assert share([[100] * 4] * 3 + [[100] * 3 + [1000]], 2) == pytest.approx(900 / 2500)


def test_slots_that_are_never_full_do_not_count_as_the_end() -> None:
    # One block at once, of whose eight warps one is left at half of the throughput, as in the others.
    alone = [100] * 7 + [1000]
    assert share([alone] * 3, 1) == pytest.approx(0.2 / 3)


@given(
    blocks=st.lists(st.lists(st.integers(0, 500), min_size=1, max_size=4), min_size=1, max_size=60),
    wave_ctas=st.integers(1, 20),
    factor=st.integers(2, 9),
)
def test_it_is_a_share_which_the_length_of_all_blocks_does_not_change(
    blocks: list[list[int]], wave_ctas: int, factor: int
) -> None:
    found = share(blocks, wave_ctas)
    # One warp alone has at least 4 / (all warps of a wave) of the throughput.
    assert 0.0 <= found <= max(0.2, wave_ctas * max(map(len, blocks)) / 4)
    longer = [[factor * each for each in block] for block in blocks]
    assert share(longer, wave_ctas) == pytest.approx(found, rel=1e-9, abs=1e-12)
