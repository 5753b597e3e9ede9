"""Traces and lists of launches that are simulated apart: the last blocks of a warm-up, and copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_sampling.handover.isolated import IsolatedLaunch, Replay, with_tail_of
from assay_sampling.simulators.accel_sim.config import SimulatorConfig
from assay_sampling.simulators.accel_sim.trace import read_blocks
from assay_sampling.simulators.accel_sim.trace_text import read_header
from assay_sampling.simulators.accel_sim.warm_up import memory_only_trace
from tests.support.sampling.accel_sim_traces import EXIT, MOV, Listed, write_traced

LOAD = "0000 ffffffff 1 R1 LDG.E 1 R2 4 1 0x7f0000000000 4 0"


@pytest.mark.parametrize(("last", "kept"), [(None, 6), (2, 2), (6, 6), (100, 6), (1, 1)])
def test_the_last_blocks_of_a_trace_are_a_trace_of_their_own(
    tmp_path: Path, last: int | None, kept: int
) -> None:
    trace = write_traced(tmp_path / "kernel-2.traceg", Listed(2, grid=(3, 2, 1)), [[MOV, LOAD, EXIT]])
    replay = tmp_path / "kernel-mem-2.traceg"
    replay.write_bytes(b"".join(memory_only_trace(trace, last)))
    header = read_header(replay)
    assert header.blocks == kept
    assert header.kernel_id == 2
    text = replay.read_text()
    assert text.count("#END_TB") == kept
    assert text.count("LDG.E") == text.count("EXIT") == kept
    assert "MOV" not in text
    assert text.endswith("\n")
    if kept == 6:
        assert [block.warp_instructions for block in read_blocks(replay)] == [2] * 6
    else:
        assert "thread block = 2,1,0" in text  # the last one


@pytest.mark.parametrize(
    ("sms", "grid", "replayed"),
    [(10, 900, 240), (20, 900, 480), (80, 900, 900), (None, 900, 160), (2, 900, 160), (2, 90, 90)],
)
def test_a_tail_is_as_long_as_a_wave_and_a_half_of_the_design(
    tmp_path: Path, sms: int | None, grid: int, replayed: int
) -> None:
    """Blocks of 128 threads with 32 registers: 16 of them on an SM of 2,048 threads."""
    before = write_traced(
        tmp_path / "kernel-2.traceg", Listed(2, grid=(grid, 1, 1), block=(128, 1, 1)), [[EXIT]]
    )
    launch = IsolatedLaunch(2, 3, before, 5 + 160, (), Replay(before, 160), 160)
    gpu = SimulatorConfig(sms, 2048, 32, 65_536, 98_304, 32)
    found = with_tail_of(launch, gpu)
    assert (found.replay, found.replayed_blocks, found.blocks) == (
        Replay(before, replayed),
        replayed,
        5 + replayed,
    )


def test_a_whole_replay_and_none_are_left_as_they_are(tmp_path: Path) -> None:
    whole = IsolatedLaunch(2, 3, tmp_path, 9, (), Replay(tmp_path, None), 4)
    cold = IsolatedLaunch(2, 3, tmp_path, 5, ())
    for launch in (whole, cold):
        assert with_tail_of(launch, SimulatorConfig(80, 2048, 32, 65_536, 98_304, 32)) is launch
