"""Traces of Accel-Sim: three ways to write addresses, and what a damaged trace says."""

from __future__ import annotations

import gzip
import itertools
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.errors import InputError, ParameterError
from assay_sampling.simulators.accel_sim.kernels_list import MemoryCopy, read_kernels_list
from assay_sampling.simulators.accel_sim.trace import ThreadBlock, block_counts, read_blocks, read_header
from tests.support.sampling.accel_sim_traces import EXIT, MOV, block_text, write_trace


def only_block(path: Path) -> ThreadBlock:
    (block,) = read_blocks(path)
    return block


def addresses(path: Path) -> list[list[int]]:
    memory = only_block(path).memory
    assert memory is not None
    parts = np.split(memory.addresses, memory.offsets[1:-1])
    return [part.tolist() for part in parts]


@pytest.fixture
def trace(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: str, **header: int) -> Path:
        return write_trace(tmp_path / "kernel-1.traceg", block_text("0,0,0", list(lines)), **header)  # type: ignore[arg-type]

    return write


def test_the_header_is_read(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "k.traceg", grid="(3,2,1)", kernel_id=12)
    header = read_header(path)
    assert (header.kernel_name, header.kernel_id) == ("_Z4kernPf", 12)
    assert (header.grid, header.block, header.blocks) == ((3, 2, 1), (64, 1, 1), 6)
    assert (header.shared_memory_bytes, header.registers_per_thread) == (2048, 24)
    assert (header.binary_version, header.stream, header.tracer_version) == (80, 7, 5)


def test_mode_0_lists_an_address_for_each_active_lane(trace: Callable[..., Path]) -> None:
    path = trace("0070 00000009 1 R6 LDG.E.SYS 1 R2 4 0 0x00007f5c40000000 0x00007f5c40000400 0 ", EXIT)
    assert addresses(path) == [[0x7F5C40000000, 0x7F5C40000400]]


def test_mode_0_reads_short_addresses_too(trace: Callable[..., Path]) -> None:
    path = trace("0070 00000003 1 R6 LDG.E.SYS 1 R2 4 0 0x10 0xfffffffffffffff0 0 ", EXIT)
    assert addresses(path) == [[0x10, 0xFFFFFFFFFFFFFFF0]]


def test_mode_1_is_a_signed_stride_from_a_base(trace: Callable[..., Path]) -> None:
    down = "0070 0000000f 1 R6 LDG.E.64 1 R2 8 1 0x7f5c40000100 -8 0 "
    assert addresses(trace(down, EXIT)) == [[0x7F5C40000100 - 8 * i for i in range(4)]]


def test_mode_2_takes_one_number_less_than_lanes_and_leaves_the_immediate(trace: Callable[..., Path]) -> None:
    # 99 is the immediate of version 5, which is no difference of a fourth lane.
    path = trace("0070 00000007 1 R6 LDG.E.SYS 1 R2 4 2 0x7f5c40000100 -16 32 99 ", EXIT)
    assert addresses(path) == [[0x7F5C40000100, 0x7F5C400000F0, 0x7F5C40000110]]


def test_one_active_lane_is_mode_2_without_differences(trace: Callable[..., Path]) -> None:
    path = trace("0070 00000400 0 STG.E.SYS 2 R2 R3 4 2 0x7f5c40000100 0 ", EXIT)
    assert addresses(path) == [[0x7F5C40000100]]


@pytest.mark.parametrize("payload", ["1 0x0 0", "2 0x0", "0"])
def test_a_fully_masked_instruction_touches_nothing(trace: Callable[..., Path], payload: str) -> None:
    path = trace(f"0070 00000000 1 R6 LDG.E.SYS 1 R2 4 {payload} 0 ", EXIT)
    assert addresses(path) == [[]]
    block = only_block(path)
    assert (block.warp_instructions, block.thread_instructions, block.memory_requests) == (2, 32, 0)


@pytest.mark.parametrize(
    ("version", "lineinfo", "prefix", "immediate"),
    [(1, 0, "0 0 0 0 ", ""), (3, 0, "", ""), (4, 0, "", ""), (4, 1, "17 ", ""), (5, 1, "17 ", " 0")],
)
def test_every_version_of_the_tracer_is_read(
    trace: Callable[..., Path], version: int, lineinfo: int, prefix: str, immediate: str
) -> None:
    line = f"{prefix}0070 00000003 1 R6 LDG.E.SYS 1 R2 4 2 0x7f5c40000100 4{immediate} "
    path = trace(line, f"{prefix}{EXIT}", version=version, lineinfo=lineinfo)
    assert addresses(path) == [[0x7F5C40000100, 0x7F5C40000104]]


