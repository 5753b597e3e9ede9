"""``import assay`` gives the numbers of the command line: the same documents, files and tables."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import assay as notebook
from assay_sampling.errors import InputError, ParameterError
from tests.support.client import hand_made

Assay = Callable[..., Any]


@pytest.fixture
def window(tmp_path: Path) -> Path:
    return hand_made.write_raw_page(tmp_path / "window.csv", 40)


@pytest.fixture
def light(tmp_path: Path) -> Path:
    return hand_made.write_kineto(tmp_path / "light.json", 60)


def printed(ended: Any) -> Any:
    assert ended.code == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_selection_is_that_of_the_verb(assay: Assay, window: Path, light: Path, tmp_path: Path) -> None:
    path = tmp_path / "verb.json"
    document = printed(
        assay("select", "pks", window, "--light", light, "-p", "target_error_percent=3", "--seed", 4,
              "-o", path, "--json")
    )  # fmt: skip
    made = notebook.Profile.read(window, light=light).select("pks", seed=4, target_error_percent=3)
    assert made.to_dict() == document
    assert made.error_percent == document["error_percent"]
    made.write(tmp_path / "notebook.json")
    assert (tmp_path / "notebook.json").read_bytes() == path.read_bytes()
    again = notebook.Selection.read(path)
    assert again.to_dict() == document
    assert again.to_arrow().equals(made.to_arrow())


@pytest.mark.parametrize("method", ["pks", "stem", "random"])
def test_a_frame_has_the_lines_of_the_verbs_csv(
    assay: Assay, window: Path, tmp_path: Path, method: str
) -> None:
    path = tmp_path / "selection.csv"
    assert assay("select", method, window, "-o", path).code == 0
    found = notebook.Profile.read(window).select(method).to_pandas()
    columns, *lines = csv.reader(io.StringIO(path.read_text()))
    assert list(found.columns) == columns
    written = [[None if cell == "" else cell if name == "kernel" else float(cell)
                for name, cell in zip(columns, line, strict=True)] for line in lines]  # fmt: skip
    rows = [
        [value if isinstance(value, str) else None if math.isnan(value) else float(value) for value in row]
        for row in found.itertuples(index=False)
    ]
    assert sorted(rows, key=str) == sorted(written, key=str)


def test_an_evaluation_is_that_of_the_verb(assay: Assay, window: Path, light: Path, tmp_path: Path) -> None:
    path, slow = tmp_path / "selection.json", hand_made.write_kineto(
        tmp_path / "slow.json", 60, slower=1.5, gpu=hand_made.A100
    )  # fmt: skip
    assert assay("select", "pks", window, "--light", light, "-o", path).code == 0
    document = printed(assay("evaluate", path, slow, "--json"))
    selection = notebook.Selection.read(path)
    for recording in (slow, notebook.Profile.read(slow)):
        found = selection.evaluate(recording)
        assert found.to_dict() == document
    assert found.error_percent == document["error_percent"]
    assert found.total == document["cost"]["total"]
    by_weights = found.to_pandas().set_index("weights")["error_percent"].to_dict()
    assert by_weights == {kind: each["error_percent"] for kind, each in document["by_weights"].items()}
    relative = printed(assay("evaluate", path, light, slow, "--json"))
    both = selection.evaluate_speedup(light, notebook.Profile.read(slow))
    assert both.to_dict() == relative
    assert (both.speedup_true, both.error_percent) == (
        relative["speedup_true"],
        relative["speedup_error_percent"],
    )
    assert both.second.total == relative["second"]["cost"]["total"]
    assert (
        both.to_arrow()["speedup_predicted"].to_pylist()[0]
        == relative["by_weights"]["launches"]["speedup_predicted"]
    )
    assert "true speedup" in both._repr_html_()


def test_a_comparison_is_that_of_the_verb(assay: Assay, window: Path) -> None:
    document = printed(assay("compare", window, "-p", "pks.k_max=5", "--trials", 30, "--json"))
    found = notebook.Profile.read(window).compare(parameters={"pks.k_max": 5}, trials=30)
    assert found.to_dict() == document
    assert found.recommended == document["recommendation"]["method"]
    rows = found.to_arrow().to_pylist()
    for row, entry in zip(rows, document["methods"], strict=True):
        for name in ("method", "status", "reason", "error_percent", "speedup", "groups"):
            assert row[name] == entry[name]
        assert row["fair_error_percent"] == (entry["fair"] or {}).get("error_percent")
        assert row["star"] == entry["pareto"]
    assert len(found.to_pandas()) == len(document["methods"])


def test_a_profile_is_written_as_a_file_that_verbs_read(assay: Assay, window: Path, tmp_path: Path) -> None:
    profile = notebook.Profile.read(window)
    profile.write(tmp_path / "kept.parquet")
    (document,) = printed(assay("inspect", tmp_path / "kept.parquet", "--json"))["files"]
    assert (document["launches"], document["kernels"]) == (40, 3)
    again = notebook.Profile.read(tmp_path / "kept.parquet")
    assert again.to_arrow().equals(profile.to_arrow(), check_metadata=True)


def test_other_files_and_endings_are_refused(window: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it is a recording"):
        notebook.Selection.read(window)
    selection = notebook.Profile.read(window).select("random")
    with pytest.raises(ParameterError, match=r"does not end in \.json"):
        selection.write(tmp_path / "selection.csv")
    with pytest.raises(ParameterError, match="no parameter 'sample'"):
        notebook.Profile.read(window).select("random", sample=3)


def test_a_comparison_is_drawn_and_written(window: Path, tmp_path: Path) -> None:
    plot = notebook.Profile.read(window).compare("random", "sieve", trials=30).plot()
    assert plot.empty is None
    assert plot._repr_svg_().startswith("<svg")
    assert "sieve" in plot._repr_svg_()
    plot.write(tmp_path / "figure.pdf")
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert plot.chart().to_dict()["title"] == plot.title
