"""Selections scored where they were not made."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from assay_sampling.errors import (
    CounterUnavailableError,
    InputError,
    MisalignedError,
    ParameterError,
    RefusedError,
)
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import Condition, Device, TableMetadata
from assay_sampling.scoring.carried import score_on
from assay_sampling.scoring.evaluation import cost_of, evaluate
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import ProfileSummary, Representatives, Selection
from tests.support.sampling.made_launches import CYCLES, made_launches
from tests.support.sampling.saved_scores import score_relative, score_saved

KERNELS = ["a", "b", "a", "b", "a", "c"]
LABELS = np.array([0, 1, 0, 1, 0, 1])
NOTHING = [None] * 6


def recording(device: str = "V100", kernels: list[str] = KERNELS, **columns: Any) -> Launches:
    rows = len(kernels)
    metadata = TableMetadata(
        "detailed" if "cycles_gpc_avg" in columns else "light",
        origin=columns.pop("origin", "measured"),
        condition=Condition("none", "none", 100.0),
        devices=(Device(0, device),),
    )
    counters = [CYCLES] if "cycles_gpc_avg" in columns else []
    shapes = {"grid_x": [2, 4, 2, 4, 2, 8][:rows], "block_x": [32] * rows, "device": [0] * rows}
    return made_launches(
        kernels, counters=counters, metadata=metadata, source=device, **{**shapes, **columns}
    )


def selected(launches: Launches, quantity: str = "duration_ns") -> Selection:
    """Groups a and the rest: launch 0 stands for three launches, launch 1 for three."""
    rows, weights = np.array([0, 1]), np.array([3.0, 3.0])
    return Selection(
        method="made",
        parameters={},
        seed=0,
        profile=ProfileSummary.of(launches),
        representatives=Representatives.at(launches, rows, np.array([0, 1]), weights),
        group_launches=np.array([3, 3]),
        evaluation=evaluate(cost_of(launches, quantity), rows, weights),
        labels=LABELS,
    )


def saved(selection: Selection) -> SavedSelection:
    return SavedSelection.read(json.loads(json.dumps(selection.document().to_dict())), "selection.json")


def test_weights_are_taken_as_they_are() -> None:
    selection = selected(recording(duration_ns=[10, 20, 10, 20, 10, 20]))
    elsewhere = recording("A100", duration_ns=[4, 5, 6, 7, 8, 10])
    found = score_saved(saved(selection), elsewhere)
    assert (found.quantity, found.unit) == ("duration_ns", "ns")
    assert (found.total, found.projected, found.simulated) == (40.0, 27.0, 9.0)
    assert found.signed_error_percent == -32.5
    assert found.error_percent == 32.5
    assert found.group_error_percent is None
    assert found.speedup == pytest.approx(40 / 9)


def test_the_quantity_is_the_selections_where_the_recording_has_it() -> None:
    both = recording(cycles_gpc_avg=[100.0] * 6, duration_ns=[10] * 6)
    in_ns, in_cycles = selected(both), selected(both, "cycles_gpc_avg")
    assert score_saved(saved(in_ns), both).quantity == "duration_ns"
    assert score_saved(saved(in_cycles), both).quantity == "cycles_gpc_avg"
    assert score_saved(saved(in_cycles), both, "duration_ns").quantity == "duration_ns"
    only_ns = recording("A100", duration_ns=[7] * 6)
    assert score_saved(saved(in_cycles), only_ns).quantity == "duration_ns"
    only_cycles = recording("A100", cycles_gpc_avg=[7.0] * 6)
    assert score_saved(saved(in_ns), only_cycles).quantity == "cycles_gpc_avg"
    with pytest.raises(CounterUnavailableError, match="cycles_gpc_avg"):
        score_saved(saved(in_cycles), only_ns, "cycles_gpc_avg")
    with pytest.raises(ParameterError, match="there is no cost 'hours'; use one of cycles_gpc_avg"):
        score_saved(saved(in_ns), both, "hours")


def test_a_recording_of_other_launches_is_refused_by_what_differs() -> None:
    selection = saved(selected(recording(duration_ns=[10] * 6)))
    with pytest.raises(MisalignedError, match="made on 6 launches, and this recording has 5"):
        score_saved(selection, recording(kernels=KERNELS[:5], duration_ns=[10] * 5))
    with pytest.raises(MisalignedError, match=r"1 of the 2 .*launch 1: kernel 'z' and not 'b'"):
        score_saved(selection, recording(kernels=["a", "z", *KERNELS[2:]], duration_ns=[10] * 6))
    with pytest.raises(MisalignedError, match=r"launch 0: block \[64, 1, 1\] and not \[32, 1, 1\]"):
        score_saved(selection, recording(duration_ns=[10] * 6, block_x=[64] + [32] * 5))
    with pytest.raises(MisalignedError, match="process 0 launch 0 is missing"):
        score_saved(selection, recording(duration_ns=[10] * 6, launch=[1, 2, 3, 4, 5, 6]))
    with pytest.raises(MisalignedError, match="the launches between them differ"):
        score_saved(selection, recording(kernels=["a", "b", "a", "b", "c", "a"], duration_ns=[10] * 6))


def test_grids_must_agree_on_one_gpu_and_may_differ_between_gpus() -> None:
    selection = saved(selected(recording(duration_ns=[10] * 6)))
    other_grids = {"duration_ns": [10] * 6, "grid_x": [3, 4, 2, 4, 2, 8]}
    with pytest.raises(MisalignedError, match=r"launch 0: grid \[3, 1, 1\] and not \[2, 1, 1\]"):
        score_saved(selection, recording(**other_grids))
    assert score_saved(selection, recording("A100", **other_grids)).error_percent == 0.0


def test_recordings_that_know_only_totals_are_the_same_launches() -> None:
    whole = recording(duration_ns=[10] * 6, grid_x=[2, 4, 2, 4, 2, 4], grid_y=[3, 1, 3, 1, 3, 2])
    totals = recording(
        duration_ns=[10] * 6, grid_x=[6, 4, 6, 4, 6, 8],
        grid_y=NOTHING, grid_z=NOTHING, block_y=NOTHING, block_z=NOTHING,
    )  # fmt: skip
    assert score_saved(saved(selected(whole)), totals).error_percent == 0.0
    assert score_saved(saved(selected(totals)), whole).error_percent == 0.0
    turned = recording(duration_ns=[10] * 6, grid_x=[2, 4, 3, 4, 2, 4], grid_y=[3, 1, 2, 1, 3, 2])
    with pytest.raises(MisalignedError, match="launches between them differ"):
        score_saved(saved(selected(whole)), turned)


def test_silicon_and_simulators_are_scored_on_each_other_and_synthetic_data_on_neither() -> None:
    runs = {
        origin: recording(duration_ns=[10] * 6, origin=origin)
        for origin in ("measured", "simulated", "synthetic")
    }
    for made_on, scored_on in itertools.permutations(runs, 2):
        made = saved(selected(runs[made_on]))
        assert made.origin == made_on
        if "synthetic" in (made_on, scored_on):
            with pytest.raises(RefusedError, match=f"is of {made_on} data and this recording is {scored_on}"):
                score_saved(made, runs[scored_on])
        else:
            assert score_saved(made, runs[scored_on]).error_percent == 0


def test_synthetic_and_measured_never_meet() -> None:
    measured, made = recording(duration_ns=[10] * 6), recording(duration_ns=[10] * 6, origin="synthetic")
    with pytest.raises(RefusedError, match="is of measured data and this recording is synthetic"):
        score_saved(saved(selected(measured)), made)
    with pytest.raises(RefusedError, match="is of synthetic data and this recording is measured"):
        score_on(selected(made), measured, reference=made)


def test_a_selection_that_cannot_prove_its_launches_is_refused() -> None:
    launches = recording(duration_ns=[10] * 6)
    for key in ("launches", "synthetic", "devices", "sequence"):
        document = selected(launches).document().to_dict()
        del document["profile"][key]
        with pytest.raises(InputError, match=f"profile.{key}"):
            score_saved(SavedSelection.read(document, "selection.json"), launches)
    document = selected(launches).document().to_dict()
    document["groups"][0]["representatives"][0]["launch"] = 1 << 70
    with pytest.raises(InputError, match="negative or too large"):
        SavedSelection.read(document, "selection.json")


def test_an_empty_recording_is_refused() -> None:
    selection = saved(selected(recording(duration_ns=[10] * 6)))
    with pytest.raises(RefusedError, match="holds no launches"):
        score_saved(selection, recording(kernels=[], duration_ns=[]))


def test_another_gpu_is_scored_with_all_three_matches() -> None:
    reference = recording(duration_ns=[10, 20, 10, 20, 10, 20])
    other = recording("A100", duration_ns=[4, 5, 6, 7, 8, 10], grid_x=[9, 4, 2, 4, 2, 8])
    found, match = score_on(selected(reference), other, reference=reference)
    assert match == {"exact": pytest.approx(100 * 5 / 6), "name_block": 100.0, "position": 100.0}
    assert (found.total, found.projected, found.speedup) == (40.0, 27.0, pytest.approx(40 / 9))
    # Group a: 3 x 4 of 18; the rest: 3 x 5 of 22.
    assert found.group_error_percent == pytest.approx(100 * (6 + 7) / 40)


def test_other_counts_are_refused_by_process() -> None:
    reference = recording(duration_ns=[10] * 6)
    other = recording("A100", kernels=KERNELS[:4], duration_ns=[1] * 4)
    with pytest.raises(MisalignedError, match=r"process 0: 6 and 4 launches"):
        score_on(selected(reference), other, reference=reference)
    moved = recording("A100", duration_ns=[1] * 6, process=[0, 0, 0, 1, 1, 1], launch=[0, 1, 2] * 2)
    with pytest.raises(MisalignedError, match=r"process 0: 6 and 3 launches \| process 1: 0 and 3"):
        score_on(selected(reference), moved, reference=reference)
    with pytest.raises(RefusedError, match="made on 6"):
        score_on(selected(reference), other, reference=other)


def test_other_kernels_are_scored_by_position_only_when_asked() -> None:
    reference = recording(duration_ns=[10] * 6)
    other = recording("A100", kernels=["x", "y", "x", "y", "x", "z"], duration_ns=[1, 2, 1, 2, 1, 2])
    with pytest.raises(MisalignedError, match="only 0 % of the launches match"):
        score_on(selected(reference), other, reference=reference)
    found, match = score_on(selected(reference), other, "position", reference=reference)
    assert match == {"exact": 0.0, "name_block": 0.0, "position": 100.0}
    assert found.error_percent == 0.0


def many(kernels: list[str], device: str, **columns: Any) -> Launches:
    return replace(
        made_launches(kernels, metadata=TableMetadata("light", devices=(Device(0, device),)), **columns),
        sources=(device,),
    )


def test_launches_without_counterpart_count_in_the_group_error() -> None:
    kernels = ["a"] * 199 + ["b"]
    reference = many(kernels, "V100", duration_ns=[10] * 200)
    selection = replace(
        selected(reference),
        representatives=Representatives.at(
            reference, np.array([0, 199]), np.array([0, 1]), np.array([199.0, 1.0])
        ),
        group_launches=np.array([199, 1]),
        labels=np.array([0] * 199 + [1]),
    )
    other = many(["a", "new"] + ["a"] * 197 + ["b"], "A100", duration_ns=[1, 7] + [1] * 198)
    found, match = score_on(selection, other, reference=reference)
    assert match["name_block"] == 99.5
    assert found.total == 206.0
    # Group a: 199 x 1 projected of 198; group b: right; the new kernel: 7 of nothing projected.
    assert found.group_error_percent == pytest.approx(100 * (1 + 7) / 206)


def test_a_representative_without_counterpart_is_refused() -> None:
    reference = many(["a"] * 100 + ["b"] + ["a"] * 99, "V100", duration_ns=[1] * 200)
    selection = replace(
        selected(reference),
        representatives=Representatives.at(
            reference, np.array([0, 100]), np.array([0, 1]), np.array([199.0, 1.0])
        ),
        labels=np.array([0] * 100 + [1] + [0] * 99),
    )
    other = many(["a"] * 100 + ["c"] + ["a"] * 99, "A100", duration_ns=[1] * 200)
    with pytest.raises(MisalignedError, match=r"process 0 launch 100 \(b\) has no counterpart"):
        score_on(selection, other, reference=reference)
    assert score_on(selection, other, "position", reference=reference)[0].error_percent == 0.0


def test_the_speedup_between_two_recordings_is_predicted() -> None:
    selection = saved(selected(recording(duration_ns=[10, 20, 10, 20, 10, 20])))
    first = recording("T4", duration_ns=[40, 80, 40, 80, 40, 60])
    second = recording("A100", duration_ns=[4, 5, 6, 7, 8, 10])
    found = score_relative(selection, first, second)
    # 340 of 40 truly; 3 x 40 + 3 x 80 of 3 x 4 + 3 x 5 as predicted.
    assert found.speedup_true == 8.5
    assert found.speedup_predicted == pytest.approx(360 / 27)
    assert found.error_percent == pytest.approx(100 * (360 / 27 - 8.5) / 8.5)
    assert found.to_dict()["quantity"] == "duration_ns"
    assert (found.first.error_percent, found.second.error_percent) == (pytest.approx(100 * 20 / 340), 32.5)
    assert score_relative(selection, second, first).speedup_true == pytest.approx(1 / 8.5)


def test_the_speedup_is_of_a_cost_that_both_have() -> None:
    both = recording(cycles_gpc_avg=[100.0] * 6, duration_ns=[10] * 6)
    selection = saved(selected(both, "cycles_gpc_avg"))
    assert score_relative(selection, both, both).first.quantity == "cycles_gpc_avg"
    only_ns = recording("A100", duration_ns=[7] * 6)
    assert score_relative(selection, both, only_ns).second.quantity == "duration_ns"
    assert score_relative(selection, both, both, "duration_ns").first.quantity == "duration_ns"
    only_cycles = recording("T4", cycles_gpc_avg=[7.0] * 6)
    with pytest.raises(CounterUnavailableError, match="no cost was measured for all launches of both"):
        score_relative(selection, only_ns, only_cycles)


def test_recordings_of_other_launches_have_no_speedup() -> None:
    selection = saved(selected(recording(duration_ns=[10] * 6)))
    fine = recording("A100", duration_ns=[10] * 6)
    with pytest.raises(MisalignedError, match="made on 6 launches, and this recording has 5"):
        score_relative(selection, fine, recording("T4", kernels=KERNELS[:5], duration_ns=[10] * 5))
    # Other grids are no matter between GPUs, but two recordings of one GPU must have the same.
    other_grids = {"duration_ns": [10] * 6, "grid_x": [3, 4, 2, 4, 2, 8]}
    assert score_relative(selection, fine, recording("T4", **other_grids)).speedup_true == 1
    with pytest.raises(MisalignedError, match=r"but differ from each other \(exact comparison\)"):
        score_relative(selection, fine, recording("A100", **other_grids))
