"""The interval log, and its join with the standard output: what belongs to which launch."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from assay_sampling.errors import InputError
from assay_sampling.notes.registry import make_note
from assay_sampling.simulators.accel_sim.run import SimulatorRun
from assay_sampling.simulators.accel_sim.visualizer import IntervalLog, looks_like_intervals
from tests.support.sampling.accel_sim_logs import Launch, header, output, sample

# Launch 2 is shorter than the interval of 100 cycles; launch 3 starts with a block that is all tail.
LAUNCHES = (
    Launch(traced_id=3, cycles=250, instructions=900),
    Launch(traced_id=4, cycles=60, instructions=50),
    Launch(traced_id=7, cycles=310, instructions=4000),
)
SAMPLES = (
    sample(100, 300, 5, l2=(1, 2, 3, 4))
    + sample(200, 700, 7, dram=(0, 0, 30))
    + sample(100, 0, 52, before=950, l2=(9, 9, 9, 9))
    + sample(200, 1500, 3, before=950, l2=(1, 1, 1, 1))
    + sample(300, 3500, 20, before=950)
)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def run(tmp_path: Path) -> SimulatorRun:
    return SimulatorRun(write(tmp_path / "out", output(LAUNCHES)), write(tmp_path / "log", SAMPLES))


def test_samples_go_to_their_launches_though_one_has_none(run: SimulatorRun) -> None:
    first, second, third = run.launches()
    assert first.series.cycles.tolist() == [100, 200]
    assert first.series.instructions.tolist() == [300, 700]
    assert second.series is None
    assert second.reason == make_note("shorter_than_interval", interval_cycles=100)
    assert third.series.cycles.tolist() == [100, 200, 300]
    assert third.series.instructions_before == 950
    assert run.notes == ()


def test_values_of_the_interval_are_exact(run: SimulatorRun) -> None:
    first, _, third = run.launches()
    assert first.series.ctas.tolist() == [5, 7]
    assert first.series.l2_accesses.tolist() == [10, 0]
    assert first.series.l2_misses.tolist() == [4, 0]
    assert first.series.dram_percent.tolist() == [20, 10]
    assert (first.series.channels, first.series.tail_ctas) == (3, 0)
    # No instruction of launch 3 before its first sample: blocks, L2 and DRAM in it are the others'.
    assert third.series.ctas.tolist() == [0, 3, 20]
    assert third.series.tail_ctas == 52
    assert third.series.l2_accesses.tolist() == [0, 4, 0]
    assert third.series.dram_percent.tolist() == [0, 20, 20]


def test_a_first_block_of_two_launches_is_divided_by_the_blocks_issued(tmp_path: Path) -> None:
    samples = sample(100, 300, 5) + sample(200, 700, 7) + sample(100, 10, 60, before=950)
    log = IntervalLog(write(tmp_path / "log", samples))
    mixed = list(log.series())[1]
    assert mixed.first_is_mixed
    assert (mixed.ctas.tolist(), mixed.tail_ctas) == ([0], 60)
    launches = (*LAUNCHES[:2], Launch(traced_id=7, cycles=110, instructions=20))
    run = SimulatorRun(write(tmp_path / "out", output(launches)), log.path)
    divided = list(run.launches())[2].series
    # Launch 1 has 32 blocks, 12 were counted; launch 2 has 32: 52 of the 60 are theirs.
    assert (divided.ctas.tolist(), divided.tail_ctas, divided.first_is_mixed) == ([8], 52, False)


def test_launches_are_split_where_only_the_instructions_before_tell(tmp_path: Path) -> None:
    samples = sample(100, 300, 0) + sample(200, 10, 0, before=999)
    assert [x.cycles.tolist() for x in IntervalLog(write(tmp_path / "log", samples)).series()] == [
        [100],
        [200],
    ]


def test_a_log_without_instructions_before_is_split_by_its_cycles(tmp_path: Path) -> None:
    text = "".join(line for line in SAMPLES.splitlines(True) if not line.startswith("globaltot"))
    found = list(IntervalLog(write(tmp_path / "log", text)).series())
    assert [x.cycles.tolist() for x in found] == [[100, 200], [100, 200, 300]]
    assert found[1].instructions_before is None


def test_logs_without_l2_and_dram_say_so(tmp_path: Path) -> None:
    text = "".join(x for x in SAMPLES.splitlines(True) if not x.startswith(("Ltwo", "dram")))
    series = next(iter(IntervalLog(write(tmp_path / "log", text)).series()))
    assert np.isnan(series.l2_accesses).all()
    assert np.isnan(series.dram_percent).all()
    assert (series.channels, series.ctas.tolist()) == (0, [5, 7])


def test_a_sample_that_is_cut_off_is_left_out_and_said(tmp_path: Path) -> None:
    text = SAMPLES[: SAMPLES.rfind("globalcyclecount") + 19]
    log = IntervalLog(write(tmp_path / "log", text))
    assert [len(x) for x in log.series()] == [2, 2]
    assert log.notes[0].code == "log_cut_in_sample"


def test_an_interval_log_that_ends_early_is_said(tmp_path: Path) -> None:
    out = write(tmp_path / "out", output(LAUNCHES))
    run = SimulatorRun(out, write(tmp_path / "log", sample(100, 300, 5)))
    first, _, third = run.launches()
    assert len(first.series) == 1
    assert third.reason == make_note("intervals_end_before")
    assert run.notes == (make_note("intervals_cut_in_launch", launch=1, cycle=100, cycles=250),)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (sample(100, 300, 5) + sample(200, 1700, 7), "its samples end at cycle 200"),
        (sample(100, 300, 5) + sample(200, 700, 7) + sample(100, 1, 0, before=940), "does not know"),
        (SAMPLES + sample(100, 0, 0, before=5000), "does not know"),
        (sample(100, 0, 0, before=950), "has no samples"),
        (sample(100, 300, 5) + sample(100, 0, 0, before=950), "its samples end at cycle 100"),
    ],
)
def test_logs_of_different_runs_are_refused(tmp_path: Path, text: str, cause: str) -> None:
    run = SimulatorRun(write(tmp_path / "out", output(LAUNCHES)), write(tmp_path / "log", text))
    with pytest.raises(InputError, match="not of the same run") as caught:
        list(run.launches())
    assert cause in str(caught.value)
    assert caught.value.path == str(tmp_path / "log")


def test_samples_of_a_launch_that_the_run_ended_within_are_no_mismatch(tmp_path: Path) -> None:
    text = output(LAUNCHES[:2], "") + header(LAUNCHES[2], 3)
    run = SimulatorRun(write(tmp_path / "out", text), write(tmp_path / "log", SAMPLES))
    *_, stopped = run.launches()
    assert (stopped.launch.uid, stopped.launch.complete, stopped.launch.line) == (3, False, 0)
    assert (stopped.launch.cycles, stopped.launch.instructions) == (300, 3500)
    assert stopped.series.ctas.tolist() == [0, 3, 20]
    assert ("launch", 3) in run.notes[0].parameters


@pytest.mark.parametrize(
    ("find", "put", "cause"),
    [
        ("globalinsncount: 700", "globalinsncount: 7o0", "'7o0' is not a whole number"),
        ("globalinsncount: 700\n", "", "has no instructions"),
        ("globalinsncount: 700", "globalinsncount: 70", "go backwards"),
        ("dramutil: 1 0", "dramutil: 1 -3", "'-3' is not a whole number"),
    ],
)
def test_faults_of_an_interval_log_name_the_line(tmp_path: Path, find: str, put: str, cause: str) -> None:
    assert find in SAMPLES
    with pytest.raises(InputError, match=cause) as caught:
        list(IntervalLog(write(tmp_path / "log", SAMPLES.replace(find, put))).series())
    assert caught.value.line > 1


def test_other_files_are_no_interval_logs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not an interval log"):
        list(IntervalLog(write(tmp_path / "log", output(LAUNCHES))).series())
    assert looks_like_intervals(SAMPLES.encode())
    assert not looks_like_intervals(output(LAUNCHES).encode())


@pytest.mark.shared_data
def test_every_sample_of_every_real_log(shared_data: Path) -> None:
    folder = shared_data / "accel_sim"
    expected: dict[tuple[str, int], list[list[float]]] = {}
    with gzip.open(folder / "intervals.csv.gz", "rt") as file:
        for row in csv.reader(file):
            if row[0] != "run":
                expected.setdefault((row[0], int(row[1])), []).append([float(v) for v in row[2:]])
    seen = 0
    for name in sorted({run for run, _ in expected}):
        run = SimulatorRun(folder / f"{name}.out.gz", folder / f"{name}.visualizer.gz")
        for sampled in run.launches():
            cycle, instructions, _, ctas, read_hit, read_miss, write_hit, write_miss, dram = np.array(
                expected[name, sampled.launch.uid]
            ).T
            series = sampled.series
            np.testing.assert_array_equal(series.cycles, cycle)
            np.testing.assert_array_equal(series.instructions, instructions)
            np.testing.assert_array_equal(series.ctas[1:], ctas[1:])
            assert series.ctas[0] + series.tail_ctas == ctas[0]
            np.testing.assert_array_equal(series.l2_misses[1:], (read_miss + write_miss)[1:])
            np.testing.assert_array_equal(
                series.l2_accesses[1:], (read_miss + write_miss + read_hit + write_hit)[1:]
            )
            np.testing.assert_allclose(series.dram_percent[1:], dram[1:], atol=0.006)
            assert series.channels == run.config.memory_channels
            seen += 1
        assert run.notes == ()
    assert seen == len(expected) == 44
