"""What people read first: the verdict of ``select``, ``evaluate`` and ``explain``, and ``select`` alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import hand_made

Assay = Callable[..., Any]
LAUNCHES = 400
BEGINNINGS = {
    "trust": "Trust it: ",
    "total_only": "Trust the total only: ",
    "do_not": "Do not trust it: ",
}


@pytest.fixture
def raw_page(tmp_path: Path) -> Path:
    return hand_made.write_raw_page(tmp_path / "detailed.txt", LAUNCHES)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return hand_made.write_kineto(tmp_path / "light.txt", LAUNCHES)


@pytest.mark.parametrize("method", ["balanced", "random", "stem", "sieve", "tbpoint", "systematic"])
def test_a_verdict_and_at_most_ten_lines(assay: Assay, raw_page: Path, tmp_path: Path, method: str) -> None:
    saved = tmp_path / "selection.json"
    lines = assay("select", method, raw_page, "-o", saved).stdout.splitlines()
    level = json.loads(saved.read_text())["verdict"]["level"]
    assert lines[0].startswith(BEGINNINGS[level])
    assert len(lines) <= 11
    whole = assay("select", method, raw_page, "--all").stdout.splitlines()
    assert whole[0] == lines[0]
    assert any(line.startswith("Groups") for line in whole)
    for verb in (("evaluate", saved, raw_page), ("explain", saved)):
        assert assay(*verb).stdout.splitlines()[0] == lines[0]
        assert json.loads(assay(*verb, "--json").stdout)["verdict"]["level"] == level


def test_one_launch_for_three_kernels_is_not_trusted(assay: Assay, raw_page: Path, tmp_path: Path) -> None:
    saved = tmp_path / "one.json"
    shown = assay("select", "random", raw_page, "-p", "launches=1", "-o", saved).stdout
    assert shown.startswith("Do not trust it: ")
    codes = [reason["code"] for reason in json.loads(saved.read_text())["verdict"]["reasons"]]
    assert "one_group_of_several_kernels" in codes


def test_without_a_method_the_best_verdict_is_taken(assay: Assay, raw_page: Path, trace: Path) -> None:
    found = json.loads(assay("select", trace, "--json").stdout)
    assert found["verdict"]["level"] == "trust"
    assert assay("select", trace).stdout.startswith("Trust it: ")
    assert found["method"] in ("stem", "balanced")
    shown = assay("select", raw_page).stdout
    assert "(recommended, of pks, stem, balanced)" in shown


def test_what_is_wrong_with_a_command_line_without_a_method(assay: Assay, trace: Path) -> None:
    for words, code, text in (
        (("select", trace, "-p", "k=3"), 2, "no method is named"),
        (("select", "stem"), 2, "no file is named after stem"),
        (("select", trace, "stem"), 2, "the method comes before the files"),
        (("select", "stme", trace), 2, "did you mean stem?"),
        (("select", "nothing.csv"), 3, "there is no such file"),
    ):
        ended = assay(*words)
        assert ended.code == code, words
        assert text in ended.stderr


def test_a_score_on_another_gpu_is_judged_by_its_errors(
    assay: Assay, shared_data: Path, tmp_path: Path
) -> None:
    folder, saved = shared_data / "three_gpus", tmp_path / "s.json"
    light = folder / "v100_light.json.gz"
    assert assay("select", "balanced", light, "-p", "speedup=150", "-o", saved).code == 0
    found = json.loads(assay("evaluate", saved, folder / "rtx2060.csv.gz", "--json").stdout)
    assert (found["error_percent"] <= 3, found["group_error_percent"] <= 6) == (True, True)
    assert found["verdict"]["reasons"][0]["numbers"]["error_percent"] == found["error_percent"]
    assert found["verdict"]["level"] == "trust"
    assert "expected_error_percent" not in found["verdict"]["reasons"][0]["numbers"]
    both = assay("evaluate", saved, light, folder / "rtx3070.csv.gz", "--cost", "duration_ns")
    assert both.code != 0 or both.stdout.startswith("Trust it: ")
