"""TBPoint within a launch: the state machine by hand, and replayed on made block times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.projection.tbpoint.regions import NO_REGION
from assay_sampling.projection.tbpoint.replay import sample_launch
from assay_sampling.projection.tbpoint.sampling import RegionSampler


def scheduled(durations: list[int], slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of blocks dispatched in order, each into the slot that is free first."""
    free = np.zeros(slots)
    starts = np.empty(len(durations))
    for block, duration in enumerate(durations):
        slot = int(free.argmin())
        starts[block] = free[slot]
        free[slot] += duration
    return starts, starts + np.array(durations)


def test_the_example_of_figure_7() -> None:
    # Two blocks resident at once; block 0 is in no region, the others in one, the last in another.
    sampler = RegionSampler(np.array([NO_REGION, 0, 0, 0, 0, 0, 0, 0, 1]))
    assert sampler.dispatch(0, 0, 0)  # sampling unit 1: not all resident blocks are of the region
    assert sampler.dispatch(1, 0, 0)
    sampler.retire(0, 10, 200)
    assert sampler.dispatch(2, 10, 200)  # sampling unit 2: the region is entered
    sampler.retire(1, 12, 240)
    assert sampler.dispatch(3, 12, 240)
    sampler.retire(2, 20, 400)  # IPC 20
    assert sampler.dispatch(4, 20, 400)  # sampling unit 3
    sampler.retire(3, 22, 438)
    assert sampler.dispatch(5, 22, 438)
    sampler.retire(4, 30, 590)  # IPC 19: less than 10 % away
    assert not sampler.dispatch(6, 30, 590)
    assert not sampler.dispatch(7, 30, 590)
    assert sampler.dispatch(8, 30, 590)  # of another region
    assert sampler.skipped == [6, 7]
    assert sampler.skipped_ipc == [19.0, 19.0]


def test_the_warming_period_goes_on_until_two_units_agree() -> None:
    sampler = RegionSampler(np.zeros(9, int))
    cycle = executed = 0
    # IPC 10, 9, 9.9, 9.5: 9 is 10 % below 10, which is not less; 9.9 is 10 % above 9, likewise.
    for block, ipc in enumerate([1000, 900, 990, 950]):
        assert sampler.dispatch(block, cycle, executed)
        cycle, executed = cycle + 100, executed + ipc
        sampler.retire(block, cycle, executed)
    assert not sampler.dispatch(4, cycle, executed)
    assert sampler.skipped_ipc == [9.5]


def test_a_unit_that_began_before_the_region_does_not_count() -> None:
    sampler = RegionSampler(np.array([NO_REGION, 0, 0, 0, 0]))
    sampler.dispatch(0, 0, 0)
    sampler.dispatch(1, 0, 0)
    sampler.retire(0, 10, 100)
    sampler.dispatch(2, 10, 100)  # entered; the unit of block 2
    sampler.retire(2, 20, 200)
    sampler.dispatch(3, 20, 200)
    sampler.retire(3, 30, 300)
    assert not sampler.dispatch(4, 30, 300)


def test_a_region_is_not_entered_while_another_block_is_resident() -> None:
    sampler = RegionSampler(np.array([0, NO_REGION, *[0] * 9]))
    for block in (0, 1):
        sampler.dispatch(block, 0, 0)
    sampler.retire(0, 10, 100)
    for unit in range(2, 6):  # units of equal IPC, beside the block of no region
        assert sampler.dispatch(unit, 10 * (unit - 1), 100 * (unit - 1))
        sampler.retire(unit, 10 * unit, 100 * unit)
    sampler.retire(1, 50, 500)
    for unit in (6, 7):
        assert sampler.dispatch(unit, 10 * (unit - 1), 100 * (unit - 1))
        sampler.retire(unit, 10 * unit, 100 * unit)
    assert not sampler.dispatch(8, 70, 700)


def test_equal_blocks_are_projected_exactly() -> None:
    starts, ends = scheduled([10] * 40, 4)
    sample = sample_launch(starts, ends, np.full(40, 7.0), np.zeros(40, int))
    assert sample.launch_cycles == 100
    # Two waves warm up; the third would begin at cycle 20, with nothing in flight.
    assert sample.simulated_cycles == 20
    assert sample.skipped_blocks.tolist() == list(range(8, 40))
    assert sample.skipped_instructions_share == pytest.approx(0.8)
    assert sample.projected_cycles == pytest.approx(100)
    assert sample.signed_error_percent == pytest.approx(0)
    assert sample.speedup == 5


