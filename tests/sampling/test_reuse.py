"""Forward reuse, corrections of cold launches, and what warms them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.cold_start.correction import (
    Latencies,
    active_controllers,
    corrected_ipc,
    correction_cycles,
    corrections,
)
from assay_sampling.cold_start.reuse import footprint, forward_reuse
from assay_sampling.errors import MisalignedError, ParameterError, RefusedError
from assay_sampling.notes.registry import make_note
from assay_sampling.simulators.accel_sim.cold import read_details
from assay_sampling.simulators.accel_sim.kernels_list import read_kernels_list
from assay_sampling.simulators.accel_sim.trace import block_counts, read_blocks
from assay_sampling.simulators.accel_sim.warm_up import (
    memory_only_path,
    memory_only_trace,
    warm_up_list,
    warm_up_order,
)
from tests.support.sampling.accel_sim_traces import EXIT, MOV, block_text, write_trace


def load(*addresses: int, opcode: str = "LDG.E", width: int = 4) -> str:
    mask = (1 << len(addresses)) - 1
    listed = " ".join(f"0x{address:016x}" for address in addresses)
    return f"0070 {mask:08x} 1 R6 {opcode} 1 R2 {width} 0 {listed} 0 "


def trace(folder: Path, number: int, *lines: str) -> Path:
    return write_trace(
        folder / f"kernel-{number}.traceg", block_text("0,0,0", [*lines, EXIT]), kernel_id=number
    )


def test_reuse_at_each_granularity(tmp_path: Path) -> None:
    # Bytes 0, 4, 32, 256 of sectors 0, 1, 8 and lines 0, 2; then bytes 8 and 256.
    first = trace(tmp_path, 1, load(0, 4, 32), load(256, 0))
    second = trace(tmp_path, 2, load(8), load(256))
    found = list(forward_reuse(footprint(path) for path in (first, second)))
    assert found[0].footprint == {"byte": 4, "sector": 3, "line": 2}
    assert found[0].forward_reuse == {"byte": 1 / 4, "sector": 2 / 3, "line": 1.0}
    assert found[1].forward_reuse == {"byte": None, "sector": None, "line": None}


def test_shared_memory_is_not_part_of_the_footprint(tmp_path: Path) -> None:
    path = trace(tmp_path, 1, load(0, opcode="LDS.U"), load(64, opcode="STG.E"), load(4, opcode="ATOMS.ADD"))
    assert footprint(path).pieces["byte"].tolist() == [64]


def test_a_launch_that_touches_nothing_has_no_reuse(tmp_path: Path) -> None:
    found = list(forward_reuse([footprint(trace(tmp_path, 1, MOV)), footprint(trace(tmp_path, 2, load(0)))]))
    assert found[0].forward_reuse == {"byte": None, "sector": None, "line": None}


@given(
    left=st.lists(st.integers(0, 4000), min_size=1, max_size=60),
    right=st.lists(st.integers(0, 4000), min_size=1, max_size=60),
)
def test_reuse_is_that_of_sets(
    tmp_path_factory: pytest.TempPathFactory, left: list[int], right: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("traces")
    paths = [
        trace(folder, number, *[load(*values[i : i + 32], width=1) for i in range(0, len(values), 32)])
        for number, values in ((1, left), (2, right))
    ]
    (found, _) = forward_reuse(footprint(path) for path in paths)
    for name, granule in (("byte", 1), ("sector", 32), ("line", 128)):
        ours, theirs = ({value // granule for value in values} for values in (left, right))
        assert found.forward_reuse[name] == pytest.approx(len(ours & theirs) / len(ours))


def test_footprints_refuse_what_does_not_fit(tmp_path: Path) -> None:
    path = trace(tmp_path, 1, *[load(*range(i, i + 32)) for i in range(0, 3200, 32)])
    with pytest.raises(RefusedError, match="exceed the limit"):
        footprint(path, memory_limit_bytes=1000)
    with pytest.raises(ParameterError, match="granularity"):
        footprint(path, granularities=["page"])


def test_the_correction_by_hand() -> None:
    latencies = Latencies(l2_cycles=187, dram_cycles=254)
    # 1,280,000 / (16 x 128) = 625 waits, half of them for lines that were warm, 67 cycles each.
    delta = correction_cycles(1_280_000, 16, 128, 0.5, latencies)
    assert delta == pytest.approx(20_937.5)
    assert corrected_ipc(1e6, 120_937.5, delta) == pytest.approx(10.0)
    with pytest.raises(RefusedError, match="leaves nothing"):
        corrected_ipc(1e6, 20_000, delta)
    with pytest.raises(ParameterError):
        correction_cycles(1.0, 16, 128, 1.5, latencies)


def test_the_correction_is_refused_where_dram_is_not_slower_than_the_l2() -> None:
    for dram in (100, 160):
        with pytest.raises(RefusedError, match=f"DRAM latency of {dram} cycles is not above the L2's of 160"):
            correction_cycles(1.0, 16, 128, 0.5, Latencies(l2_cycles=160, dram_cycles=dram))


def test_controllers_count_by_their_load() -> None:
    assert active_controllers(np.array([10, 10, 10, 10])) == 4.0
    assert active_controllers(np.array([10, 5, 0, 5])) == 2.0
    with pytest.raises(RefusedError, match="no request"):
        active_controllers(np.zeros(4))


def test_replays_come_right_before_what_they_warm() -> None:
    assert warm_up_order(6, [3], 2) == [(1, True), (2, True), (3, False)]
    assert warm_up_order(6, [0], 3) == [(0, False)]
    # Launch 3 is simulated in full, so launch 4 needs no replay of it; nothing is replayed twice.
    assert warm_up_order(6, [4, 3], 1) == [(2, True), (3, False), (4, False)]
    assert warm_up_order(6, [2, 5], 4) == [(0, True), (1, True), (2, False), (3, True), (4, True), (5, False)]
    with pytest.raises(ParameterError, match="launch 7"):
        warm_up_order(6, [6], 1)
    with pytest.raises(ParameterError, match="warm nothing"):
        warm_up_order(6, [1], 0)


def test_the_list_names_replays_as_the_simulator_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "kernelslist.g"
    path.write_text(
        "MemcpyHtoD,0x00007f5c40000000,64\nkernel-1.traceg\nkernel-7.traceg.xz\nkernel-9.traceg\n"
    )
    kernels = read_kernels_list(path)
    assert warm_up_list(kernels, [2]) == ["kernel-mem-7.traceg", "kernel-9.traceg"]
    with pytest.raises(ParameterError, match=r"kernel-N\.traceg"):
        memory_only_path(tmp_path / "other.traceg")


def test_a_memory_only_trace_keeps_memory_instructions_and_exits(tmp_path: Path) -> None:
    blocks = [block_text("0,0,0", [MOV, load(0), MOV, EXIT], [MOV, EXIT]), block_text("1,0,0", [MOV, EXIT])]
    path = write_trace(tmp_path / "kernel-1.traceg", *blocks, grid="(2,1,1)")
    replay = tmp_path / "kernel-mem-1.traceg"
    replay.write_bytes(b"".join(memory_only_trace(path)))
    instructions, requests = block_counts(replay)
    assert (instructions.tolist(), requests.tolist()) == ([3, 1], [1, 0])


@pytest.mark.shared_data
@pytest.mark.parametrize("folder", ["fixture_trace", "fixture_trace_mode0"])
def test_memory_only_traces_are_those_of_the_generator(
    shared_data: Path, tmp_path: Path, folder: str
) -> None:
    for source in read_kernels_list(shared_data / "accel_sim" / folder / "kernelslist.g").traces:
        expected = memory_only_path(source).read_bytes()
        made = b"".join(memory_only_trace(source))
        assert [line for line in made.splitlines() if line] == [
            line for line in expected.splitlines() if line
        ]
        path = tmp_path / source.name
        path.write_bytes(made)
        assert sum(1 for _ in read_blocks(path)) == sum(1 for _ in read_blocks(source))


@pytest.mark.shared_data
def test_the_reuse_of_real_launches(shared_data: Path, tmp_path: Path) -> None:
    """Spec, "Cold-start tools": launches 3 and 4 of `reuse`, address mode 0."""
    generator = shared_data.parent / "tools" / "accel_sim_trace_generator.py"
    command = [sys.executable, generator, tmp_path, "reuse", "--only", "3,4"]
    subprocess.run(command, check=True, timeout=120, env={**os.environ, "TOOL_COMPRESS": "0"})
    kernels = read_kernels_list(tmp_path / "kernelslist.g")
    third, _ = forward_reuse(footprint(path) for path in kernels.traces)
    assert third.header.kernel_id == 3
    assert third.footprint == {"byte": 243_959, "sector": 94_378, "line": 26_159}
    shares = {name: round(share or 0.0, 3) for name, share in third.forward_reuse.items()}
    assert shares == {"byte": 0.718, "sector": 0.865, "line": 0.985}


@pytest.mark.shared_data
def test_a_log_of_sm7_qv100_cannot_be_corrected(shared_data: Path) -> None:
    log = shared_data / "accel_sim" / "reuse.base.out.gz"
    found = corrections(log, {1: 1.0, 2: 1.0, 3: 0.865})
    assert (found["dram_latency_cycles"], found["l2_latency_cycles"]) == (100, 160)
    assert "is not above the L2's of 160" in found["refused"]["cause"]
    assert (found["refused"]["code"], found["refused"]["error"]) == ("not_corrected", "refused")
    assert [row["corrected_ipc"] for row in found["launches"]] == [None] * 4


@pytest.mark.shared_data
def test_a_log_with_other_latencies_is_corrected(shared_data: Path, tmp_path: Path) -> None:
    """The same log with the latencies of the paper's GPU written in: formula and differencing."""
    import gzip  # noqa: PLC0415

    text = gzip.decompress((shared_data / "accel_sim" / "reuse.base.out.gz").read_bytes())
    text = text.replace(b"-gpgpu_l2_rop_latency                  160", b"-gpgpu_l2_rop_latency 187")
    log = tmp_path / "log"
    log.write_bytes(text.replace(b"-dram_latency                         100", b"-dram_latency 254"))
    details = read_details(log)
    assert (details.l2_latency_cycles, details.dram_latency_cycles, details.line_bytes) == (187, 254, 128)
    first, second, third, _ = corrections(log, {1: 1.0, 2: 1.0, 3: 0.5})["launches"]
    assert first["reason"] == make_note("reuse_unknown").to_dict()
    # Launch 2 reads nothing from DRAM: the table of the whole run so far must not be taken for it.
    assert second["reason"]["cause"] == "no request went to DRAM"
    assert third["accesses"] == 12_788
    assert 1.0 <= third["controllers"] <= 32.0
    delta = 12_788 / (third["controllers"] * 128) * 1.0 * 67
    assert third["delta_cycles"] == pytest.approx(delta)
    assert third["corrected_ipc"] == pytest.approx(1_607_424 / (16_541 - delta))


