"""A simulator's log as a recording: exact values of real logs, and honest but ugly ones."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay_sampling.errors import InputError, NoLaunchesError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.notes.registry import make_note
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.inspection.recording import inspect_recording
from assay_sampling.readers.opening import open_recording, read_launches
from assay_sampling.simulators.accel_sim.output import read_output
from tests.support.sampling.accel_sim_logs import (
    BREAK,
    Launch,
    Totals,
    header,
    options,
    output,
    statistics,
    two_streams,
)

BANNER = (
    "Accel-Sim [build accelsim-commit-1_modified_0]\n\n"
    "        *** GPGPU-Sim Simulator Version 4.2.0  [build gpgpu-sim_git-commit-_modified_0.0] ***\n\n\n"
)
TWO = (Launch(traced_id=5), Launch(name="_Z5otherPf", traced_id=9, cycles=1234, grid=(7, 1, 1)))
# Column of launches.csv -> counter.
COLUMNS = {
    "cycles": "cycles_simulated", "active_cycles": "cycles_simulated_active",
    "instructions": "thread_instructions", "warp_instructions": "instructions",
    "loads": "thread_load_instructions", "stores": "thread_store_instructions",
    "shared_memory_insts": "thread_shared_instructions", "bank_conflicts": "shared_bank_conflicts",
    "global_reads": "global_read_requests", "global_writes": "global_write_requests",
    "l1d_accesses": "l1_accesses", "l1d_misses": "l1_misses", "ctas_per_sm": "resident_blocks_per_sm",
    **{name: name for name in ("l2_accesses", "l2_misses", "l2_reads", "l2_read_hits", "l2_writes",
                               "dram_reads", "dram_writes")},
}  # fmt: skip
RUNS = ("atomics.20sm", "bfs.20sm", "coldfirst.20sm", "full_shared.80sm", "infer.SM75_RTX2060",
        "infer.SM7_QV100", "infer.SM86_RTX3070", "matmul.20sm", "more_shared.20sm", "periodic.20sm",
        "reduce.20sm", "stencil2d.20sm", "streamwrite.20sm", "twophase.20sm", "vecadd.20sm")  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def write(text: str | bytes) -> Path:
        path = tmp_path / "run.out"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def codes(launches: Launches) -> list[str]:
    return [note.code for note in launches.notes]


def truth(shared_data: Path) -> dict[str, list[dict[str, str]]]:
    runs: dict[str, list[dict[str, str]]] = {}
    with (shared_data / "accel_sim_more" / "launches.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            runs.setdefault(row["run"], []).append(row)
    return runs


def test_every_run_of_the_corpus_is_in_its_table(shared_data: Path) -> None:
    assert tuple(sorted(truth(shared_data))) == RUNS


@pytest.mark.parametrize("run", RUNS)
def test_all_numbers_of_real_runs_are_those_of_an_independent_reading(shared_data: Path, run: str) -> None:
    expected = truth(shared_data)[run]
    launches = read_launches(shared_data / "accel_sim_more" / f"{run}.out.gz")
    assert launches.metadata.origin == "simulated" and not launches.notes
    assert [launches.names[i] for i in launches.column("kernel_id").tolist()] == [
        e["kernel"] for e in expected
    ]
    shapes = [
        [
            "x".join(str(launches.column(f"{what}_{axis}")[row]) for axis in "xyz")
            for row in range(len(launches))
        ]
        for what in ("grid", "block")
    ]
    assert shapes == [[entry[what] for entry in expected] for what in ("grid", "block")]
    assert (launches.column("launch") + 1).tolist() == [int(entry["launch"]) for entry in expected]
    for column, name in {"registers": "registers_per_thread", "shared_memory": "shared_memory_bytes"}.items():
        assert launches.column(name).tolist() == [int(entry[column]) for entry in expected]
    for column, name in COLUMNS.items():
        assert launches.column(name).tolist() == [float(entry[column]) for entry in expected], name
    waves = [float(entry["waves"]) for entry in expected]
    assert np.abs(launches.column("waves_per_sm") - waves).max() <= 0.005001
    (device,) = launches.devices()
    assert device.sm_count == int(expected[0]["sms"])
    assert f"{expected[0]['sms']} SMs, {expected[0]['mem_channels']} memory channels" in device.name
    capability = {"SM7_QV100": "7.0", "SM75_RTX2060": "7.5", "SM86_RTX3070": "8.6"}[expected[0]["config"]]
    assert device.compute_capability == capability


READS = "L2_cache_stats_breakdown[GLOBAL_ACC_R][TOTAL_ACCESS]"


@pytest.mark.parametrize(
    "streams", [(0, 1, 0, 1), (1, 0, 0, 1), (0, 0, 1, 1), (0, 1, 2, 0), (2**64 - 1, 0, 0, 7)]
)
def test_breakdowns_of_caches_are_differenced_within_a_stream(
    log: Callable[[str], Path], streams: tuple[int, ...]
) -> None:
    reads = (62_588, 30_960, 27_360, 61_440)
    counted = [{READS: count, "gpgpu_n_load_insn": 5} for count in reads]
    made = [Launch(traced_id=i + 1, stream=streams[i], counted=counted[i]) for i in range(4)]
    launches = read_launches(log(output(made)))
    assert launches.column("l2_reads").tolist() == list(reads)
    assert launches.column("thread_load_instructions").tolist() == [5.0] * 4


def test_two_real_streams_have_the_numbers_of_each_launch(shared_data: Path) -> None:
    launches = read_launches(shared_data / "accel_sim_parts" / "twostreams.serial.out.gz")
    assert launches.column("stream").tolist() == [0, 1, 0, 1]
    assert launches.column("l2_reads").tolist() == [62_588.0, 30_960.0, 27_360.0, 61_440.0]
    assert launches.column("l2_accesses").tolist() == [63_428.0, 30_960.0, 43_200.0, 92_160.0]


def test_a_log_says_what_was_launched_where_and_by_which_simulator(log: Callable[[str], Path]) -> None:
    path = log(BANNER + output(TWO, gpgpu_compute_capability_major="7", gpgpu_compute_capability_minor="0"))
    launches = read_launches(path)
    found = launches.metadata
    assert (found.level, found.origin, found.format) == ("detailed", "simulated", "accel-sim-output")
    assert (found.tool, found.tool_version) == ("Accel-Sim", "4.2.0")
    assert [d.label() for d in launches.devices()] == ["simulated sm_70 (8 SMs, 3 memory channels)"]
    for column, values in {
        "launch": [4, 8], "report_id": [1, 2], "stream": [0, 0], "grid_x": [16, 7], "grid_y": [2, 1],
        "block_x": [256, 256], "cycles_simulated": [1000.0, 1234.0],
        "cycles_simulated_active": [800.0, 1034.0], "thread_instructions": [50_000.0] * 2,
        "l2_accesses": [100.0, 100.0], "thread_blocks": [32.0, 7.0], "resident_blocks_per_sm": [8.0, 8.0],
        "waves_per_sm": [0.5, 7 / 64],
    }.items():  # fmt: skip
        assert launches.column(column).tolist() == values, column
    assert launches.counters[:2] == ("cycles_simulated_active", "cycles_simulated")
    assert "dram_reads" in launches.counters and "l1_accesses" not in launches.counters
    assert not launches.table["duration_ns"].drop_null() and not launches.table["start_ns"].drop_null()


def test_an_inspection_names_the_origin(log: Callable[[str], Path]) -> None:
    found = inspect_recording(log(output(TWO)))
    assert (found["origin"], found["synthetic"], found["simulated"]) == ("simulated", False, True)
    assert (found["launches"], found["kernels"], found["devices"]) == (
        2, 2, ["simulated GPU (8 SMs, 3 memory channels)"],
    )  # fmt: skip


def test_a_batch_of_one_launch_and_a_compressed_log_read_the_same(log: Callable[[Any], Path]) -> None:
    whole = read_launches(log(output(TWO))).table
    path = log(gzip.compress(output(TWO).encode()))
    with open_recording(path) as recording:
        batches = list(recording.batches(max_launches=1))
    assert [batch.records.num_rows for batch in batches] == [1, 1]
    assert batches[0].new_names.keys().isdisjoint(batches[1].new_names)
    assert read_launches(path).table.equals(whole)


def test_lines_that_end_in_carriage_returns_read_the_same(log: Callable[[Any], Path]) -> None:
    text = BANNER + output(TWO)
    whole = read_launches(log(text)).table
    assert read_launches(log(text.replace("\n", "\r\n"))).table.equals(whole)


def test_a_log_cut_within_statistics_keeps_its_whole_launches(log: Callable[[str], Path]) -> None:
    text = output(TWO, "")
    launches = read_launches(log(text[: text.rfind("L2_total_cache_accesses")]))
    assert launches.column("launch").tolist() == [4]
    assert codes(launches) == ["log_cut_in_statistics", "launch_without_statistics"]
    last = text.count("\n", 0, text.rfind("kernel_name = ")) + 1
    assert launches.notes[0] == make_note("log_cut_in_statistics", line=last)
    assert codes(read_launches(log(text[: text.rfind("kernel_name = ")]))) == ["launch_without_statistics"]
    assert codes(read_launches(log(text))) == ["log_may_be_cut"]


def test_a_cut_compressed_log_keeps_its_whole_launches(log: Callable[[Any], Path]) -> None:
    whole = gzip.compress((output(TWO) + "x" * 500_000).encode())
    launches = read_launches(log(whole[:-20]))
    assert launches.column("launch").tolist() == [4, 8]
    assert codes(launches) == ["log_cut_in_compression"]


def test_a_launch_within_which_the_run_was_ended_is_left_out(log: Callable[[str], Path]) -> None:
    launches = read_launches(log(output(TWO, BREAK)))
    assert launches.column("launch").tolist() == [4]
    line = output(TWO).count("\n", 0, output(TWO).rfind("kernel_name = ")) + 1
    assert launches.notes == (make_note("launch_not_whole", launch=2, line=line),)


@pytest.mark.parametrize("text", [BANNER, BANNER + options(), BANNER + options() + header(TWO[0], 1)])
def test_a_log_without_a_whole_launch_holds_no_launches(log: Callable[[str], Path], text: str) -> None:
    with pytest.raises(NoLaunchesError, match="without the statistics of a whole launch") as caught:
        read_launches(log(text))
    assert caught.value.code == "no_launches" and "simulate again" in caught.value.remedy


def test_two_runs_in_one_file_are_refused(log: Callable[[str], Path]) -> None:
    one = BANNER + output(TWO)
    with pytest.raises(InputError, match="a second simulation begins here") as caught:
        read_launches(log(one + one))
    assert caught.value.line == one.count("\n") + 1
    with pytest.raises(InputError, match="launch 1 comes after launch 2"):
        read_launches(log(output(TWO) + output(TWO)))


def test_a_number_that_is_no_number_is_an_error_with_its_line(log: Callable[[str], Path]) -> None:
    text = output(TWO).replace("L2_total_cache_misses = 80", "L2_total_cache_misses = -nan")
    with pytest.raises(InputError, match="'-nan' is not a whole number") as caught:
        read_launches(log(text))
    assert (caught.value.line, caught.value.field) == (
        text.count("\n", 0, text.index("-nan\n")) + 1, "L2_total_cache_misses",
    )  # fmt: skip


def test_without_the_launch_latency_active_cycles_are_unknown(log: Callable[[str], Path]) -> None:
    text = output(TWO).replace("-gpgpu_kernel_launch_latency", "-gpgpu_kernel_launch_latencz")
    launches = read_launches(log(text))
    assert launches.notes == (make_note("launch_latency_unknown"),)
    assert launches.counters[0] == "cycles_simulated"


def test_launches_below_the_launch_latency_have_no_active_cycles(log: Callable[[str], Path]) -> None:
    short = [Launch(traced_id=1), Launch(traced_id=2, cycles=0), Launch(traced_id=3, cycles=200)]
    launches = read_launches(log(output(short)))
    assert launches.table["cycles_simulated_active"].to_pylist() == [800.0, None, 0.0]
    assert set(launches.notes) == {
        make_note("cycles_below_latency", launches=1, first=1),
        make_note("zero_cost", quantity="cycles_simulated", launches=1, process=0, launch=1),
        make_note("zero_cost", quantity="cycles_simulated_active", launches=1, process=0, launch=2),
    }


def test_resident_blocks_printed_for_another_launch_are_not_used(log: Callable[[str], Path]) -> None:
    later = Launch(traced_id=2, registers=128, printed_ctas_per_sm=None)
    launches = read_launches(log(output([Launch(), later])))
    assert launches.column("resident_blocks_per_sm").tolist() == [8.0, 2.0]
    silent = output([Launch(), later]).replace("-gpgpu_shader_registers", "-gpgpu_shader_registerz")
    found = read_launches(log(silent)).table
    assert found["resident_blocks_per_sm"].to_pylist() == [8.0, None]
    assert found["waves_per_sm"].to_pylist() == [0.5, None]


def test_launches_of_several_streams_keep_their_own_headers(log: Callable[[str], Path]) -> None:
    path = log(two_streams())
    launches = read_launches(path)
    assert [launches.names[i] for i in launches.column("kernel_id").tolist()] == ["k0", "k1", "k2"]
    for column, values in {"launch": [9, 10, 11], "grid_x": [1, 2, 3], "stream": [0, 1, 0]}.items():
        assert launches.column(column).tolist() == values
    assert launches.table["cycles_simulated_active"].to_pylist() == [None] * 3
    assert launches.column("cycles_simulated").tolist() == [1000.0] * 3
    assert launches.notes == (make_note("launches_side_by_side", launches=3, first=10),)
    assert [launch.traced_id for launch in read_output(path)[1]] == [11, 10, 12]


def test_launches_printed_together_have_shapes_and_no_counters(log: Callable[[str], Path]) -> None:
    text = two_streams()
    first = statistics(Launch(name="k1", traced_id=11, grid=(2, 1, 1)), 2, Totals())
    assert first in text
    both = first.replace("kernel_launch_uid = 2", "kernel_launch_uid = 2 1")
    start = text.index("kernel_name = k0")
    end = text.index("kernel_name = k2")
    launches = read_launches(log(text[:start].replace(first, both) + text[end:]))
    assert launches.column("grid_x").tolist() == [1, 2, 3]
    assert [launches.names[i] for i in launches.column("kernel_id").tolist()] == ["k0", "k1", "k2"]
    assert launches.table["cycles_simulated"].to_pylist() == [None, None, 1000.0]
    assert launches.table["cycles_simulated_active"].to_pylist() == [None, None, 800.0]
    assert codes(launches) == ["launches_at_once"]


def test_a_trace_that_is_simulated_twice_needs_other_numbers(log: Callable[[str], Path]) -> None:
    path = log(output([Launch(traced_id=4), Launch(traced_id=4)]))
    with pytest.raises(InputError, match="simulates the traced launch 4 twice") as caught:
        read_launches(path)
    assert "--launch-offset 0" in caught.value.remedy
    assert read_launches(path, ReadOptions(launch_offset=0)).column("launch").tolist() == [0, 1]
    with pytest.raises(InputError, match="kernel ids begin at 1"):
        read_launches(log(output([Launch(traced_id=0)])))


def test_a_log_that_does_not_echo_shapes_is_refused(log: Callable[[str], Path]) -> None:
    text = output(TWO).replace("-grid dim", "-grid dip")
    with pytest.raises(InputError, match="does not echo the grid and the block of launch 1"):
        read_launches(log(text))


def test_a_simulator_s_run_is_never_called_synthetic(log: Callable[[str], Path]) -> None:
    with pytest.raises(InputError, match="neither measured nor synthetic"):
        read_launches(log(output(TWO)), ReadOptions(synthetic=True))


def test_a_counter_left_out_while_it_is_zero_counts_as_zero(log: Callable[[str], Path]) -> None:
    hit, total = (f"\tL2_cache_stats_breakdown[GLOBAL_ACC_R][{what}]" for what in ("HIT", "TOTAL_ACCESS"))
    seen = iter([f"{hit} = 0\n", f"{hit} = 3\n{total} = 8\n", f"{hit} = 3\n{total} = 8\n"])
    parts = output([*TWO, Launch(traced_id=12)]).split("L2_total_cache_miss_rate")
    text = parts[0] + "".join(f"{next(seen)}L2_total_cache_miss_rate{part}" for part in parts[1:])
    launches = read_launches(log(text))
    assert launches.column("l2_reads").tolist() == [0.0, 8.0, 0.0]
    assert launches.column("l2_read_hits").tolist() == [0.0, 3.0, 0.0]
    assert "l2_writes" in launches.counters  # left out beside a printed counter: 0
    assert "l2_reads" not in read_launches(log(output(TWO))).counters
