"""Selections: the JSON and CSV that scripts rely on, and reading them back."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np
import pytest
from counted_launches import table2_launches
from made_launches import made_launches

from assay_sampling.errors import InputError
from assay_sampling.profile import Profile
from assay_sampling.samplers import select
from assay_sampling.selection import ProfileSummary, Representatives, SavedSelection, Selection


@pytest.fixture
def selection() -> Selection:
    """Two groups: launches 0, 1 and 3, and launches 2 and 4, with instructions 1 each."""
    features = np.array([[0.0], [0.0], [9.0], [0.0], [9.0]])
    launches = table2_launches(features, [10.0, 12.0, 100.0, 11.0, 90.0], launch=[10, 11, 12, 13, 14])
    return select("pks", Profile(detailed=launches), {"k": 2}, seed=5)


def test_the_keys_are_the_contract(selection: Selection) -> None:
    document = selection.to_dict()
    assert list(document) == [
        "method", "parameters", "seed", "profile", "groups", "cost", "error_percent",
        "signed_error_percent", "group_error_percent", "speedup", "speedup_instructions", "speedup_launches",
        "weighted_cov_percent", "interval", "interval_reason", "score_notes",
        "sweep", "pca_components",
    ]  # fmt: skip
    assert {"launches", "kernels", "devices", "sources", "synthetic"} <= set(document["profile"])
    assert list(document["cost"]) == ["quantity", "unit", "condition", "total", "projected"]
    for group in document["groups"]:
        assert list(group) == ["id", "launches", "instruction_share", "representatives"]
        for representative in group["representatives"]:
            assert list(representative) == [
                "process", "launch", "sim_id", "kernel", "grid", "block", "weight",
            ]  # fmt: skip
    assert [list(entry) for entry in document["sweep"]] == [["k", "error_percent", "speedup", "inertia"]]
    assert json.loads(json.dumps(document)) == document


def test_the_values_are_those_of_the_profile(selection: Selection) -> None:
    document = selection.to_dict()
    assert (document["method"], document["seed"]) == ("pks", 5)
    profile = document["profile"]
    assert (profile["launches"], profile["kernels"], profile["synthetic"]) == (5, 1, True)
    assert profile["sources"] == ["counted.csv"]
    assert document["groups"] == [
        {
            "id": 0,
            "launches": 3,
            "instruction_share": 0.6,
            "representatives": [
                {
                    "process": 0, "launch": 10, "sim_id": 11, "kernel": "kernel",
                    "grid": [1, 1, 1], "block": [1, 1, 1], "weight": 3.0,
                }
            ],
        },
        {
            "id": 1,
            "launches": 2,
            "instruction_share": 0.4,
            "representatives": [
                {
                    "process": 0, "launch": 12, "sim_id": 13, "kernel": "kernel",
                    "grid": [1, 1, 1], "block": [1, 1, 1], "weight": 2.0,
                }
            ],
        },
    ]  # fmt: skip
    assert document["cost"] == {
        "quantity": "cycles_gpc_avg",
        "unit": "cycle",
        "condition": {"cache": None, "clock": None, "sm_percent": None},
        "total": 223.0,
        "projected": 230.0,
    }
    assert document["error_percent"] == pytest.approx(100 * 7 / 223)
    assert document["group_error_percent"] == pytest.approx(100 * (3 + 10) / 223)
    assert document["speedup"] == pytest.approx(223 / 110)


def test_csv_is_one_line_a_representative(selection: Selection) -> None:
    rows = list(csv.DictReader(io.StringIO(selection.to_csv())))
    assert [row["sim_id"] for row in rows] == ["11", "13"]
    assert [row["weight"] for row in rows] == ["3.0", "2.0"]
    assert [row["group_launches"] for row in rows] == ["3", "2"]
    assert rows[0]["kernel"] == "kernel"


def test_a_kernel_name_with_commas_and_quotes_survives_csv() -> None:
    name = 'void f<int, 3>("a", char const*)'
    launches = made_launches([name] * 3, duration_ns=[1, 2, 3])
    selection = select("random", Profile(light=launches), {"launches": 2}, seed=0)
    assert {row["kernel"] for row in csv.DictReader(io.StringIO(selection.to_csv()))} == {name}


def test_shapes_of_which_only_the_total_is_known_keep_it() -> None:
    launches = made_launches(["k"], grid_x=[4096], grid_y=[None], grid_z=[None], block_x=[96],
                             block_y=[None], block_z=[None])  # fmt: skip
    chosen = Representatives.at(launches, np.array([0]), np.array([0]), np.array([1.0]))
    assert chosen.grid.tolist() == [[4096, -1, -1]]
    (entry,) = chosen.to_dicts()
    assert (entry["grid"], entry["block"]) == ([4096, 1, 1], [96, 1, 1])
    assert ProfileSummary.of(launches).totals_only


def test_a_saved_selection_is_read_back(selection: Selection) -> None:
    document = json.loads(json.dumps(selection.to_dict()))
    saved = SavedSelection.from_dict(document, "selection.json")
    assert saved.launch.tolist() == [10, 12]
    assert saved.process.tolist() == [0, 0]
    assert saved.weight.tolist() == [3.0, 2.0]
    assert saved.group.tolist() == [0, 1]
    assert saved.kernel == ("kernel", "kernel")
    assert saved.grid.tolist() == [[1, 1, 1], [1, 1, 1]]


def broken(**changes: Any) -> dict[str, Any]:
    representative = {
        "process": 0, "launch": 1, "kernel": "k", "grid": [1, 1, 1], "block": [1, 1, 1], "weight": 1.0,
    }  # fmt: skip
    return {"groups": [{"representatives": [{**representative, **changes}]}]}


@pytest.mark.parametrize(
    "document",
    [
        {}, {"groups": 3}, {"groups": []}, {"groups": [{}]}, [],
        broken(weight="heavy"), broken(weight=-1), broken(weight=float("nan")), broken(launch=None),
        broken(grid=[1, 1]), broken(grid="1x1"), broken(kernel=None), broken(launch=10**30),
    ],
)  # fmt: skip
def test_what_is_no_selection_is_an_input_error(document: Any) -> None:
    with pytest.raises(InputError) as caught:
        SavedSelection.from_dict(document, "other.json")
    assert caught.value.path == "other.json"
    assert "is not a selection" in caught.value.cause