def test_what_is_in_flight_drains_where_a_region_is_skipped_to_the_end() -> None:
    # Slots out of step: at cycle 20 block 4 retires, and three others have 2, 4 and 6 cycles left.
    starts = np.array([0, 2, 4, 6, 10, 12, 14, 16, 20, 22, 24, 26], float)
    sample = sample_launch(starts, starts + 10, np.full(12, 10.0), np.zeros(12, int), warm_up_difference=0.5)
    assert sample.skipped_blocks.tolist() == [8, 9, 10, 11]
    assert sample.simulated_cycles == 26
    # Four blocks of 10 instructions at the last unit's 4 in a cycle: 10 cycles.
    assert sample.projected_cycles == pytest.approx(36)
    assert sample.launch_cycles == 36


def test_a_region_is_left_at_a_block_of_another() -> None:
    starts, ends = scheduled([10] * 16 + [20] * 16, 4)
    region = np.repeat([0, 1], 16)
    sample = sample_launch(starts, ends, np.full(32, 10.0), region)
    # Region 0: cycles 0 to 20 simulated, 20 to 40 cut out. Region 1: entered at once, 40 to 80 simulated.
    assert sample.skipped_blocks.tolist() == [*range(8, 16), *range(24, 32)]
    assert sample.simulated_cycles == 20 + 40
    assert sample.projected_cycles == pytest.approx(120)
    assert sample.launch_cycles == 120


def test_those_in_flight_stand_for_those_that_were_when_the_clock_stopped() -> None:
    # Region 1 can only be entered once the block of region 0 that is still in flight has retired.
    starts, ends = scheduled([10, 15] * 8 + [10] * 12, 2)
    region = np.repeat([0, 1], [16, 12])
    sample = sample_launch(starts, ends, np.array([10, 15] * 8 + [10] * 12), region, warm_up_difference=0.3)
    first = starts[16]
    alone = ends[:16].max()
    assert alone > first
    skipped = sample.skipped_blocks
    assert (region[skipped] == 0).sum() > 4
    # Two whole units after the region is entered, and only then does anything of it go.
    assert starts[skipped[region[skipped] == 1]].min() >= alone + 10
    assert sample.simulated_cycles < sample.launch_cycles
    assert abs(sample.signed_error_percent) < 15


