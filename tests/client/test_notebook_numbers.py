"""``import assay`` gives the numbers of the command line: the same documents, files and tables."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest

import assay as notebook
from assay_sampling.errors import InputError, MisalignedError, ParameterError
from tests.support.client import hand_made
from tests.support.server.made_figures import data_rows

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


def rows_of(plot: notebook.Plot) -> list[dict[str, Any]]:
    with TemporaryDirectory() as folder:
        plot.write(Path(folder) / "figure.json")
        return data_rows(json.loads((Path(folder) / "figure.json").read_text()))


def test_a_selection_is_drawn_as_the_verb_draws_it(
    assay: Assay, window: Path, light: Path, tmp_path: Path
) -> None:
    selection = notebook.Profile.read(window, light=light).select("pks")
    for kind in ("launches", "groups"):
        drawn = tmp_path / f"{kind}.json"
        ended = assay("select", "pks", window, "--light", light, "--plot", drawn, "--figure", kind)
        assert ended.code == 0, ended.stderr
        selection.plot(kind).write(tmp_path / "notebook.json")
        assert (tmp_path / "notebook.json").read_bytes() == drawn.read_bytes()
    assert "tiers" in (selection.plot("tiers").empty or "")


def test_a_selection_of_a_file_is_drawn_on_the_recording_that_is_named(
    window: Path, light: Path, tmp_path: Path
) -> None:
    made = notebook.Profile.read(window, light=light).select("pks")
    made.write(tmp_path / "selection.json")
    saved = notebook.Selection.read(tmp_path / "selection.json")
    with pytest.raises(ParameterError, match="read from a file"):
        saved.plot()
    assert saved.plot(recording=light).svg() == made.plot().svg()
    slow = hand_made.write_kineto(tmp_path / "slow.json", 60, slower=1.5, gpu=hand_made.A100)
    here, there = (
        {row["launch"]: row["value"] for row in rows_of(plot) if "value" in row and "launch" in row}
        for plot in (made.plot(), saved.plot(recording=slow))
    )
    assert here and {launch: 1.5 * value for launch, value in here.items()} == pytest.approx(there)
    other = hand_made.write_kineto(tmp_path / "other.json", 59)
    with pytest.raises(MisalignedError, match="59"):
        saved.plot(recording=other)
    with pytest.raises(ParameterError, match="no figure 'tier'"):
        saved.plot("tier", recording=light)  # type: ignore[arg-type]


def test_a_profile_is_drawn_by_kernel(light: Path) -> None:
    profile = notebook.Profile.read(light)
    plot = profile.plot()
    lanes = list(dict.fromkeys(row["hint"] for row in rows_of(plot) if "kernel" in row))
    cost = profile.to_pandas().groupby("kernel", observed=True)["duration_ns"].sum()
    assert lanes == list(cost.sort_values(ascending=False).index)
    values = {row["row"]: row["mean"] for row in rows_of(plot) if "mean" in row}
    assert not values  # each launch has a place of its own
    least = [row["least"] for row in rows_of(plot) if "least" in row][::2]
    assert least == profile.to_pandas()["duration_ns"].tolist()
    assert "representative" not in plot.caption and "representative" not in plot.svg()


def noisy(seed: int) -> Any:
    times = np.random.default_rng(seed).normal(1000 * seed, 100, 200).round()
    return pd.DataFrame({"kernel": ["a", "b"] * 100, "grid_x": 64, "block_x": 128, "duration_ns": times})


def test_scores_are_drawn_by_kind_of_weights() -> None:
    here, there = (notebook.Profile.from_pandas(noisy(seed), device=f"GPU {seed}") for seed in (1, 2))
    selection = here.select("random", launches=30)
    found = selection.evaluate(there)
    rows = {row["series"]: row for row in rows_of(found.plot())}
    wanted = found.to_dict()["by_weights"]
    assert {name.replace(" ", "_"): row["error_percent"] for name, row in rows.items()} == {
        kind: scores["error_percent"] for kind, scores in wanted.items()
    }
    assert {row["speedup"] for row in rows.values()} == {found.speedup}
    interval = found.interval
    assert interval is not None
    allowed = rows[found.to_dict()["weights"].replace("_", " ")]["allowed_percent"]
    reach = interval[1] - found.projected if found.total >= found.projected else found.projected - interval[0]
    assert allowed == pytest.approx(100 * max(reach, 0) / found.total)
    both = selection.evaluate_speedup(here, there)
    speedups = {row["series"]: row["speedup"] for row in rows_of(both.plot())}
    assert speedups.pop("measured") == both.speedup_true
    assert speedups["weights by launches"] == both.to_dict()["by_weights"]["launches"]["speedup_predicted"]


def test_figures_come_as_svg_png_and_pdf(light: Path) -> None:
    plot = notebook.Profile.read(light).plot()
    assert plot.svg().startswith("<svg") and plot.svg() == plot._repr_svg_()
    assert plot.png().startswith(b"\x89PNG") and len(plot.png(scale=1.0)) < len(plot.png())
    assert plot.pdf(width_pt=240).startswith(b"%PDF")
