"""Miss-rate curves against a cache that is simulated access by access, and against Accel-Sim's own L2."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.scale_model.miss_rate_curve import (
    StackDistances,
    TraceAccesses,
    exact_distances,
    sector_distances,
    stack_distances,
)
from tests.support.sampling.accel_sim_traces import EXIT, block_text, write_trace


def simulated_misses(sectors: list[int], sectors_per_line: int, capacity: int) -> int:
    """An LRU cache of lines, looked at access by access."""
    cache: OrderedDict[int, set[int]] = OrderedDict()
    misses = 0
    for sector in sectors:
        line = sector // sectors_per_line
        present = cache.pop(line, set())
        misses += sector not in present
        cache[line] = present | {sector}
        if len(cache) > capacity:
            cache.popitem(last=False)
    return misses


def array(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint64)


def test_distances_of_a_hand_made_string() -> None:
    # a b c b a a d a: b again after c; a again after b, c; a at once; a again after d.
    assert exact_distances(array([1, 2, 3, 2, 1, 1, 4, 1])).tolist() == [-1, -1, -1, 1, 2, 0, -1, 1]
    assert exact_distances(array([])).tolist() == []
    # Sectors 0 and 1 are of one line, 8 of another. Sector 1 is new though its line is there.
    assert sector_distances(array([0, 1, 8, 0, 1]), 4).tolist() == [-1, -1, -1, 1, 1]


accesses = st.lists(st.integers(0, 25), max_size=120)


@given(sectors=accesses, sectors_per_line=st.sampled_from([1, 2, 4]), capacity=st.integers(1, 30))
def test_misses_are_those_of_a_simulated_cache(
    sectors: list[int], sectors_per_line: int, capacity: int
) -> None:
    found = stack_distances(iter([array(sectors)]), sectors_per_line=sectors_per_line)
    assert found.misses([capacity]).tolist() == [simulated_misses(sectors, sectors_per_line, capacity)]
    assert found.first_touches == len(set(sectors))
    assert found.accesses == len(sectors)


@given(sectors=accesses, cut=st.integers(0, 120))
def test_how_the_stream_is_cut_does_not_matter(sectors: list[int], cut: int) -> None:
    whole = stack_distances(iter([array(sectors)]))
    parts = stack_distances(iter([array(sectors[:cut]), array(sectors[cut:])]))
    assert parts.distance.tolist() == whole.distance.tolist()


def nested(count: int) -> np.ndarray:
    """Lines of three nested working sets, 1,000 to 40,000 lines, as GPUs' tables are."""
    rng = np.random.default_rng(3)
    return rng.integers(0, rng.choice([1_000, 6_000, 40_000], count)).astype(np.uint64)


@pytest.mark.parametrize("sectors_per_line", [1, 4])
def test_a_sample_of_lines_gives_nearly_the_exact_curve(sectors_per_line: int) -> None:
    lines = nested(200_000)
    capacities = np.array([500, 1000, 3000, 8000, 20_000]) / sectors_per_line
    exact = stack_distances(iter([lines]), sectors_per_line=sectors_per_line).misses(capacities)

    def errors(rate: float) -> np.ndarray:
        """Error of the miss ratio for each seed and capacity."""
        found = [
            stack_distances(iter([lines]), sectors_per_line=sectors_per_line, sampling_rate=rate, seed=seed)
            for seed in range(8)
        ]
        assert all(sampled.accesses == len(lines) for sampled in found)
        assert found[0].sampling_rate == pytest.approx(rate, abs=1e-7)
        return np.array([(sampled.misses(capacities) - exact) / len(lines) for sampled in found])

    few, many = errors(0.05), errors(0.4)
    assert np.abs(few).mean() < 0.03
    assert np.abs(many).mean() < 0.01
    # What is left is noise of which lines were chosen, not a shift of the curve.
    assert np.abs(many.mean(axis=0)).max() < 0.01


def test_a_hot_line_that_is_left_out_shifts_a_sample_by_at_most_its_share() -> None:
    rng = np.random.default_rng(5)
    lines = rng.integers(10, 20_000, 100_000).astype(np.uint64)
    lines[rng.random(len(lines)) < 0.1] = 1
    exact = stack_distances(iter([lines])).misses([15_000])[0]
    for seed in range(10):
        found = stack_distances(iter([lines]), sampling_rate=0.2, seed=seed).misses([15_000])[0]
        assert abs(found / exact - 1.0) < 0.15, seed


