"""Traces and lists of launches that are simulated apart: the last blocks of a warm-up, and copies."""

from __future__ import annotations

from pathlib import Path

import pytest

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