@pytest.mark.shared_data
def test_a_log_of_other_kernels_is_refused(shared_data: Path) -> None:
    log = shared_data / "accel_sim" / "reuse.base.out.gz"
    gather = "_Z9irregularPKiPKfPfi"
    assert corrections(log, {1: 1.0}, dict.fromkeys(range(1, 5), gather))["launches"]
    with pytest.raises(MisalignedError, match=f"launch 3 is of {gather} there, and of other in the traces"):
        corrections(log, {1: 1.0}, {2: gather, 3: "other"})


@pytest.mark.shared_data
def test_replays_and_printed_requests_are_told_apart(shared_data: Path, tmp_path: Path) -> None:
    assert read_details(shared_data / "accel_sim" / "reuse.memwarm3.out.gz").replays == {1}
    assert read_details(shared_data / "accel_sim" / "reuse.base.out.gz").replays == set()
    log = tmp_path / "log"
    request = "[COLD_START_DRAM_REQ]: {}\n"
    log.write_text(
        "launching kernel name: a uid: 1 cuda_stream_id: 0\n"
        + "".join(request.format(address) for address in (1, 2, 1))
        + "launching kernel name: b uid: 2 cuda_stream_id: 0\n"
        + request.format(1)
    )
    assert read_details(log).dram_requests == {1: 2, 2: 1}