def test_opcodes_tell_device_memory_from_other_memory(trace: Callable[..., Path]) -> None:
    ops = ["LDG.E.SYS", "STG.E", "ATOMG.ADD", "RED.E.ADD", "LDL", "STL", "LD.E", "ST.E", "LDGSTS.E"]
    others = ["LDS.U", "STS", "ATOMS.ADD", "LDC", "TEX"]
    lines = [f"0070 ffffffff 1 R6 {op} 1 R2 4 1 0x100 4 0 " for op in ops + others]
    path = trace(MOV, *lines, EXIT)
    block = only_block(path)
    assert block.memory is not None
    assert block.memory.opcode == tuple(ops + others)
    assert block.memory.device_memory.tolist() == [True] * len(ops) + [False] * len(others)
    assert block.memory_requests == len(ops)
    assert block_counts(path)[1].tolist() == [len(ops)]


def test_positions_count_within_each_warp(tmp_path: Path) -> None:
    load = "0070 ffffffff 1 R6 LDG.E 1 R2 4 1 0x100 4 0 "
    path = write_trace(tmp_path / "k.traceg", block_text("0,0,0", [load, MOV, load], [MOV, EXIT], [load]))
    memory = only_block(path).memory
    assert memory is not None
    assert (memory.warp.tolist(), memory.position.tolist()) == ([0, 0, 2], [0, 1, 0])


def test_block_counts_are_by_block_index_whatever_the_order(tmp_path: Path) -> None:
    load = "0070 ffffffff 1 R6 LDG.E 1 R2 4 1 0x100 128 0 "
    blocks = [block_text("1,1,0", [load, load, EXIT]), block_text("0,1,0", [load, EXIT], [MOV])]
    blocks += [block_text("1,0,0", [EXIT]), block_text("0,0,0", [MOV, MOV, MOV, MOV, EXIT])]
    path = write_trace(tmp_path / "k.traceg", *blocks, grid="(2,2,1)")
    instructions, requests = block_counts(path)
    assert (instructions.tolist(), requests.tolist()) == ([5, 1, 3, 3], [0, 0, 1, 2])
    # A stride of 128 bytes cannot be coalesced: every lane has its own line, from 2 on.
    assert block_counts(path, line_bytes=128)[1].tolist() == [0, 0, 32, 64]
    assert block_counts(path, line_bytes=256)[1].tolist() == [0, 0, 16, 32]


def test_granules_count_both_pieces_of_an_access_that_crosses(trace: Callable[..., Path]) -> None:
    path = trace("0070 00000003 1 R6 LDG.E.128 1 R2 16 2 0x18 64 0 ", EXIT)
    memory = only_block(path).memory
    assert memory is not None
    assert memory.granules(32)[1].tolist() == [0, 1, 2, 3]
    assert memory.granules(128)[1].tolist() == [0]
    assert memory.granules(1)[1].tolist() == [0x18, 0x58]
    with pytest.raises(ParameterError, match="power of two"):
        memory.granules(48)


@given(
    lanes=st.lists(st.integers(0, 2**47), min_size=32, max_size=32),
    mask=st.integers(1, 2**32 - 1),
)
def test_lists_and_differences_give_the_same_addresses(
    tmp_path_factory: pytest.TempPathFactory, lanes: list[int], mask: int
) -> None:
    active = [address for lane, address in enumerate(lanes) if mask >> lane & 1]
    steps = " ".join(str(b - a) for a, b in itertools.pairwise(active))
    listed = " ".join(f"0x{a:016x}" for a in active)
    folder = tmp_path_factory.mktemp("traces")
    for mode, payload in ((0, listed), (2, f"0x{active[0]:x} {steps}")):
        line = f"0070 {mask:08x} 1 R6 LDG.E.SYS 1 R2 4 {mode} {payload} 0 "
        assert addresses(write_trace(folder / "k.traceg", block_text("0,0,0", [line]))) == [active]


@pytest.mark.parametrize(
    ("suffix", "compress"), [("", bytes), (".xz", lzma.compress), (".gz", gzip.compress)]
)
def test_compressed_traces_are_read_by_content(
    trace: Callable[..., Path], suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    path = trace(MOV, EXIT)
    packed = path.with_name("packed.traceg" + suffix)
    packed.write_bytes(compress(path.read_bytes()))
    assert [part.tolist() for part in block_counts(packed)] == [[2], [0]]


@pytest.mark.parametrize("compress", [lzma.compress, gzip.compress])
def test_a_cut_compressed_trace_is_an_input_error(
    trace: Callable[..., Path], compress: Callable[[bytes], bytes]
) -> None:
    path = trace(*[f"0070 ffffffff 1 R6 LDG.E 1 R2 4 1 0x{i:x} 4 0 " for i in range(0, 40000, 7)], EXIT)
    packed = compress(path.read_bytes())
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InputError, match="cut off"):
        block_counts(path)


