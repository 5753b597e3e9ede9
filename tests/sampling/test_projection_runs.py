"""Projection of whole runs and of files by content; the acceptance on real Accel-Sim runs; Table 4."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assay_sampling.errors import InputError, ParameterError, RefusedError
from assay_sampling.notes.registry import make_note
from assay_sampling.projection.files import ProjectionOptions, parse_options, project_file
from assay_sampling.projection.pka_table import (
    PkaRow,
    SimulatedWorkload,
    application_row,
    pka_table,
    suite_means,
)
from assay_sampling.projection.projector import ProjectionParameters
from assay_sampling.projection.runs import LaunchProjection, project_run
from assay_sampling.projection.series_csv import read_series
from assay_sampling.projection.summary import summary_of
from assay_sampling.simulators.accel_sim.run import SimulatorRun
from tests.support.sampling.accel_sim_logs import EXIT, Launch, header, output, sample

# 32 blocks on 8 SMs of 2 blocks: two waves. Latency 200, then an IPC of 50 until cycle 1,000.
LAUNCH = Launch(traced_id=6, cycles=1000, instructions=40_000, printed_ctas_per_sm=2, l2=(160, 40))
SAMPLES = "".join(
    sample(cycle, 50 * max(cycle - 200, 0), 4 if cycle > 200 else 0, l2=(1, 3, 4, 12))
    for cycle in range(100, 1000, 100)
)
WINDOW = {"window_cycles": "200", "s": "1"}


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "out").write_text(output([LAUNCH]))
    (tmp_path / "log").write_text(SAMPLES)
    return tmp_path / "out", tmp_path / "log"


def project_all(
    logs: tuple[Path, Path], rule: str | None = None, sms: int | None = None
) -> list[LaunchProjection]:
    parameters = ProjectionParameters.model_validate({"rule": rule, "window_cycles": 200, "s": 1})
    return list(project_run(SimulatorRun(*logs), parameters, sms=sms))


def test_a_run_is_projected_with_what_its_log_says(logs: tuple[Path, Path]) -> None:
    (found,) = project_all(logs)
    # Stable at cycle 400; 16 blocks are a wave and have finished at 600; the rest at an IPC of 50.
    assert found.wave_ctas == 16
    assert (found.simulated_cycles, found.projected_cycles) == (600, pytest.approx(1000))
    assert found.signed_error_percent == pytest.approx(0)
    assert found.projection.metrics["l2_miss_rate"].projected == pytest.approx(0.25)
    assert found.projection.metrics["dram_percent"].projected == pytest.approx(20)
    document = found.to_dict()
    assert (document["traced_id"], document["true_l2_miss_rate"]) == (6, 0.25)
    (paper,) = project_all(logs, "paper")
    assert (paper.simulated_cycles, paper.projected_cycles) == (1000, 1000)  # the latency is in its IPC


def test_errors_are_of_all_cycles_and_of_those_without_the_latency(logs: tuple[Path, Path]) -> None:
    logs[0].write_text(output([replace(LAUNCH, cycles=1050)]))
    (found,) = project_all(logs)
    assert found.signed_error_percent == pytest.approx(-100 * 50 / 1050)
    assert found.active_error_percent == pytest.approx(-100 * 50 / 850)
    summary = summary_of([found])
    assert summary["mean_error_percent"] == pytest.approx(100 * 50 / 1050)
    assert summary["speedup"] == pytest.approx(1050 / 600)


def test_the_summary_counts_launches_that_do_not_stop_as_simulated_whole(logs: tuple[Path, Path]) -> None:
    logs[0].write_text(output([replace(LAUNCH, cycles=1050)]))
    (stopped,) = project_all(logs)
    (whole,) = project_all(logs, "paper")
    whole = replace(whole, projection=None)
    summary = summary_of([stopped, whole, whole])
    assert (summary["launches"], summary["stopped"]) == (3, 1)
    assert summary["mean_error_percent"] == pytest.approx(100 * 50 / 1050)
    assert summary["mean_error_over_all_percent"] == pytest.approx(100 * 50 / 1050 / 3)
    assert summary["mean_active_error_over_all_percent"] == pytest.approx(100 * 50 / 850 / 3)
    assert summary["largest_active_error_percent"] == pytest.approx(100 * 50 / 850)
    assert summary["signed_error_percent"] == pytest.approx(-100 * 50 / 3150)
    assert summary["active_error_percent"] == pytest.approx(-100 * 50 / 2550)
    assert summary["saved_percent"] == pytest.approx(100 * 450 / 3150)
    assert summary["active_saved_percent"] == pytest.approx(100 * 450 / 2550)
    assert stopped.to_dict()["would_stop"] == []


def test_the_number_of_sms_is_never_assumed(logs: tuple[Path, Path]) -> None:
    text = output([LAUNCH]).replace("-gpgpu_n_clusters", "-gpgpu_n_klusters")
    logs[0].write_text(text)
    with pytest.raises(ParameterError, match="how many SMs"):
        project_all(logs)
    assert project_all(logs, sms=4)[0].wave_ctas == 8


def test_an_incomplete_launch_has_no_truth_and_no_instructions(logs: tuple[Path, Path]) -> None:
    logs[0].write_text(output([replace(LAUNCH, issued=30)]))
    (found,) = project_all(logs)
    assert found.projection.rule == "paper"
    assert (found.true_cycles, found.signed_error_percent) == (None, None)
    assert summary_of([found])["true_cycles"] is None
    (asked,) = project_all(logs, "instructions")
    assert asked.projection is None
    assert asked.reason == make_note("instructions_unknown")


def test_launches_without_samples_keep_their_own_cycles(logs: tuple[Path, Path]) -> None:
    (found,) = project_run(SimulatorRun(logs[0]))
    assert (found.projection, found.projected_cycles, found.reason) == (
        None,
        1000,
        make_note("intervals_missing"),
    )
    assert found.to_dict()["stop_cycles"] is None


def test_files_are_told_apart_by_content(logs: tuple[Path, Path], tmp_path: Path) -> None:
    options = parse_options(WINDOW, ProjectionOptions)
    assert project_file(*logs, options)["launches"][0]["stop_cycles"] == 600
    given = {**WINDOW, "wave_ctas": "16", "total_ctas": "32", "total_instructions": "40000"}
    alone = project_file(logs[1], None, parse_options(given, ProjectionOptions))
    assert alone["format"] == "accel-sim-intervals"
    # Without the options the latency is what the samples without instructions show.
    assert (alone["stop_cycles"], alone["projected_cycles"]) == (600, pytest.approx(1000))
    other = tmp_path / "notes.txt"
    other.write_text("nothing of the kind\n")
    with pytest.raises(InputError, match="neither a simulator's log nor a series"):
        project_file(other)


def test_files_that_do_not_go_together_are_refused(logs: tuple[Path, Path]) -> None:
    out, log = logs
    with pytest.raises(ParameterError, match="it is an interval log itself"):
        project_file(log, out)
    with pytest.raises(ParameterError, match="a simulator's log holds it for every launch"):
        project_file(out, log, parse_options({"total_ctas": 5}, ProjectionOptions))
    with pytest.raises(ParameterError, match="the file does not hold wave_ctas"):
        project_file(log)
    log.write_text(SAMPLES + sample(100, 5, 1, before=40_000))
    with pytest.raises(RefusedError, match="holds several launches"):
        project_file(log, None, parse_options({"wave_ctas": 5, "total_ctas": 5}, ProjectionOptions))


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({"window": "3"}, "there is no parameter 'window'"),
        ({"rule": "best"}, "parameter 'rule'"),
        ({"s": "0"}, "greater than 0, not '0'"),
        ({"s": "nan"}, "finite"),
        ({"wave_ctas": "1.5"}, "parameter 'wave_ctas'"),
    ],
)
def test_wrong_parameters_are_named(given: dict[str, str], cause: str) -> None:
    with pytest.raises(ParameterError, match=cause):
        parse_options(given, ProjectionOptions)


@pytest.mark.parametrize(
    ("text", "line", "field", "cause"),
    [
        ("cycles,instructions\n1,2\n", 1, None, "no column 'ctas'"),
        ("cycles,instructions,ctas\n", None, None, "holds no sample"),
        ("cycles,instructions,ctas\n500,1,0\n1000,x,0\n", 3, "instructions", "'x' is not a number"),
        ("cycles,instructions,ctas\n500,1\n", 2, "ctas", "'' is not a number"),
        ("cycles,instructions,ctas\n5,1,0\n10,1,0\n16,1,0\n21,2,0\n", 4, "cycles", "6 cycles after"),
        ("cycles,instructions,ctas\n5,1,0\n10,1,0\n10,1,0\n", 4, "cycles", "0 cycles after"),
        ("cycles,instructions,ctas\n5,4,0\n10,1,0\n", None, None, "instructions of sample 2"),
    ],
)
def test_faults_of_a_csv_name_line_and_field(
    tmp_path: Path, text: str, line: int | None, field: str | None, cause: str
) -> None:
    path = tmp_path / "series.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=cause) as caught:
        read_series(path)
    assert (caught.value.line, caught.value.field) == (line, field)


def test_a_csv_may_have_other_columns_and_end_early(tmp_path: Path) -> None:
    path = tmp_path / "series.csv"
    path.write_text("ipc,ctas,cycles,instructions\n1,0,500,20\n\n2,3,1000,50\n2,4,1100,60\n")
    series = read_series(path)
    assert (series.cycles.tolist(), series.instructions.tolist()) == ([500, 1000, 1100], [20, 50, 60])
    assert series.ctas.tolist() == [0, 3, 4]


# --- real runs ---------------------------------------------------------------------------------------------


def accepted(
    folder: Path, window_cycles: float, s: float
) -> tuple[list[LaunchProjection], list[LaunchProjection]]:
    names = ["vecadd_k5.20sm", "twophase_k3.20sm", "fma_k4.20sm"]
    names += sorted(path.name.removesuffix(".visualizer.gz") for path in folder.glob("*.base.visualizer.gz"))
    found: list[list[LaunchProjection]] = []
    for rule in (None, "artifact"):
        parameters = ProjectionParameters(rule=rule, window_cycles=window_cycles, s=s)
        runs = [SimulatorRun(folder / f"{n}.out.gz", folder / f"{n}.visualizer.gz") for n in names]
        found.append([launch for run in runs for launch in project_run(run, parameters)])
    return found[0], found[1]


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("setting", "greatest", "counts"),
    [((1500, 3), 0.7, (19, 13, 10)), ((3000, 0.25), 1.0, (2, 2, 2))],
)
def test_the_rule_by_instructions_errs_less_than_the_artifact_on_real_runs(
    shared_data: Path, setting: tuple[float, float], greatest: float, counts: tuple[int, int, int]
) -> None:
    ours, artifact = accepted(shared_data / "accel_sim", *setting)
    stops = [[x.projection.stop is not None for x in launches] for launches in (ours, artifact)]
    pairs = [(a, b) for a, b, x, y in zip(ours, artifact, *stops, strict=True) if x and y]
    assert (len(ours), (sum(stops[0]), sum(stops[1]), len(pairs))) == (43, counts)
    errors = np.abs([[a.signed_error_percent, b.signed_error_percent] for a, b in pairs])
    active = np.abs([[a.active_error_percent, b.active_error_percent] for a, b in pairs])
    assert errors[:, 0].mean() <= greatest * errors[:, 1].mean()
    assert active[:, 0].mean() <= greatest * active[:, 1].mean()


@pytest.mark.shared_data
def test_l2_misses_of_real_runs_are_projected(shared_data: Path) -> None:
    ours, _ = accepted(shared_data / "accel_sim", 1500, 3)
    off = [
        abs(x.projection.metrics["l2_miss_rate"].projected - x.launch.l2_misses / x.launch.l2_accesses)
        for x in ours
        if x.projection.stop
    ]
    assert max(off) < 0.05


# --- Table 4 -----------------------------------------------------------------------------------------------


def workload(launches: list[int], **changed: list[float]) -> SimulatedWorkload:
    columns: dict[str, list[float]] = {
        "cycles": [1000, 2000, 3000, 4000],
        "projected_cycles": [1100, 2000, 2700, 4000],
        "stopped_cycles": [500, 2000, 1500, 4000],
        "dram_percent": [10, 20, 30, 40],
        "projected_dram_percent": [12, 20, 24, 40],
    } | changed
    rows = {name: np.array(values, np.float64)[launches] for name, values in columns.items()}
    return SimulatedWorkload(launch=np.array(launches, np.int64), **rows)


def row(simulated: SimulatedWorkload, suite: str = "a", **changed: float | None) -> PkaRow:
    given = {"silicon_cycles": 12_500.0, "launches": 4, "cycles_per_second": 1.0} | changed
    return application_row(
        suite, "app", selected=np.array([2, 0]), weights=np.array([3.0, 1.0]), simulated=simulated, **given
    )


def test_the_columns_of_table_4_by_hand() -> None:
    found = row(workload([3, 0, 1, 2]))
    assert found.simulator_error_percent == pytest.approx(20)  # 10,000 of 12,500
    assert found.pks_error_percent == pytest.approx(20)  # 3 x 3,000 + 1,000
    assert found.pka_error_percent == pytest.approx(100 * (12_500 - 9200) / 12_500)
    assert (found.pks_speedup, found.pka_speedup) == (pytest.approx(2.5), pytest.approx(5))
    assert (found.pks_hours, found.pka_hours) == (pytest.approx(4000 / 3600), pytest.approx(2000 / 3600))
    assert found.dram_full_percent == pytest.approx((10 + 40 + 90 + 160) / 10)
    assert found.dram_pka_percent == pytest.approx((3 * 2700 * 24 + 1100 * 12) / 9200)
    assert found.pka_speedup_over == "full"


def test_without_a_full_simulation_the_speedup_is_over_pks() -> None:
    found = row(workload([0, 2]))
    assert (found.simulator_error_percent, found.pks_speedup, found.dram_full_percent) == (None, None, None)
    assert (found.pka_speedup, found.pka_speedup_over) == (pytest.approx(2), "pks")
    assert found.pks_error_percent == pytest.approx(20)


def test_missing_values_never_drop_a_row() -> None:
    nothing = row(workload([]), silicon_cycles=None, cycles_per_second=None)
    assert {v for k, v in nothing.to_dict().items() if k.endswith(("percent", "hours", "speedup"))} == {None}
    no_silicon = row(workload([0, 1, 2, 3]), silicon_cycles=None)
    assert (no_silicon.pks_error_percent, no_silicon.pka_speedup) == (None, pytest.approx(5))
    table = pka_table([nothing, no_silicon])
    assert [(r.application, r.applications) for r in table] == [("app", 1), ("app", 1), ("mean", 2)]
    assert table[-1].known["pka_speedup"] == 1


def test_dram_use_is_missing_where_too_few_cycles_have_samples() -> None:
    nan = float("nan")
    assert row(workload([0, 1, 2, 3], dram_percent=[nan, 20, 30, 40])).dram_full_percent is None
    tiny = row(workload([0, 1, 2, 3], cycles=[50, 2000, 3000, 4000], dram_percent=[nan, 20, 30, 40]))
    assert tiny.dram_full_percent == pytest.approx((40 + 90 + 160) / 9)


def test_suites_have_arithmetic_means_of_errors_and_geometric_means_of_speedups() -> None:
    first = row(workload([0, 1, 2, 3]))
    second = replace(first, pks_error_percent=40.0, pks_speedup=10.0, pka_speedup=20.0)
    over_pks = replace(first, pka_speedup=900.0, pka_speedup_over="pks", pks_speedup=None)
    other = replace(first, suite="b", pka_speedup=7.0)
    a, b = suite_means([first, second, other, over_pks])
    assert (a.suite, b.suite, a.applications) == ("a", "b", 3)
    assert a.pks_error_percent == pytest.approx((20 + 40 + 20) / 3)
    assert a.pks_speedup == pytest.approx(5)  # of 2.5 and 10
    assert (a.pka_speedup, a.pka_speedup_over) == (pytest.approx(10), "full")  # of 5 and 20
    assert b.pka_speedup == pytest.approx(7)
    assert [r.suite for r in pka_table([first, other, second])] == ["a", "a", "a", "b", "b"]


def test_a_launch_that_is_there_twice_is_refused() -> None:
    with pytest.raises(RefusedError, match="launch 2 is there twice"):
        row(workload([0, 2, 2]))
    with pytest.raises(RefusedError, match="silicon cycles are 0"):
        row(workload([0, 2]), silicon_cycles=0.0)


def test_a_workload_comes_from_projected_runs(logs: tuple[Path, Path]) -> None:
    simulated = SimulatedWorkload.of(project_all(logs))
    assert simulated.launch.tolist() == [5]  # 0-based, from the traced id
    assert (simulated.cycles.tolist(), simulated.stopped_cycles.tolist()) == ([1000], [600])
    assert simulated.projected_dram_percent.tolist() == [pytest.approx(20)]
    unfinished = output([LAUNCH], "") + header(replace(LAUNCH, traced_id=8), 2) + EXIT
    logs[0].write_text(unfinished)
    assert SimulatedWorkload.of(project_all(logs)).launch.tolist() == [5]