def test_sampling_is_by_line_and_by_seed() -> None:
    lines = nested(20_000)

    def sampled(seed: int) -> StackDistances:
        return stack_distances(iter([lines]), sampling_rate=0.05, seed=seed)

    assert sampled(1).distance.tolist() == sampled(1).distance.tolist()
    assert sampled(1).distance.tolist() != sampled(2).distance.tolist()
    # Every sampled line comes with all its accesses: as many first touches as lines.
    kept = len(sampled(1).distance)
    assert kept > np.isinf(sampled(1).distance).sum() > 0
    # Distances of the sample are scaled to those of the whole trace.
    finite = sampled(1).distance[np.isfinite(sampled(1).distance)]
    assert finite.max() > 0.5 * exact_distances(lines).max()


def test_mpki_is_for_a_thousand_thread_instructions() -> None:
    found = stack_distances(iter([array([1, 2, 1, 2, 1, 2])]))
    assert found.misses_per_thousand([128, 256], 2000).tolist() == [3.0, 1.0]
    with pytest.raises(ParameterError, match="below a line"):
        found.misses_per_thousand([127], 2000)
    with pytest.raises(ParameterError, match="not positive"):
        found.misses_per_thousand([128], 0)


def test_what_does_not_fit_is_refused_before_it_is_held() -> None:
    chunks = (np.arange(1000, dtype=np.uint64) for _ in range(1000))
    with pytest.raises(RefusedError, match="lower sampling rate"):
        stack_distances(chunks, memory_limit_bytes=1 << 20)
    assert len(list(chunks)) > 900
    with pytest.raises(ParameterError, match="sampling rate"):
        stack_distances(iter([]), sampling_rate=0.0)
    with pytest.raises(ParameterError, match="sectors per line"):
        stack_distances(iter([]), sectors_per_line=0)


def test_blocks_that_run_together_take_turns(tmp_path: Path) -> None:
    def load(line: int) -> str:
        return f"0070 ffffffff 1 R6 LDG.E 1 R2 4 1 0x{line * 128:x} 4 0 "

    shared = "0080 ffffffff 1 R6 LDS.U 1 R2 4 1 0x0 4 0 "
    blocks = [
        block_text("0,0,0", [load(1), load(2), EXIT], [load(3), shared, load(4)]),
        block_text("1,0,0", [load(5), load(6)]),
        block_text("2,0,0", [load(7)]),
    ]
    path = write_trace(tmp_path / "k.traceg", *blocks, grid="(3,1,1)")

    def order(resident: int) -> list[list[int]]:
        return [chunk.tolist() for chunk in TraceAccesses([path, path], resident)]

    assert order(1) == [[1, 3, 2, 4], [5, 6], [7]] * 2
    assert order(2) == [[1, 3, 5, 2, 6, 4], [7]] * 2
    accesses = TraceAccesses([path], 2)
    assert sum(map(len, accesses)) == 7
    assert accesses.thread_instructions == 9 * 32
    with pytest.raises(ParameterError, match="resident"):
        list(TraceAccesses([path], 0))


@pytest.mark.shared_data
def test_the_curve_of_a_gather_is_that_of_the_simulated_l2(shared_data: Path, tmp_path: Path) -> None:
    """`sc_gather` at 10 to 80 SMs: L2 misses that Accel-Sim counted, from the regenerated trace."""
    generator = shared_data.parent / "tools" / "accel_sim_trace_generator.py"
    subprocess.run([sys.executable, generator, tmp_path, "s_gather"], check=True, timeout=120)
    rows = [
        line.split(",")
        for line in (shared_data / "accel_sim" / "summary.csv").read_text().splitlines()
        if line.startswith("sc_gather.")
    ]
    for row in rows:
        sms, l2_bytes, per_sm, l2_misses = int(row[6]), int(row[8]), int(row[12]), int(row[20])
        accesses = TraceAccesses([tmp_path / "kernel-1.traceg"], sms * per_sm, piece_bytes=32)
        found = stack_distances(accesses, sectors_per_line=4)
        (misses,) = found.misses([l2_bytes // 128])
        assert misses == pytest.approx(l2_misses, rel=0.01), sms
    assert found.first_touches == 94_378
