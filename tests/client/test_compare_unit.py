"""``compare`` and ``classify`` by operation, on the command line and in notebooks."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import assay as assay_package
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from tests.support.sampling.made_operations import made_training
from tests.support.sampling.published import PUBLISHED_PKS_OPTIONS

Assay = Callable[..., Any]
FAST = ("-m", "stem", "-m", "stratified", "-m", "pks", "--trials", "30")


def written(path: Path, launches: Launches) -> Path:
    counted = launches.metadata.level == "detailed"
    levels = Profile(detailed=launches) if counted else Profile(light=launches)
    (found,) = assay_package.Profile(levels).write(path)
    return found


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "light": written(tmp_path / "light.parquet", made_training(40)),
        "window": written(tmp_path / "window.parquet", made_training(40, counted=True).slice(0, 100)),
        "same": written(tmp_path / "same.parquet", made_training(40, seed=4, device="A100")),
        "there": written(tmp_path / "there.parquet", made_training(40, seed=9, prefix="o", device="MI300X")),
    }


def document_of(ended: Any) -> dict[str, Any]:
    assert ended.code == 0, ended.stderr
    return dict(json.loads(ended.stdout))


def test_compare_takes_operations_where_the_other_recording_launches_something_else(
    files: dict[str, Path], tmp_path: Path, assay: Assay
) -> None:
    found = document_of(assay("compare", files["light"], *FAST, "--on", files["there"], "--json"))
    assert found["unit"] == "operation"
    assert found["operations"] == 160
    assert found["profile"]["launches"] == 280
    (there,) = found["on"]
    assert there["status"] == "ok"
    assert there["profile"]["devices"] == ["MI300X"]
    assert there["operations"]["recording_time_percent"] == pytest.approx(100)
    entries = {entry["method"]: entry for entry in found["methods"]}
    assert entries["pks"]["status"] == "refused"
    assert "on" not in entries["pks"]
    for method in ("stem", "stratified"):
        saved = tmp_path / f"{method}.json"
        made = document_of(
            assay("select", method, files["light"], "--unit", "operation", "-o", saved, "--json")
        )
        scored = document_of(assay("evaluate", saved, files["there"], "--json"))
        (on,) = entries[method]["on"]
        assert on["status"] == "ok"
        for name in ("weights", "error_percent", "group_error_percent", "speedup", "operations"):
            assert on[name] == scored[name]
        assert entries[method]["error_percent"] == made["error_percent"]
        assert entries[method]["launches_to_simulate"] == sum(
            len(group["representatives"]) for group in made["groups"]
        )
    text = assay("compare", files["light"], *FAST, "--on", files["there"]).stdout
    assert "160 operations" in text
    assert "operations with 100.00 % of its time match" in text
    assert "On other GPUs at a speedup of" in text
    assert "(*: no other has less error, of the total and by stratum and size)" in " ".join(text.split())
    assert "% by stratum and size, at a speedup of" in text
    assert "kernel and grid" not in text
    there = text[text.index("On other GPUs at a speedup of") : text.index("Not applicable")]
    assert "operations  with" in there
    assert "stratum" in there
    assert "kernel" not in there


def test_compare_takes_launches_where_they_agree_or_nothing_is_shown(
    files: dict[str, Path], assay: Assay
) -> None:
    alone = document_of(assay("compare", files["light"], *FAST, "--json"))
    assert "unit" not in alone
    assert "on" not in alone
    agreeing = document_of(assay("compare", files["light"], *FAST, "--on", files["same"], "--json"))
    assert "unit" not in agreeing
    (stem,) = (entry for entry in agreeing["methods"] if entry["method"] == "stem")
    (on,) = stem["on"]
    assert on["status"] == "ok"
    assert on["operations"] is None
    assert "% by kernel and grid, at a speedup of" in agreeing["recommendation"]["reason"]["text"]
    told = document_of(assay("compare", files["light"], *FAST, "--unit", "operation", "--json"))
    assert told["unit"] == "operation"


def test_a_recording_that_does_not_match_is_a_row_with_the_reason(
    files: dict[str, Path], assay: Assay
) -> None:
    """By launch the other library's kernels match nothing: a row says so, and stars are of home."""
    found = document_of(
        assay("compare", files["light"], *FAST, "--on", files["there"], "--unit", "launch", "--json")
    )
    (there,) = found["on"]
    assert there["status"] == "refused"
    assert "kernels have this name there" in there["reason"]
    assert "--unit operation" in there["error"]["remedy"]
    (stem,) = (entry for entry in found["methods"] if entry["method"] == "stem")
    assert stem["status"] == "ok"
    assert [each["status"] for each in stem["on"]] == ["refused"]
    assert "at_speedup" not in found
    assert found["recommendation"]["notes"][0]["code"] == "no_target_scored"
    text = assay("compare", files["light"], *FAST, "--on", files["there"], "--unit", "launch").stdout
    assert f"{files['there']}: not scored: only" in text
    assert "stars and recommendation are of this recording alone" in text


