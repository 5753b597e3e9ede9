"""What is joined into one profile: cycles of one pass with features of several, slices of equal GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from assay_sampling.errors import LaunchTableError, MisalignedError, RefusedError
from assay_sampling.launches.table import Condition, Device
from assay_server.analysis import pipeline
from assay_server.analysis.runs.loading import load_run
from assay_server.analysis.runs.request import AnalysisRequest, FailedRun, RunData
from assay_server.campaigns.analysing.request_builder import paired


def analyse(asked: AnalysisRequest) -> dict[str, Any]:
    """The report as scripts have it."""
    return pipeline.analyse(asked).to_document()


StoreRun = Callable[..., RunData]
Counters = Callable[[Sequence[float]], dict[str, np.ndarray]]
KERNELS = ["a", "b", "a", "c", "a", "b", "a", "c"]
DISTURBED = [100.0, 210, 100, 330, 100, 210, 100, 330]
TRUE = [90.0, 200, 90, 300, 90, 200, 90, 300]
LIMIT = 1 << 30


def features(
    store_run: StoreRun, counters: Counters, kernels: Sequence[str] = KERNELS, **more: Any
) -> RunData:
    return store_run(
        "V100", "detailed", kernels, cycles_gpc_avg=DISTURBED[: len(kernels)],
        replay_passes=[3.0] * len(kernels), **counters([5.0] * len(kernels)), run={"live": True, **more},
    )  # fmt: skip


def cycles(store_run: StoreRun, kernels: Sequence[str] = KERNELS, **more: Any) -> RunData:
    return store_run(
        "V100", "detailed", kernels, cycles_gpc_avg=TRUE[: len(kernels)], clock_gpc_hz=[1e9] * len(kernels),
        instructions=[6.0] * len(kernels), replay_passes=[1.0] * len(kernels),
        run={"live": True, "costs_only": True, **more},
    )  # fmt: skip


def test_cycles_are_those_of_the_run_in_one_pass_and_features_those_of_the_other(
    store_run: StoreRun, counters: Counters
) -> None:
    one_pass, several = cycles(store_run), features(store_run, counters)
    [run] = paired([one_pass, several])
    assert (run.run_id, run.cycles) == (several.run_id, one_pass)
    launches = load_run(run, LIMIT)
    assert launches.column("cycles_gpc_avg").tolist() == TRUE
    assert launches.column("instructions").tolist() == [6.0] * 8
    assert launches.column("clock_gpc_hz").tolist() == [1e9] * 8
    assert launches.column("global_load_sectors").tolist() == [1.0] * 8
    assert launches.column("replay_passes").tolist() == [3.0] * 8
    assert [note.text for note in launches.notes] == [
        f"cycles of {one_pass.run_id}, other counters of {several.run_id}"
    ]
    # Alone, the other has what it measured itself.
    assert load_run(several, LIMIT).column("cycles_gpc_avg").tolist() == DISTURBED


def test_windows_of_two_lengths_are_joined_where_both_have_launches(
    store_run: StoreRun, counters: Counters
) -> None:
    for kept, other in ((8, 6), (6, 8)):
        run = replace(
            features(store_run, counters, KERNELS[:kept]), cycles=cycles(store_run, KERNELS[:other])
        )
        launches = load_run(run, LIMIT)
        assert launches.column("launch").tolist() == list(range(6))
        assert launches.column("cycles_gpc_avg").tolist() == TRUE[:6]
        assert ("launches_in_both" in {note.code for note in launches.notes}) == (kept == 8)


def test_runs_of_other_launches_are_not_joined(store_run: StoreRun, counters: Counters) -> None:
    run = replace(features(store_run, counters), cycles=cycles(store_run, ["a", "b", "z", "z", *KERNELS[4:]]))
    with pytest.raises(MisalignedError, match="75 % of the launches match"):
        load_run(run, LIMIT)
    flushed = cycles(store_run, condition=Condition("all", "none", 100.0))
    other = store_run(
        "V100", "detailed", KERNELS, cycles_gpc_avg=TRUE,
        metadata={"condition": Condition("all", "none", 100.0)},
    )  # fmt: skip
    run = features(store_run, counters)
    assert paired([flushed, run]) == (flushed, run)
    with pytest.raises(RefusedError, match="two conditions"):
        load_run(replace(run, cycles=other), LIMIT)


def test_a_report_rests_on_both_runs_and_on_the_flags_of_both(
    store_run: StoreRun, counters: Counters
) -> None:
    flags = (("throttled_thermal", "hot", True),)
    one_pass, several = cycles(store_run), features(store_run, counters)
    request = AnalysisRequest("c-1", "c", methods=(("pks", {}),), runs=paired([one_pass, several]))
    report = analyse(request)
    [row] = report["rows"]
    assert (row["status"], row["cost"]["total"]) == ("ok", sum(TRUE))
    assert row["runs"] == [several.run_id, one_pass.run_id]
    assert [run["run_id"] for run in report["runs"]] == [one_pass.run_id, several.run_id]
    hot = paired([replace(one_pass, flags=flags), several])
    [row] = analyse(replace(request, runs=hot))["rows"]
    assert row["status"] == "refused" and f"{one_pass.run_id}: hot" in row["reason"]


def test_warm_cycles_of_one_pass_are_what_flushed_ones_are_compared_with(
    store_run: StoreRun, counters: Counters
) -> None:
    condition = Condition("all", "none", 100.0)
    flushed = store_run(
        "V100", "detailed", KERNELS, cycles_gpc_avg=[1.1 * value for value in TRUE],
        instructions=[6.0] * 8, metadata={"condition": condition},
        run={"live": True, "condition": condition, "costs_only": True},
    )  # fmt: skip
    runs = paired([cycles(store_run), features(store_run, counters), flushed])
    report = analyse(AnalysisRequest("c-1", "c", methods=(("pks", {}),), runs=runs))
    [entry] = report["cold_start"]
    assert entry["status"] == "ok"
    assert entry["weighted_difference_percent"] == pytest.approx(10.0)


def test_cycles_that_could_not_be_measured_apart_are_flagged(store_run: StoreRun, counters: Counters) -> None:
    several = features(store_run, counters)
    failed = FailedRun("c-1.0007", workload="training", device_kind="V100", level="detailed")
    [run] = paired([several], [failed])
    assert run.flags == (
        (
            "cycles_of_several_passes",
            "run c-1.0007, which should have measured them in one pass, has no data",
            False,
        ),
    )
    elsewhere = replace(failed, device_kind="A100")
    assert paired([several], [elsewhere, replace(failed, level="light")]) == (several,)
    # The other way round there are cycles, and no features.
    one_pass = cycles(store_run)
    assert paired([one_pass], [failed]) == (one_pass,)


def slices(store_run: StoreRun, *parts: dict[str, Any]) -> RunData:
    """A detailed run of two slices, each made on a GPU of its own."""
    made = [
        store_run(
            "V100", "detailed", part.pop("kernels", KERNELS), launch=np.arange(8) + 8 * number,
            cycles_gpc_avg=part.pop("cycles", [1000.0] * 8), profiled_duration_ns=[1000.0] * 8,
            device=np.zeros(8, np.int32), **part.pop("counters", {}),
            metadata={"devices": (Device(0, part.pop("name", "V100"), f"GPU-{number}", "7.0", 80),), **part},
        )
        for number, part in enumerate(parts)
    ]  # fmt: skip
    files = tuple(path for run in made for path in run.files)
    return replace(made[0], files=files, launches=16, slice_launches=(8, 8), live=True)


def test_slices_of_equal_gpus_are_joined(store_run: StoreRun) -> None:
    launches = load_run(slices(store_run, {}, {"cycles": [1040.0] * 8}), LIMIT)
    assert len(launches) == 16 and launches.column("device").tolist() == [0] * 8 + [1] * 8


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"name": "V100S"}, r"\(GPU .*V100.* and .*V100S.*\)"),
        # One box's tool refused a metric when it profiled, the other's did not.
        (
            {"counters": {"instructions": [5.0] * 8}},
            r"\(instructions measured by nothing and smsp__inst_executed\.sum\)",
        ),
        ({"driver_version": "570.1"}, r"\(driver version unknown and 570\.1\)"),
        ({"tool_version": "2025.1"}, r"\(tool version unknown and 2025\.1\)"),
        ({"condition": Condition("none", "base", 100.0)}, r"\(condition .*base.*\)"),
        (
            {"cycles": [1060.0] * 8},
            r"SM clocks of the GPUs are more than 5 % apart \(V100 GPU-0 1,000 MHz, V1",
        ),
    ],
)
def test_slices_of_gpus_that_differ_are_refused_with_the_difference(
    store_run: StoreRun, part: dict[str, Any], reason: str
) -> None:
    with pytest.raises(LaunchTableError, match=reason):
        load_run(slices(store_run, {}, part), LIMIT)


def test_a_gpu_that_launched_something_else_is_refused(store_run: StoreRun) -> None:
    """The whole may match well enough, and all that does not match be of one GPU."""
    many = KERNELS * 150
    light = store_run("V100", "light", [*many, *KERNELS], duration_ns=[5] * 1208, run={"live": True})

    def detailed(last: Sequence[str]) -> RunData:
        made = [
            store_run(
                "V100", "detailed", kernels, launch=np.arange(len(kernels)) + first,
                cycles_gpc_avg=[9.0] * len(kernels), device=np.zeros(len(kernels), np.int32),
                metadata={"devices": (Device(0, "V100", f"GPU-{first}", "7.0", 80),)},
            )
            for first, kernels in ((0, many), (1200, last))
        ]  # fmt: skip
        files = tuple(path for run in made for path in run.files)
        return replace(made[0], files=files, launches=1208, slice_launches=(1200, 8), live=True)

    def row(run: RunData) -> dict[str, Any]:
        request = AnalysisRequest("c-1", "c", methods=(("sieve", {}),), runs=(run, light))
        [found] = analyse(request)["rows"]
        return dict(found)

    wrong = row(detailed([*KERNELS[:6], "z", "z"]))
    assert wrong["status"] == "refused"
    assert "only 75.00 % of the launches of V100 GPU-1200 match the light run" in wrong["reason"]
    assert "side by side" not in row(detailed(KERNELS))["reason"]