def test_a_damaged_xz_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "k.traceg.xz"
    path.write_bytes(b"\xfd7zXZ\x00" + b"damaged" * 20)
    with pytest.raises(InputError, match="damaged"):
        read_header(path)


def refusal(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        list(read_blocks(path))
    return caught.value


def test_a_line_that_is_no_instruction_is_named(trace: Callable[..., Path]) -> None:
    path = trace(MOV, "0010 ffffffff 1 R6 LDG.E", EXIT)
    error = refusal(path)
    assert path.read_text().splitlines()[(error.line or 0) - 1] == "0010 ffffffff 1 R6 LDG.E"
    assert "is not an instruction" in error.cause


@pytest.mark.parametrize("payload", ["0 0x10", "2 0x10 4", "1 0x10", "3 0x10 4 4", "2 zz 4 4", ""])
def test_addresses_that_do_not_fit_the_mask_are_named(trace: Callable[..., Path], payload: str) -> None:
    line = f"0070 00000007 1 R6 LDG.E.SYS 1 R2 4 {payload}"
    path = trace(MOV, line, EXIT, version=3)
    error = refusal(path)
    assert path.read_text().splitlines()[(error.line or 0) - 1] == line


def test_a_warp_shorter_than_it_says_is_refused(tmp_path: Path) -> None:
    text = block_text("0,0,0", [MOV, EXIT]).replace("insts = 2", "insts = 3")
    assert "'insts'" in refusal(write_trace(tmp_path / "k.traceg", text)).cause


def test_missing_repeated_and_foreign_blocks_are_refused(tmp_path: Path) -> None:
    one = block_text("0,0,0", [EXIT])
    path = tmp_path / "k.traceg"
    assert "1 of the 2 thread blocks" in refusal(write_trace(path, one, grid="(2,1,1)")).cause
    assert "twice" in refusal(write_trace(path, one, one, grid="(2,1,1)")).cause
    assert "outside the grid" in refusal(write_trace(path, one.replace("0,0,0", "1,0,0"))).cause


def test_a_trace_that_ends_within_a_block_is_refused(trace: Callable[..., Path]) -> None:
    path = trace(MOV, EXIT)
    path.write_text(path.read_text().replace("#END_TB", ""))
    assert "ends within a thread block" in refusal(path).cause


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.traceg"
    path.write_text("0 0 0 0 0000 ffffffff 1 R1 MOV 0 0 0\n")
    assert "no header" in refusal(path).cause
    write_trace(path, grid="(0,1,1)")
    assert refusal(path).field == "grid dim"


def test_the_list_of_kernels_names_launches_and_copies(tmp_path: Path) -> None:
    path = tmp_path / "kernelslist.g"
    path.write_text(
        "MemcpyHtoD,0x00007f5c40000000,1048576\n# a note\nkernel-1.traceg\n\nkernel-2.traceg.xz\n"
    )
    found = read_kernels_list(path)
    assert found.traces == (tmp_path / "kernel-1.traceg", tmp_path / "kernel-2.traceg.xz")
    assert found.copies == (MemoryCopy(0x7F5C40000000, 1048576),)
    path.write_text("MemcpyHtoD,here,1048576\n")
    with pytest.raises(InputError, match="MemcpyHtoD"):
        read_kernels_list(path)
    path.write_text("# nothing\n")
    with pytest.raises(InputError, match="lists no launch"):
        read_kernels_list(path)


@pytest.mark.shared_data
def test_the_fixtures_of_both_modes_hold_the_same_launches(shared_data: Path) -> None:
    """The stats.csv beside the traces says how many thread instructions each launch has."""
    folders = [shared_data / "accel_sim" / name for name in ("fixture_trace", "fixture_trace_mode0")]
    lists = [read_kernels_list(folder / "kernelslist.g") for folder in folders]
    expected = [7680, 6912, 12288]
    for compressed, plain, instructions in zip(lists[0].traces, lists[1].traces, expected, strict=True):
        ours, theirs = list(read_blocks(compressed)), list(read_blocks(plain))
        assert sum(block.thread_instructions for block in ours) == instructions
        for left, right in zip(ours, theirs, strict=True):
            assert left.memory is not None and right.memory is not None
            np.testing.assert_array_equal(left.memory.addresses, right.memory.addresses)
            np.testing.assert_array_equal(left.memory.offsets, right.memory.offsets)
            assert left.memory_requests == right.memory_requests


def test_lines_that_end_as_on_windows_are_read(trace: Callable[..., Path]) -> None:
    path = trace(MOV, "0070 00000003 1 R6 LDG.E.SYS 1 R2 4 2 0x100 4", EXIT, version=3)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert addresses(path) == [[0x100, 0x104]]
