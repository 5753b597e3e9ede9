"""``assay compare FILE --on OTHER [--on ...]``: stars, table, plot and advice follow the other GPUs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import assay as assay_package
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import Device, TableMetadata
from tests.support.sampling.made_launches import made_launches

Assay = Callable[..., Any]
METHODS = ("-m", "random", "-m", "proportional", "-m", "balanced", "-m", "stem", "--trials", "30")
GPUS = ("V100", "A100", "H100")


def recorded(gpu: str, launches: int = 3000) -> Launches:
    """Twelve kernels, each with its own ratio of times between GPUs."""
    rng = np.random.default_rng(3)
    kernel = rng.integers(0, 12, launches)
    time = np.exp(rng.normal(4, 1, 12))[kernel] * np.exp(rng.normal(0, 0.3, launches))
    own = np.random.default_rng([7, GPUS.index(gpu)])
    ratio = np.exp(own.normal(0, 0.5, 12))[kernel] * np.exp(own.normal(0, 0.05, launches))
    return made_launches(
        [f"kernel_{one}" for one in kernel],
        metadata=TableMetadata("light", devices=(Device(0, gpu),)),
        duration_ns=np.round(time * (1 if gpu == "V100" else ratio) * 1000),
        device=[0] * launches,
    )


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for gpu in GPUS:
        (found[gpu],) = assay_package.Profile(Profile(light=recorded(gpu))).write(tmp_path / f"{gpu}.parquet")
    (found["short"],) = assay_package.Profile(Profile(light=recorded("A100").slice(0, 2000))).write(
        tmp_path / "short.parquet"
    )
    return found


def document_of(ended: Any) -> dict[str, Any]:
    assert ended.code == 0, ended.stderr
    return dict(json.loads(ended.stdout))


def test_stars_and_advice_follow_the_other_gpus(files: dict[str, Path], tmp_path: Path, assay: Assay) -> None:
    on = ("--on", files["A100"], "--on", files["H100"], "--on", files["short"], "--speedup", "40")
    found = document_of(assay("compare", files["V100"], *METHODS, *on, "--json"))
    assert [each["status"] for each in found["on"]] == ["ok", "ok", "refused"]
    assert "different numbers of launches" in found["on"][2]["reason"]
    there = found["at_speedup"]
    assert there["speedup"] == 40
    assert there["targets"] == [str(files["A100"]), str(files["H100"])]
    rows = {(row["method"], row["weights"]): row for row in there["rows"]}
    assert set(rows) == {
        ("random", "launches"), ("random", "light_time"), ("proportional", "light_time"),
        ("balanced", "light_time"), ("stem", "launches"), ("stem", "light_time"),
    }  # fmt: skip
    for row in rows.values():
        # Draws by launches are lucky and unlucky with long ones.
        assert row["speedup"] == pytest.approx(40, rel=0.2)
        totals = [each["error_percent"] for each in row["targets"]]
        parts = [each["part_error_percent"] for each in row["targets"]]
        assert row["worst_error_percent"] == max(totals)
        assert row["mean_part_error_percent"] == pytest.approx(sum(parts) / 2)
    # At home the total of `balanced` is exact by construction, so it could never have a star there.
    entries = {entry["method"]: entry for entry in found["methods"]}
    assert entries["balanced"]["fair"]["basis"] == "by_construction"
    assert entries["balanced"]["pareto"]
    assert not entries["random"]["pareto"]
    # One group for twelve kernels: more than 25 % off by kernel, whatever its total.
    assert entries["random"]["no_star"]["code"] == "error_above_most"
    advice = found["recommendation"]
    best = rows[advice["method"], advice["weights"]]
    assert best["star"]
    assert advice["parameters"] == best["parameters"]
    # The advice can be followed, and its numbers are those of `assay evaluate`.
    given = [part for name, value in advice["parameters"].items() for part in ("-p", f"{name}={value}")]
    saved = tmp_path / "selection.json"
    made = document_of(
        assay("select", advice["method"], files["V100"], *given, "-o", saved, "--json")
    )  # fmt: skip
    assert made["speedup"] == pytest.approx(40, rel=0.3)
    scored = document_of(assay("evaluate", saved, files["H100"], "--json"))
    assert scored["error_percent"] < 3 * best["worst_error_percent"] + 1


def test_the_text_shows_the_same_numbers_and_the_refused_gpu(files: dict[str, Path], assay: Assay) -> None:
    on = ("--on", files["A100"], "--on", files["short"], "--speedup", "40")
    found = document_of(assay("compare", files["V100"], *METHODS, *on, "--json"))
    text = assay("compare", files["V100"], *METHODS, *on).stdout
    assert f"{files['short']}: not scored: they hold different numbers of launches" in text
    assert "On other GPUs at a speedup of 40" in text
    for row in found["at_speedup"]["rows"]:
        assert f"{row['worst_error_percent']:,.2f}" in text
        assert f"{row['worst_part_error_percent']:,.2f}" in text
    assert "by 1 other GPU: at most" in text
    assert f"assay select {found['recommendation']['method']} FILE -p" in text


def test_the_plot_shows_what_the_table_says(files: dict[str, Path], tmp_path: Path, assay: Assay) -> None:
    plot = tmp_path / "plot.json"
    given = (files["V100"], *METHODS, "--on", files["A100"], "--speedup", "40")
    found = document_of(assay("compare", *given, "--plot", plot, "--json"))
    drawn = json.loads(plot.read_text())
    points = [
        point
        for layer in drawn["layer"]
        for point in layer.get("data", {}).get("values", ())
        if "hint" in point
    ]
    assert {(point["part_error_percent"], point["error_percent"]) for point in points} == {
        (row["worst_part_error_percent"], row["worst_error_percent"]) for row in found["at_speedup"]["rows"]
    }


def test_the_default_speedup_is_the_median_of_the_methods_own(files: dict[str, Path], assay: Assay) -> None:
    found = document_of(assay("compare", files["V100"], *METHODS, "--on", files["A100"], "--json"))
    own = float(np.median([entry["speedup"] for entry in found["methods"]]))
    assert found["at_speedup"]["speedup"] == pytest.approx(own, rel=0.05)


def test_a_speedup_needs_another_gpu_and_a_method_keeps_its_parameters(
    files: dict[str, Path], assay: Assay
) -> None:
    alone = assay("compare", files["V100"], "--speedup", "40")
    assert (alone.code, "give --on, too" in alone.stderr) == (2, True)
    given = ("-m", "random", "-p", "launches=9", "-p", "weights=light_time", "--on", files["A100"])
    (row,) = document_of(assay("compare", files["V100"], *given, "--json"))["at_speedup"]["rows"]
    assert (row["launches_to_simulate"], row["weights"]) == (9, "light_time")


def test_notebooks_get_the_same_numbers(files: dict[str, Path], assay: Assay) -> None:
    found = document_of(
        assay("compare", files["V100"], "-m", "balanced", "-m", "random", "--trials", "30",
              "--on", files["A100"], "--on", files["H100"], "--speedup", "40", "--json")
    )  # fmt: skip
    compared = assay_package.Profile.read(files["V100"]).compare(
        "balanced",
        "random",
        trials=30,
        on=[files["A100"], assay_package.Profile.read(files["H100"])],
        speedup=40,
    )
    rows = compared.elsewhere().to_pylist()
    assert [(row["method"], row["weights"], row["on"]) for row in rows] == [
        (row["method"], row["weights"], target)
        for row in found["at_speedup"]["rows"]
        for target in found["at_speedup"]["targets"]
    ]
    assert rows[0]["error_percent"] == found["at_speedup"]["rows"][0]["targets"][0]["error_percent"]
    assert compared.recommended == found["recommendation"]["method"]
    worst = max(each["error_percent"] for each in found["methods"][0]["on"])
    assert compared.to_arrow()["on_error_percent"][0].as_py() == worst
