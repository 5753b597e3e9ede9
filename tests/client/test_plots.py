"""``--plot FILE`` of the verbs: each draws what it prints, in the form that the suffix chooses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_report.figures import forms
from assay_sampling.errors import MissingExtraError
from tests.support.server.made_figures import data_rows

Assay = Callable[..., Any]
TABLE = (
    "workload,size,size_unit,ipc,mpki,f_mem\n"
    "<w>,8,sm,100,2,0.3\n<w>,16,sm,200,2,0.3\n<w>,32,sm,390,2,0.3\n<w>,64,sm,760,2,0.3\n"
)
SERIES = "cycles,instructions,ctas\n" + "".join(
    f"{100 * i},{5000 * i},{4 if i % 2 else 0}\n" for i in range(1, 41)
)
COMPARED = {
    "launch": [1, 2], "kernel": ["a<b>", "b"], "warm": [10.0, 20.0], "flushed": [12.0, 20.0],
    "instructions": [100.0, 300.0], "ipc_difference_percent": [-16.5, 0.0],
}  # fmt: skip


def spec(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_project_draws_its_samples_and_where_the_rule_stops(assay: Assay, tmp_path: Path) -> None:
    (tmp_path / "series.csv").write_text(SERIES)
    ended = assay(
        "project", tmp_path / "series.csv", "--param", "wave_ctas=4", "--param", "total_ctas=400",
        "--rule", "paper", "--param", "window_cycles=1000", "--plot", tmp_path / "f.json", "--json",
    )  # fmt: skip
    assert (ended.code, ended.stderr) == (0, "")
    document = json.loads(ended.stdout)
    rows = data_rows(spec(tmp_path / "f.json"))
    ipc = [(row["cycles"], row["ipc"]) for row in rows if "ipc" in row]
    assert ipc == [(100.0 * i, 50.0) for i in range(1, 41)]
    assert document["stop_cycles"] is not None
    assert document["stop_cycles"] in [row["cycles"] for row in rows if row.get("rule") == "paper"]


def test_scale_model_draws_known_points_predictions_and_intervals(assay: Assay, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(TABLE)
    ended = assay("scale-model", "predict", tmp_path / "table.csv", "--plot", tmp_path / "f.json", "--json")
    assert (ended.code, ended.stderr) == (0, "")
    document = json.loads(ended.stdout)
    rows = data_rows(spec(tmp_path / "f.json"))
    predicted = {row["size"]: row["ipc"] for row in rows if row.get("rule") == document["rule"]}
    assert predicted == {16: 200.0} | {each["size"]: each["ipc"] for each in document["predictions"]}
    known = {row["size"]: row["ipc"] for row in rows if row["hint"].startswith("known")}
    assert known == {32: 390.0, 64: 760.0}
    bands = {row["size"]: (row["lower"], row["upper"]) for row in rows if "lower" in row}
    assert bands == {each["size"]: (each["lower"], each["upper"]) for each in document["predictions"]}
    evaluated = assay("scale-model", "evaluate", tmp_path / "table.csv", "--plot", tmp_path / "e.svg")
    assert evaluated.code == 0 and (tmp_path / "e.svg").read_text().startswith("<svg")


def test_a_wrong_suffix_and_a_missing_folder_are_said_before_anything_is_read(
    assay: Assay, tmp_path: Path
) -> None:
    ended = assay("compare", tmp_path / "absent.csv", "--plot", tmp_path / "f.gif")
    assert ended.code == 2 and ".svg, .png, .pdf, .json, .html" in ended.stderr
    ended = assay("compare", tmp_path / "absent.csv", "--plot", tmp_path / "no" / "f.svg")
    assert ended.code == 2 and "mkdir -p" in ended.stderr


def test_without_the_extra_the_install_command_is_named(
    assay: Assay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> None:
        raise MissingExtraError("figures", "vl_convert", "figures")

    monkeypatch.setattr(forms, "converter", absent)
    ended = assay("select", "pks", tmp_path / "absent.csv", "--plot", tmp_path / "f.svg")
    assert ended.code == MissingExtraError.exit_code and "figures" in ended.stderr
    assert "install" in ended.stderr


def test_tbpoint_has_no_figure_and_says_so(assay: Assay, tmp_path: Path) -> None:
    ended = assay("project", tmp_path / "x", "--rule", "tbpoint", "--plot", tmp_path / "f.svg")
    assert ended.code == 2 and "tbpoint" in ended.stderr
