"""Selections by operation, scored on recordings whose libraries launch other kernels."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay_sampling.errors import InputError, MisalignedError
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import CounterColumn, TableMetadata
from assay_sampling.methods.by_operation import operation_profile, select_by_unit, select_operations
from assay_sampling.readers.opening import read_launches
from assay_sampling.running.identity import Device
from assay_sampling.scoring.by_operation import SelectedCalls, score_operations, score_saved_operations
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import Selection
from tests.support.sampling.made_operations import Call, made_calls

HERE = TableMetadata("light", devices=(Device(0, "H100"),))
THERE = TableMetadata("light", devices=(Device(0, "MI300X"),))

CALLS: list[Call] = [
    ("aten::mm", "[[2]]", [10, 10]),
    ("aten::mm", "[[2]]", [30]),
    ("aten::relu", "[[2]]", [5]),
    ("aten::relu", "[[2]]", [15]),
]
CALLS_THERE: list[Call] = [
    ("aten::mm", "[[2]]", [40]),
    ("aten::mm", "[[2]]", [20, 40]),
    ("aten::relu", "[[2]]", [8]),
    ("aten::relu", "[[2]]", [12]),
]


def by_first() -> Selection:
    """The first call of each operator stands for both."""
    profile = Profile(light=made_calls(CALLS, metadata=HERE))
    return select_by_unit("operation", "stratified", profile, {"launches_per_group": 1, "launches": 2})


def saved(selection: Selection) -> SavedSelection:
    document = json.loads(json.dumps(selection.document(labels=True).to_dict()))
    return SavedSelection.read(document, "selection.json")


def test_errors_equal_a_hand_calculation_saved_and_in_memory() -> None:
    selection = by_first()
    chosen = selection.representatives.row.tolist()
    there = made_calls(CALLS_THERE, prefix="other", metadata=THERE)
    here_cost, there_cost = np.array([20, 30, 5, 15]), np.array([40, 60, 8, 12])
    mm, relu = sorted(chosen)
    by_launches = 2 * there_cost[mm] + 2 * there_cost[relu]
    by_time = 50 / here_cost[mm] * there_cost[mm] + 20 / here_cost[relu] * there_cost[relu]
    groups = [
        abs(50 / here_cost[mm] * there_cost[mm] - 100) + abs(20 / here_cost[relu] * there_cost[relu] - 20)
    ]
    found = score_saved_operations(saved(selection), there)
    again = score_operations(SelectedCalls.of(selection), there)
    for scores in (found.scores, again.scores):
        assert scores["launches"].total == 120
        assert scores["launches"].projected == pytest.approx(by_launches)
        assert scores["light_time"].projected == pytest.approx(by_time)
        assert scores["light_time"].group_error_percent == pytest.approx(100 * groups[0] / 120)
    assert (found.match.left_time_percent, found.match.right_time_percent) == (100, 100)


def test_the_truth_is_the_whole_time_with_what_matches_nothing() -> None:
    there = made_calls([*CALLS_THERE, ("aten::copy_", "[[9]]", [5])], metadata=THERE)
    found = score_saved_operations(saved(by_first()), there)
    evaluation = found.scores["light_time"]
    assert evaluation.total == 125
    assert found.match.right_time_percent == pytest.approx(96)
    without = score_saved_operations(saved(by_first()), made_calls(CALLS_THERE, metadata=THERE))
    lost = without.scores["light_time"].group_error_percent
    assert lost is not None
    assert evaluation.group_error_percent == pytest.approx((lost * 120 / 100 + 5) / 125 * 100)


def test_below_95_percent_of_the_time_nothing_is_scored() -> None:
    there = made_calls([*CALLS_THERE, ("aten::copy_", "[[9]]", [50])], metadata=THERE)
    with pytest.raises(MisalignedError, match="95 % of both are needed") as refused:
        score_saved_operations(saved(by_first()), there)
    assert "aten::copy_ [[9]]" in refused.value.differences[0]


def test_others_of_its_group_take_over_the_weight_of_a_representative_without_counterpart() -> None:
    # Shapes that each come once share a stratum, so each call can be told from the others.
    calls: list[Call] = [("aten::mm", f"[[{n},64]]", [100]) for n in range(1100, 1140)]
    profile = Profile(light=made_calls(calls, metadata=HERE))
    selection = select_by_unit(
        "operation", "stratified", profile, {"launches_per_group": 2, "launches": 2}, seed=3
    )
    lost = int(selection.representatives.row[0])
    kept = [(name, shapes, [70]) for row, (name, shapes, *_) in enumerate(calls) if row != lost]
    found = score_saved_operations(saved(selection), made_calls(kept, metadata=THERE))
    assert [note.code for note in found.notes] == ["operations_unmatched", "representatives_unmatched"]
    for evaluation in found.scores.values():
        # The other representative stands for all 40 calls, of which 39 are there.
        assert evaluation.total == 39 * 70
        assert evaluation.projected == pytest.approx(40 * 70)
        assert evaluation.interval is None


def test_counters_of_a_window_select_operations_of_the_light_run() -> None:
    instructions = CounterColumn("instructions", "inst", "smsp__inst_executed.sum", "hardware")
    cycles = CounterColumn("cycles_gpc_avg", "cycle", "gpc__cycles_elapsed.avg", "hardware")
    light = made_calls(CALLS * 4, metadata=HERE)
    launches = len(light)
    rng = np.random.default_rng(1)
    # The window ends within the fourth operation of two launches.
    detailed = made_calls(
        CALLS * 4,
        counters=(instructions, cycles),
        metadata=TableMetadata("detailed", devices=HERE.devices),
        instructions=rng.integers(1, 9, launches).astype(float),
        cycles_gpc_avg=rng.integers(1, 9, launches).astype(float),
    ).slice(0, 11)
    of = operation_profile(Profile(detailed=detailed, light=light))
    assert of.profile.detailed is not None
    assert len(of.profile.detailed) == 8
    assert len(of.profile.whole) == 16
    selection = select_operations(of, "stem", {})
    assert selection.unit == "operation"
    assert len(selection.labels if selection.labels is not None else []) == 16


def test_a_selection_lists_the_launches_of_each_representative_with_its_weight() -> None:
    selection = by_first()
    expanded = saved(selection).by_launch()
    chosen = sorted(selection.representatives.row.tolist())
    wanted = {0: [0, 1], 1: [2], 2: [3], 3: [4]}
    assert sorted(expanded.launch.tolist()) == [n for row in chosen for n in wanted[row]]
    assert set(expanded.weight.tolist()) == {2.0}
    assert all(kernel.startswith("k_aten::") for kernel in expanded.kernel)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"operations": None}, "does not say what its profile calls"),
        ({"operations.calls": 10**9}, "are not between 1 and"),
        ({"operations.identity": "AAAA"}, "operations cannot be read"),
        ({"operations.identities": []}, "of an operation that it does not name"),
        ({"operations.time": ""}, "operations cannot be read"),
    ],
)
def test_damaged_operations_are_refused(change: dict[str, object], cause: str) -> None:
    document = by_first().document(labels=True).to_dict()
    for path, value in change.items():
        part, _, key = path.partition(".")
        if key:
            document[part][key] = value
        else:
            document[part] = value
    with pytest.raises(InputError, match=cause):
        score_saved_operations(SavedSelection.read(document, "s"), made_calls(CALLS_THERE, metadata=THERE))


@pytest.mark.parametrize(("routine", "noted"), [(1, None), (9, 50.0)])
def test_time_that_is_matched_by_name_alone_is_noted_beside_calls_with_shapes(
    routine: int, noted: float | None
) -> None:
    calls: list[Call] = [
        ("aten::mm", "[[2]]", [3 * routine if noted else 99]),
        ("cublasSgemm", "", [routine] * 3),
    ]
    selection = select_by_unit("operation", "stem", Profile(light=made_calls(calls, metadata=HERE)), {})
    found = score_saved_operations(saved(selection), made_calls(calls, metadata=THERE))
    shares = [dict(note.parameters)["time_percent"] for note in found.notes]
    assert shares == ([] if noted is None else [noted])


def _packed(values: list[float], kind: str) -> str:
    return base64.b64encode(zlib.compress(np.array(values).astype(kind).tobytes())).decode("ascii")


FIVE_CALLS = {
    "operations.calls": 5,
    "operations.identity": _packed([0, 0, 1, 1, 1], "<u4"),
    "operations.process": _packed([0] * 5, "<u4"),
    "operations.launch": _packed([0, 2, 3, 4, 5], "<i8"),
    "operations.time": _packed([1] * 5, "<f8"),
}
ENTRY = "groups.0.representatives.0.operation"


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        (FIVE_CALLS, "4 operations have a group, and its profile calls 5"),
        ({"operations.identities.0.3": 10**30}, "operations cannot be read"),
        ({"operations.time": _packed([1e308] * 4, "<f8")}, "operations cannot be read"),
        ({"operations.time": _packed([0] * 4, "<f8")}, "operations cannot be read"),
        ({f"{ENTRY}.row": 10**30}, "a representative is not among its operations"),
        ({f"{ENTRY}.row": 4}, "a representative is not among its operations"),
        ({f"{ENTRY}.row": -1}, "a representative is not among its operations"),
        ({"groups.*.row": 0}, "is not the operation that begins with"),
        ({f"{ENTRY}.launches.0.grid": [1, 2]}, "other than three axes"),
        ({f"{ENTRY}.launches.0.grid": [10**30, 1, 1]}, "not a selection"),
        ({f"{ENTRY}.launches.0.launch": 10**30}, "negative or too large"),
        ({f"{ENTRY}.launches.0.launch": -5}, "negative or too large"),
        ({"groups.1.representatives.0.operation.launches": 0}, "a launch is in two operations"),
    ],
)
def test_operations_that_cannot_be_are_refused(changes: dict[str, Any], cause: str) -> None:
    document = json.loads(json.dumps(by_first().document(labels=True).to_dict()))
    for path, value in changes.items():
        if path == "groups.*.row":
            for group in document["groups"]:
                group["representatives"][0]["operation"]["row"] = value
            continue
        *parts, key = path.split(".")
        place = document
        for part in parts:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if path.endswith("operation.launches"):
            value = document["groups"][value]["representatives"][0]["operation"]["launches"]  # noqa: PLW2901
        place[int(key) if isinstance(place, list) else key] = value
    there = made_calls([*CALLS_THERE, ("aten::relu", "[[2]]", [1])], metadata=THERE)
    with pytest.raises(InputError, match=cause):
        found = SavedSelection.read(document, "s")
        found.by_launch()
        score_saved_operations(found, there)


def test_the_reason_for_no_interval_is_the_same_saved_and_in_memory() -> None:
    instructions = CounterColumn("instructions", "inst", "smsp__inst_executed.sum", "hardware")
    detailed = made_calls(
        CALLS,
        counters=(instructions,),
        metadata=TableMetadata("detailed", devices=HERE.devices),
        instructions=[1.0, 2.0, 3.0, 4.0, 5.0],
    )
    selection = select_by_unit("operation", "sieve", Profile(detailed=detailed), {})
    there = made_calls(CALLS_THERE, metadata=THERE)
    for found in (
        score_saved_operations(saved(selection), there),
        score_operations(SelectedCalls.of(selection), there),
    ):
        reasons = {score.interval_reason.code for score in found.scores.values() if score.interval_reason}
        assert reasons == {"interval_of_no_draw"}


def test_the_light_time_of_an_operation_is_the_mean_over_repeats() -> None:
    again = [("aten::mm", "[[2]]", [30, 10]), *CALLS[1:]]
    first, second = (
        made_calls(calls, metadata=HERE, source=f"run{i}") for i, calls in enumerate((CALLS, again))
    )
    profile = Profile(light=first, repeats=(second,))
    selection = select_by_unit("operation", "stratified", profile, {"launches_per_group": 2, "launches": 4})
    assert selection.operations is not None
    assert selection.operations.time.tolist() == [30, 30, 5, 15]


@pytest.mark.parametrize(
    ("model", "speedup"),
    [("Falconsai_nsfw_image_detection", 3), ("facebook_timesformer-base-finetuned-k400", 5)],
)
@pytest.mark.parametrize(("here", "there"), [("h100", "mi300"), ("mi300", "h100")])
def test_one_selection_holds_on_two_vendors(
    shared_data: Path, model: str, speedup: float, here: str, there: str
) -> None:
    def read(gpu: str) -> Profile:
        return Profile(light=read_launches(shared_data / "silicon" / f"{gpu}__{model}__1016002.json.gz"))

    selection = select_by_unit("operation", "stem", read(here), {})
    found = score_saved_operations(saved(selection), read(there).whole)
    evaluation = found.scores["light_time"]
    assert evaluation.speedup >= speedup
    # By hand: weights by light time of each group, costs of the matched calls, the target's whole time.
    calls_there = found.operations.launches.floats("duration_ns")
    assert selection.labels is not None
    assert selection.operations is not None
    time_here = selection.operations.time
    projected = 0.0
    for row, group in zip(
        selection.representatives.row.tolist(), selection.representatives.group.tolist(), strict=True
    ):
        members = selection.labels == group
        of_group = selection.representatives.row[selection.representatives.group == group]
        projected += time_here[members].sum() / time_here[of_group].sum() * calls_there[row]
    assert np.array_equal(found.match.left_rows, found.match.right_rows)
    assert evaluation.projected == pytest.approx(projected)
    assert evaluation.total == calls_there.sum() == read(there).whole.floats("duration_ns").sum()
    assert evaluation.error_percent <= 3


def test_real_names_and_equal_names_give_the_same_selection_scores(shared_data: Path) -> None:
    silicon = shared_data / "silicon"
    profile = Profile(light=read_launches(silicon / "neusight_v100.parquet"))
    selection = saved(select_by_unit("operation", "stem", profile, {}))
    real, named = (
        score_saved_operations(selection, read_launches(silicon / f"neusight_a100{name}.parquet"))
        for name in ("", "_named_as_v100")
    )
    assert real.match.left_time_percent == 100
    for kind, evaluation in real.scores.items():
        assert evaluation.error_percent == pytest.approx(named.scores[kind].error_percent, abs=0.1)
        assert evaluation.group_error_percent == pytest.approx(
            named.scores[kind].group_error_percent, abs=0.1
        )