def test_a_refused_recording_stands_beside_one_that_is_scored(files: dict[str, Path], assay: Assay) -> None:
    given = ("--on", files["there"], "--on", files["same"], "--unit", "launch")
    found = document_of(assay("compare", files["light"], *FAST, *given, "--json"))
    assert [each["status"] for each in found["on"]] == ["refused", "ok"]
    assert found["at_speedup"]["targets"] == [str(files["same"])]
    assert all(len(row["targets"]) == 1 for row in found["at_speedup"]["rows"])
    (stem,) = (entry for entry in found["methods"] if entry["method"] == "stem")
    assert [each["status"] for each in stem["on"]] == ["refused", "ok"]


def test_compare_of_a_recording_without_operators_says_how_to_record_them(
    files: dict[str, Path], tmp_path: Path, assay: Assay
) -> None:
    table = assay_package.Profile.read(files["light"]).to_arrow().drop_columns(["operation", "call"])
    (bare,) = assay_package.Profile.from_arrow(table).write(tmp_path / "bare.parquet")
    ended = assay("compare", bare, *FAST, "--on", files["there"], "--unit", "operation")
    assert ended.code != 0
    assert "its operations are unknown" in ended.stderr
    assert "assay docs concepts" in ended.stderr
    found = document_of(
        assay("compare", files["light"], *FAST, "--on", bare, "--on", files["there"], "--json")
    )
    assert found["unit"] == "operation"
    assert [each["status"] for each in found["on"]] == ["refused", "ok"]
    assert "its operations are unknown" in found["on"][0]["reason"]


@pytest.mark.parametrize("model", ["sgd", "gaussian_nb", "mlp"])
def test_labels_by_operation_have_a_row_an_operation(
    files: dict[str, Path], tmp_path: Path, assay: Assay, model: str
) -> None:
    labels = tmp_path / "labels.csv"
    found = document_of(
        assay("classify", files["window"], "--light", files["light"], "--unit", "operation",
              "-p", f"model={model}", *PUBLISHED_PKS_OPTIONS, "-o", labels, "--json")
    )  # fmt: skip
    assert found["unit"] == "operation"
    assert found["launches"] == 160
    assert found["profile"]["launches"] == 280
    assert found["launches_by_origin"]["model"] > 0
    with labels.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 160
    assert [int(row["launch"]) for row in rows[:5]] == [0, 3, 4, 5, 7]
    assert [int(row["launches"]) for row in rows[:5]] == [3, 1, 1, 2, 3]
    assert rows[0]["operation"] == "aten::linear"
    assert rows[0]["input_shapes"] == "[[1,64]]"
    assert rows[0]["thread"] == "0"
    assert {int(row["group"]) for row in rows} == set(range(found["groups"]))


def test_classify_says_operations(files: dict[str, Path], assay: Assay) -> None:
    text = assay("classify", files["window"], "--light", files["light"], "--unit", "operation").stdout
    assert "160 operations in" in text
    assert "operations with counters in" in text
    by_launch = assay("classify", files["window"], "--light", files["light"]).stdout
    assert "280 launches in" in by_launch


def test_notebooks_select_compare_classify_and_list_operations(files: dict[str, Path]) -> None:
    profile = assay_package.Profile.read(files["light"])
    table = profile.operations()
    assert table.num_rows == 160
    assert table.slice(0, 1).to_pylist() == [
        {
            "process": 0, "launch": 0, "operation": "aten::linear", "kind": "operator",
            "input_shapes": "[[1,64]]", "thread": 0, "launches": 3,
            "duration_ns": made_training(40).column("duration_ns")[:3].sum(),
            "stratum": "aten::linear [[1,64]]",
        }
    ]  # fmt: skip
    assert sum(table["launches"].to_pylist()) == 280
    selection = profile.select("stem", on=files["there"])
    assert selection.unit == "operation"
    assert profile.select("stem").unit == "launch"
    assert set(selection.to_arrow()["operation"].to_pylist()) <= {
        f"{name} {shapes}"
        for name, shapes in zip(
            table["operation"].to_pylist(), table["input_shapes"].to_pylist(), strict=True
        )
    }
    scored = selection.evaluate(files["there"])
    assert scored.matched_calls_percent == scored.matched_time_percent == (100, 100)
    by_launch = profile.select("stem").evaluate(files["same"])
    assert by_launch.matched_time_percent is None
    compared = profile.compare("stem", "stratified", trials=30, on=assay_package.Profile.read(files["there"]))
    assert compared.unit == "operation"
    on_stem = dict(zip(compared.methods, compared.to_arrow()["on_error_percent"].to_pylist(), strict=True))[
        "stem"
    ]
    assert on_stem == scored.error_percent
    both = assay_package.Profile.read([files["window"]], light=files["light"])
    labelled = both.classify(unit="operation")
    assert labelled.unit == "operation"
    labels = labelled.labels()
    assert labels is not None
    assert labels.shape == (160,)
    assert np.array_equal(np.unique(labels), np.arange(labelled.groups))