def out_of_step(last_end: int, *more: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two slots, half a block apart: eight blocks of region 0, the last of which ends late, then region 1."""
    times = [(0, 10), (5, 15), (10, 20), (15, 25), (20, 30), (25, 35), (30, 40), (35, last_end), *more]
    starts, ends = np.array(times).T
    return starts, ends, np.repeat([0, 1], [8, len(more)])


def test_those_in_flight_when_the_clock_stopped_run_on_when_it_does() -> None:
    # At 20 the clock stops with block 3 in flight; at 40 it goes on, and block 7 is in flight for it.
    starts, ends, region = out_of_step(235, (40, 50), (50, 60), (60, 70), (70, 80))
    sample = sample_launch(starts, ends, np.full(12, 10.0), region, warm_up_difference=0.5)
    # Region 1 is never entered, for a block of region 0 is in flight.
    assert sample.skipped_blocks.tolist() == [4, 5, 6, 7]
    assert sample.simulated_cycles == 235 - 20
    assert sample.projected_cycles == pytest.approx(235)


def test_a_region_is_entered_when_the_last_of_another_has_gone() -> None:
    more = [(40, 50), (50, 60), (55, 65), (60, 70), (65, 75), (70, 80), (75, 85), (80, 90)]
    starts, ends, region = out_of_step(55, *more)
    sample = sample_launch(starts, ends, np.full(16, 10.0), region, warm_up_difference=0.5)
    # Entered at 55; units from 60 to 70 and to 80; block 14 drains to 85.
    assert sample.skipped_blocks.tolist() == [4, 5, 6, 7, 15]
    assert sample.simulated_cycles == 85 - 20


def test_a_place_that_was_free_when_the_clock_stopped_is_free_when_it_goes_on() -> None:
    # All of a wave retire at once, so nothing is in flight from 20 to 40, whatever the recording shows.
    starts = np.array([0, 0, 10, 10, 20, 20, 30, 30, 40, 50, 60, 70])
    ends = np.array([10, 10, 20, 20, 30, 30, 40, 230, 50, 60, 70, 80])
    region = np.repeat([0, NO_REGION], [8, 4])
    sample = sample_launch(starts, ends, np.full(12, 10.0), region)
    assert sample.skipped_blocks.tolist() == [4, 5, 6, 7]
    assert sample.simulated_cycles == 80 - 20


def test_two_regions_are_skipped_one_after_the_other() -> None:
    # One slot: region 1 is entered as soon as block 3 has gone, and skipped from 60 on.
    starts = np.array([0, 10, 20, 30, 40, 50, 60, 70])
    ends = np.array([10, 20, 30, 40, 50, 60, 70, 80])
    sample = sample_launch(starts, ends, np.full(8, 10.0), np.repeat([0, 1], 4))
    assert sample.skipped_blocks.tolist() == [2, 3, 6, 7]
    assert sample.simulated_cycles == 40
    assert sample.projected_cycles == 80


def test_blocks_in_no_region_are_simulated() -> None:
    starts, ends = scheduled([10] * 40, 4)
    sample = sample_launch(starts, ends, np.full(40, 7.0), np.full(40, NO_REGION))
    assert len(sample.skipped_blocks) == 0
    assert sample.simulated_cycles == sample.projected_cycles == sample.launch_cycles == 100
    assert sample.skipped_instructions_share == 0


def test_one_wave_has_nothing_to_skip() -> None:
    starts, ends = scheduled([10] * 4, 4)
    assert sample_launch(starts, ends, np.full(4, 7.0), np.zeros(4, int)).speedup == 1
    one = sample_launch(np.array([5]), np.array([8]), np.array([1e12]), np.array([0]))
    assert (one.launch_cycles, one.projected_cycles, one.speedup) == (3, 3, 1)


def test_instructions_by_the_simulator_s_own_count() -> None:
    starts, ends = scheduled([10] * 40, 4)
    # As if the second wave had run twice as fast: units 1 and 2 differ, 2 and 3 do not.
    counted = (np.array([0.0, 10.0, 100.0]), np.array([0.0, 28.0, 28.0 + 9 * 56.0]))
    sample = sample_launch(starts, ends, np.full(40, 7.0), np.zeros(40, int), executed=counted)
    assert sample.skipped_blocks.tolist() == list(range(12, 40))
    assert sample.projected_cycles == pytest.approx(30 + 28 * 7 / 5.6)


def test_what_a_replay_refuses() -> None:
    ok = np.array([0.0, 0.0]), np.array([4.0, 5.0]), np.array([1.0, 1.0]), np.array([0, 0])
    assert sample_launch(*ok).launch_cycles == 5
    with pytest.raises(ParameterError, match=r"different lengths: \[1, 2\]"):
        sample_launch(ok[0][:1], *ok[1:])
    with pytest.raises(RefusedError, match="no thread blocks"):
        sample_launch(*(column[:0] for column in ok))
    for end in (0.0, np.nan):
        with pytest.raises(RefusedError, match="block 1 does not end after it starts"):
            sample_launch(ok[0], np.array([4.0, end]), *ok[2:])
    for work in ([0.0, 0.0], [1.0, -1.0], [1.0, np.nan], [1.0, np.inf]):
        with pytest.raises(RefusedError, match="no instructions"):
            sample_launch(*ok[:2], np.array(work), ok[3])


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9), st.integers(-1, 2)), min_size=1, max_size=80),
    st.integers(1, 6),
)
@settings(max_examples=200, deadline=None)
def test_what_holds_for_every_launch(blocks: list[tuple[int, int, int]], slots: int) -> None:
    durations, work, region = (list(column) for column in zip(*blocks, strict=True))
    region = sorted(region, key=lambda r: (r + 2) % 4)  # regions are runs of blocks
    starts, ends = scheduled(durations, slots)
    sample = sample_launch(starts, ends, np.array(work), np.array(region))
    assert sample.launch_cycles == ends.max()
    assert 0 < sample.simulated_cycles <= sample.launch_cycles
    assert sample.projected_cycles >= sample.simulated_cycles
    if not len(sample.skipped_blocks):
        assert sample.projected_cycles == sample.launch_cycles
    for number in set(region):
        of_region = np.flatnonzero(np.array(region) == number)
        skipped = np.intersect1d(of_region, sample.skipped_blocks)
        if number == NO_REGION:
            assert not len(skipped)
        elif len(skipped):
            # At least two units before, and from there to the region's end.
            assert np.array_equal(skipped, of_region[-len(skipped) :])
            assert len(of_region) - len(skipped) >= 2
