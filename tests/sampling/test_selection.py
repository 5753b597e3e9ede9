"""Selections: the JSON and CSV that scripts rely on, and reading them back."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np
import pytest

from assay_sampling.documents.selection import SelectionDocument
from assay_sampling.errors import InputError
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.registry import select
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import ProfileSummary, Representatives, Selection
from tests.support.sampling.counted_launches import table2_launches
from tests.support.sampling.made_launches import made_launches
from tests.support.sampling.published import PUBLISHED_PKS


@pytest.fixture
def selection() -> Selection:
    """Two groups: launches 0, 1 and 3, and launches 2 and 4, with instructions 1 each."""
    features = np.array([[0.0], [0.0], [9.0], [0.0], [9.0]])
    launches = table2_launches(features, [10.0, 12.0, 100.0, 11.0, 90.0], launch=[10, 11, 12, 13, 14])
    return select("pks", Profile(detailed=launches), {**PUBLISHED_PKS, "k": 2}, seed=5)


def test_the_keys_are_the_contract(selection: Selection) -> None:
    document = selection.document().to_dict()
    assert list(document) == [
        "version", "verdict", "method", "parameters", "seed", "profile", "weights", "drawing", "groups",
        "cost", "error_percent",
        "signed_error_percent", "group_error_percent", "speedup", "speedup_instructions", "speedup_launches",
        "weighted_cov_percent", "decomposition", "expected_elsewhere", "launches_without_time", "interval",
        "interval_reason", "score_notes",
        "sweep", "pca_components",
    ]  # fmt: skip
    assert {"launches", "kernels", "devices", "sources", "synthetic"} <= set(document["profile"])
    assert list(document["cost"]) == ["quantity", "unit", "condition", "total", "projected"]
    for group in document["groups"]:
        assert list(group) == [
            "id", "launches", "instruction_share", "kernels", "cost_cov", "representatives",
        ]  # fmt: skip
        for representative in group["representatives"]:
            assert list(representative) == [
                "process", "launch", "sim_id", "kernel", "grid", "block", "weight", "draws",
                "light_time", "light_time_weight",
            ]  # fmt: skip
    assert [list(entry) for entry in document["sweep"]] == [["k", "error_percent", "speedup", "inertia"]]
    assert json.loads(json.dumps(document)) == document


def test_the_values_are_those_of_the_profile(selection: Selection) -> None:
    document = selection.document().to_dict()
    assert (document["method"], document["seed"]) == ("pks", 5)
    profile = document["profile"]
    assert (profile["launches"], profile["kernels"], profile["synthetic"]) == (5, 1, True)
    assert profile["sources"] == ["counted.csv"]
    assert document["groups"] == [
        {
            "id": 0,
            "launches": 3,
            "instruction_share": 0.6,
            "kernels": None,
            "cost_cov": None,
            "representatives": [
                {
                    "process": 0, "launch": 10, "sim_id": 11, "kernel": "kernel",
                    "grid": [1, 1, 1], "block": [1, 1, 1], "weight": 3.0,
                    "draws": None, "light_time_weight": None, "light_time": None,
                }
            ],
        },
        {
            "id": 1,
            "launches": 2,
            "instruction_share": 0.4,
            "kernels": None,
            "cost_cov": None,
            "representatives": [
                {
                    "process": 0, "launch": 12, "sim_id": 13, "kernel": "kernel",
                    "grid": [1, 1, 1], "block": [1, 1, 1], "weight": 2.0,
                    "draws": None, "light_time_weight": None, "light_time": None,
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
    (entry,) = chosen.entries()
    assert (entry.grid, entry.block) == ([4096, 1, 1], [96, 1, 1])
    assert ProfileSummary.of(launches).totals_only


def test_a_saved_selection_is_read_back(selection: Selection) -> None:
    document = json.loads(json.dumps(selection.document().to_dict()))
    saved = SavedSelection.read(document, "selection.json")
    assert saved.launch.tolist() == [10, 12]
    assert saved.process.tolist() == [0, 0]
    assert saved.weight.tolist() == [3.0, 2.0]
    assert saved.group.tolist() == [0, 1]
    assert saved.kernel == ("kernel", "kernel")
    assert saved.grid.tolist() == [[1, 1, 1], [1, 1, 1]]


def broken(**changes: Any) -> dict[str, Any]:
    representative = {
        "process": 0, "launch": 1, "sim_id": 2, "kernel": "k", "grid": [1, 1, 1], "block": [1, 1, 1],
        "weight": 1.0,
    }  # fmt: skip
    return with_groups([{"id": 0, "launches": 1, "representatives": [{**representative, **changes}]}])


def with_groups(groups: Any) -> dict[str, Any]:
    """A selection whose groups alone can be wrong."""
    hashes = {"exact": "a", "name_block": "b"}
    profile = {
        "launches": 1, "kernels": 1, "devices": ["V100"], "sources": ["a.csv"], "synthetic": True,
        "sequence": hashes,
    }  # fmt: skip
    return {"method": "random", "parameters": {}, "seed": 0, "profile": profile, "groups": groups}


def test_what_earlier_releases_did_not_write_is_not_needed() -> None:
    assert SavedSelection.read(broken(), "s.json").launch.tolist() == [1]


@pytest.mark.parametrize(
    "document",
    [
        {}, with_groups(3), with_groups([]), with_groups([{}]), [], with_groups({"a": 1}),
        broken(weight="heavy"), broken(weight=-1), broken(weight=float("nan")), broken(weight=10**400),
        broken(launch=None), broken(launch=float("nan")), broken(launch=10**30), broken(process=float("inf")),
        broken(grid=[1, 1]), broken(grid="1x1"), broken(grid=[10**30, 1, 1]), broken(kernel=None),
    ],
)  # fmt: skip
def test_what_is_no_selection_is_an_input_error(document: Any) -> None:
    with pytest.raises(InputError) as caught:
        SavedSelection.read(document, "other.json")
    assert caught.value.path == "other.json"
    assert "is not a selection" in caught.value.cause


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (broken(weight="heavy"), "groups.0.representatives.0.weight"),
        (with_groups(3), "groups"),
        ({**broken(), "version": "soon"}, "version"),
        ({**broken(), "profile": {"launches": float("nan")}}, "profile.launches"),
        ({**broken(), "labels": {"version": 1}}, "labels.launches"),
    ],
)
def test_the_field_that_is_not_as_the_format_says_is_named(document: Any, field: str) -> None:
    with pytest.raises(InputError, match=f"field '{field}'") as caught:
        SavedSelection.read(document, "other.json")
    assert caught.value.field == field


def test_labels_of_a_version_that_is_not_known_are_left_aside() -> None:
    for labels in (3, None, {}, {"version": 2, "runs": []}):
        assert SavedSelection.read({**broken(), "labels": labels}, "s.json").labels() is None


def test_a_selection_says_its_version_and_those_without_one_are_read(selection: Selection) -> None:
    document = selection.document(labels=True).to_dict()
    assert document["version"] == 1
    older = {key: value for key, value in document.items() if key != "version"}
    read, before = (SavedSelection.read(each, "s.json") for each in (document, older))
    assert read.launch.tolist() == before.launch.tolist() and read.weight.tolist() == before.weight.tolist()


def test_a_selection_of_a_newer_release_is_refused_with_what_to_do(selection: Selection) -> None:
    with pytest.raises(InputError, match=r"s\.json.*version is 2.*up to 1") as caught:
        SavedSelection.read({**selection.document().to_dict(), "version": 2}, "s.json")
    assert "use an assay of at least the release" in caught.value.remedy


def test_the_model_of_the_document_has_all_that_a_selection_says(selection: Selection) -> None:
    document = selection.document(labels=True).to_dict()
    read = SelectionDocument.model_validate(document)
    assert read.model_dump(mode="json") == document
    assert not read.model_extra
