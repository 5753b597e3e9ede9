"""The simulator's standard output: exact values of hand-made logs, faults, and all real logs."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import CutOffError, InputError
from assay_sampling.notes.registry import make_note
from assay_sampling.simulators.accel_sim import lines as accel_sim_lines
from assay_sampling.simulators.accel_sim.output import looks_like_output, read_output
from tests.support.sampling.accel_sim_logs import BREAK, Launch, Totals, header, options, output, statistics

THREE = (
    Launch(traced_id=5),
    Launch(
        name="_Z5otherPf",
        traced_id=9,
        grid=(7, 1, 1),
        block=(100, 1, 1),
        registers=33,
        cycles=1234,
        instructions=777,
        printed_ctas_per_sm=None,
        l2=(11, 3),
        reads=(1, 0, 4),
        seconds=5,
    ),
    Launch(traced_id=12, cycles=300, l2=(0, 0), reads=(0, 0, 0), seconds=0),
)


def zstd(text: bytes) -> bytes:
    return bytes(pa.compress(text, codec="zstd", asbytes=True))


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_banner_at_the_begin_of_a_line_tells_version_and_commit(tmp_path: Path) -> None:
    """As GPGPU-Sim prints it; traces of Accel-Sim indent it, which is read alike."""
    banner = "*** GPGPU-Sim Simulator Version 4.2.0  [build gpgpu-sim_git-commit-667834cf_modified_0.0] ***\n"
    for at, indent in enumerate(("", "        ")):
        log, launches = read_output(write(tmp_path / f"log{at}", indent + banner + output(THREE[:1])))
        assert len(launches) == 1
        assert (log.version, log.commits) == ("4.2.0", {"GPGPU-Sim": "667834cf"})


def test_counters_are_of_each_launch_alone_and_ids_those_of_the_trace(tmp_path: Path) -> None:
    log, launches = read_output(write(tmp_path / "log", output(THREE)))
    assert log.ending == "exit"
    assert not log.notes
    assert [(x.uid, x.traced_id, x.kernel) for x in launches] == [
        (1, 5, "_Z4kernPf"), (2, 9, "_Z5otherPf"), (3, 12, "_Z4kernPf"),
    ]  # fmt: skip
    assert [(x.cycles, x.instructions, x.instructions_before) for x in launches] == [
        (1000, 50_000, 0), (1234, 777, 50_000), (300, 50_000, 50_777),
    ]  # fmt: skip
    assert [(x.issued_ctas, x.total_ctas, x.grid) for x in launches] == [
        (32, 32, (16, 2, 1)), (7, 7, (7, 1, 1)), (32, 32, (16, 2, 1)),
    ]  # fmt: skip
    assert [(x.l2_accesses, x.l2_misses, x.dram_reads, x.dram_writes) for x in launches] == [
        (100, 40, 60, 1), (11, 3, 5, 0), (0, 0, 0, 0),
    ]  # fmt: skip
    assert [x.dram_reads_by_channel.tolist() for x in launches] == [[10, 20, 30], [1, 0, 4], [0, 0, 0]]
    assert launches[0].dram_writes_by_channel.tolist() == [0, 1, 0]
    assert [x.simulation_seconds for x in launches] == [2, 5, 0]
    assert all(x.complete for x in launches)


def test_the_simulated_gpu_is_known_with_the_first_launch(tmp_path: Path) -> None:
    log, _ = read_output(write(tmp_path / "log", output(THREE)))
    config = log.config
    assert (config.sms, config.launch_latency_cycles, config.interval_cycles) == (8, 200, 100)
    assert (config.memory_channels, config.early_stops) == (3, ())


def test_resident_blocks_are_printed_or_computed_or_those_of_the_launch_before(tmp_path: Path) -> None:
    _, launches = read_output(write(tmp_path / "log", output(THREE)))
    # 100 threads take 4 warps; 33 registers are given as 36: 65,536 // (128 * 36) = 14 blocks.
    assert [(x.ctas_per_sm, x.ctas_per_sm_from) for x in launches] == [
        (8, "printed"), (14, "computed"), (8, "printed"),
    ]  # fmt: skip
    silent = output(THREE).replace("-gpgpu_shader_registers", "-gpgpu_shader_registerz")
    _, launches = read_output(write(tmp_path / "log", silent))
    assert [(x.ctas_per_sm, x.ctas_per_sm_from) for x in launches][:2] == [(8, "printed"), (8, "previous")]


@pytest.mark.parametrize(
    ("block", "registers", "shared", "expected"),
    [(1024, 16, 0, 2), (1, 0, 0, 32), (256, 128, 0, 2), (64, 16, 40_000, 2), (4096, 16, 0, 0)],
)
def test_every_limit_of_an_sm_bounds_its_blocks(
    tmp_path: Path, block: int, registers: int, shared: int, expected: int
) -> None:
    log, _ = read_output(write(tmp_path / "log", output(THREE)))
    assert log.config.resident_ctas(block, registers, shared) == expected


def test_a_compressed_log_reads_the_same(tmp_path: Path) -> None:
    plain = write(tmp_path / "log", output(THREE))
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert [str(x) for x in read_output(packed)[1]] == [str(x) for x in read_output(plain)[1]]


@given(size=st.integers(1, 400))
@settings(max_examples=30, deadline=None)
def test_where_blocks_of_the_file_end_makes_no_difference(
    tmp_path_factory: pytest.TempPathFactory, size: int
) -> None:
    path = write(tmp_path_factory.getbasetemp() / "log-in-blocks", output(THREE))
    whole = read_output(path)[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accel_sim_lines, "BLOCK_BYTES", size)
        assert [str(x) for x in read_output(path)[1]] == [str(x) for x in whole]


def test_an_early_stop_leaves_the_last_launch_incomplete(tmp_path: Path) -> None:
    log, launches = read_output(write(tmp_path / "log", output(THREE, BREAK)))
    assert log.ending == "early stop"
    assert [x.complete for x in launches] == [True, True, False]
    assert launches[2].total_ctas == 32
    cut = Launch(traced_id=2, issued=20)
    assert [x.complete for x in read_output(write(tmp_path / "log", output([cut])))[1]] == [False]
    silent = output(THREE, gpgpu_max_completed_cta="60")
    assert [x.complete for x in read_output(write(tmp_path / "log", silent))[1]] == [True, True, False]


def test_statistics_that_are_cut_off_are_left_out_and_said(tmp_path: Path) -> None:
    text = output(THREE, "")
    for end in (text.rfind("gpu_sim_insn = ") + 3, text.rfind("L2_total_cache_misses") + 24):
        log, launches = read_output(write(tmp_path / "log", text[:end]))
        assert (log.ending, len(launches)) == ("cut off", 2)
        assert log.notes[0].code == "log_cut_in_statistics"
        assert log.notes[1:] == [make_note("launch_without_statistics", launch=3, kernel="_Z4kernPf")]


def test_a_number_that_is_cut_off_is_no_number(tmp_path: Path) -> None:
    text = output(THREE, "")
    end = text.rfind("gpu_sim_cycle = 300") + len("gpu_sim_cycle = 30")
    assert len(read_output(write(tmp_path / "log", text[:end]))[1]) == 2


def test_a_launch_without_statistics_is_said(tmp_path: Path) -> None:
    text = output(THREE[:1], "") + header(THREE[1], 2)
    log, launches = read_output(write(tmp_path / "log", text))
    assert (log.ending, len(launches)) == ("cut off", 1)
    [note] = log.notes
    assert note == make_note("launch_without_statistics", launch=2, kernel="_Z5otherPf")
    assert note.text == "launch 2 (_Z5otherPf) has no statistics: the run ended within it"
    assert log.unfinished() == [{"uid": 2, "traced_id": 9, "kernel": "_Z5otherPf", "grid": (7, 1, 1)}]


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_a_cut_compressed_log_gives_what_is_before_the_cut(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "log"
    launches = [replace(THREE[i % 3], traced_id=i + 1, cycles=10 * i) for i in range(500)]
    packed = pack(output(launches).encode())
    for size in (len(packed) // 2, len(packed) - 9, len(packed) - 1):
        path.write_bytes(packed[:size])
        log, seen = read_output(path)
        assert 0 < len(seen) <= len(launches)
        assert [x.cycles for x in seen] == [x.cycles for x in launches[: len(seen)]]
        assert log.cut is not None and "log_cut_in_compression" in [note.code for note in log.notes]
    # The last bytes of gzip are a checksum, so that all launches are there; zstd loses its last block.
    lost = 0 if pack is gzip.compress else (1 << 17) // len(output(launches[:1]))
    assert len(launches) - len(seen) <= lost and (log.ending == "exit") == (not lost)


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_a_damaged_compressed_log_is_an_error(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    packed = bytearray(pack(output(THREE).encode() * 20))
    middle = len(packed) // 2
    packed[middle : middle + 40] = bytes(40)
    path = tmp_path / "log"
    path.write_bytes(packed)
    with pytest.raises(InputError) as caught:
        read_output(path)
    assert not isinstance(caught.value, CutOffError)


def test_a_log_cut_before_its_first_line_is_refused_as_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(output(THREE).encode())[:12])
    with pytest.raises(CutOffError, match="cut off before its end"):
        read_output(path)


def test_launches_that_end_together_are_one_entry_and_said(tmp_path: Path) -> None:
    text = options() + header(THREE[0], 1) + header(THREE[1], 2)
    text += statistics(THREE[0], 1, Totals()).replace("kernel_launch_uid = 1 ", "kernel_launch_uid = 2 1 ")
    log, launches = read_output(write(tmp_path / "log", text))
    assert (launches[0].uids, launches[0].traced_id) == ((2, 1), 9)
    assert launches[0].total_ctas == 32  # those that were issued, for both
    assert log.notes[0] == make_note("launches_at_once", launches=(2, 1))


def test_resident_blocks_that_are_printed_after_the_last_launch_ended_are_no_running_launches(
    tmp_path: Path,
) -> None:
    text = options() + header(replace(THREE[0], printed_ctas_per_sm=None), 1) + header(THREE[1], 2)
    totals = Totals()
    text += statistics(THREE[1], 2, totals) + "-kernel id = 7\nGPGPU-Sim uArch: CTA/core = 3, limited by: x\n"
    _, launches = read_output(write(tmp_path / "log", text + statistics(THREE[0], 1, totals)))
    assert [(x.uid, x.ctas_per_sm_from) for x in launches] == [(2, "computed"), (1, "computed")]


def test_launches_of_a_ptx_simulation_are_counted(tmp_path: Path) -> None:
    text = (
        "GPGPU-Sim PTX: pushing kernel '_Z3addPi' to stream 0, gridDim= (3,2,1) blockDim = (64,1,1) \n"
        "GPGPU-Sim uArch: CTA/core = 6, limited by: regs\n"
    )
    text += statistics(Launch(name="_Z3addPi", issued=6), 1, Totals()).replace("kernel_launch_uid = 1 \n", "")
    _, (launch,) = read_output(write(tmp_path / "log", text))
    assert (launch.uid, launch.traced_id, launch.grid, launch.ctas_per_sm) == (1, None, (3, 2, 1), 6)


def test_wrong_numbers_name_file_line_and_field(tmp_path: Path) -> None:
    path = write(tmp_path / "log", output(THREE).replace("gpu_sim_cycle = 1234", "gpu_sim_cycle = 12x4"))
    with pytest.raises(InputError, match="'12x4' is not a whole number") as caught:
        read_output(path)
    assert caught.value.field == "gpu_sim_cycle"
    assert path.read_text().splitlines()[caught.value.line - 1] == "gpu_sim_cycle = 12x4"


def test_statistics_without_cycles_are_refused_before_the_end(tmp_path: Path) -> None:
    path = write(tmp_path / "log", output(THREE).replace("gpu_sim_cycle = 1234\n", ""))
    with pytest.raises(InputError, match="hold no cycles") as caught:
        read_output(path)
    assert path.read_text().splitlines()[caught.value.line - 1].startswith("kernel_name = _Z5other")


def test_two_simulations_in_a_file_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "log", output(THREE) + output(THREE))
    with pytest.raises(InputError, match="launch 1 comes after launch 3"):
        read_output(path)
    counted = output(THREE).replace("uid: ", "nr: ")
    path = write(tmp_path / "log", counted + counted)
    with pytest.raises(InputError, match="goes backwards"):
        read_output(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a log of Accel-Sim"):
        read_output(write(tmp_path / "log", "cycles,instructions\n1,2\n"))
    with pytest.raises(InputError, match="no such file"):
        read_output(tmp_path / "absent")
    assert looks_like_output(output(THREE).encode())
    assert not looks_like_output(b"cycles,instructions,ctas\n")


@pytest.mark.shared_data
def test_every_launch_of_every_real_log(shared_data: Path) -> None:
    folder = shared_data / "accel_sim"
    expected: dict[str, list[dict[str, str]]] = {}
    with (folder / "summary.csv").open() as file:
        for row in csv.DictReader(file):
            expected.setdefault(row["run"], []).append(row)
    assert sum(map(len, expected.values())) == 114
    for run, rows in expected.items():
        log, launches = read_output(folder / f"{run}.out.gz")
        assert (log.ending, log.notes) == ("exit", [])
        assert len(launches) == len(rows)
        for launch, row in zip(launches, rows, strict=True):
            found = (launch.uid, launch.traced_id, launch.kernel, launch.total_ctas, launch.cycles,
                     launch.instructions, launch.l2_accesses, launch.l2_misses, launch.dram_reads,
                     log.config.sms, log.config.launch_latency_cycles, launch.complete)  # fmt: skip
            names = ("uid", "trace_id", "kernel", "grid", "gpu_sim_cycle", "gpu_sim_insn", "l2_access",
                     "l2_miss", "dram_reads", "sms", "launch_latency")  # fmt: skip
            wanted = tuple(row[n] if n == "kernel" else int(row[n]) for n in names)
            assert found == (*wanted, True), run
            assert launch.dram_reads_by_channel.sum() == launch.dram_reads
            assert len(launch.dram_reads_by_channel) == int(row["mem_channels"])


@pytest.mark.shared_data
def test_computed_resident_blocks_are_those_that_the_simulator_prints(shared_data: Path) -> None:
    resident: dict[tuple[str, tuple[int, int, int]], set[tuple[int, str]]] = {}
    for path in sorted((shared_data / "accel_sim").glob("*.out.gz")):
        for launch in read_output(path)[1]:
            found = resident.setdefault((launch.kernel, launch.block), set())
            found.add((launch.ctas_per_sm, launch.ctas_per_sm_from))
    both = [
        found for found in resident.values() if {source for _, source in found} == {"printed", "computed"}
    ]
    assert len(both) == 6
    # The value printed last would be another kernel's in 20 of the 114 launches.
    assert all(len({count for count, _ in found}) == 1 for found in both)
