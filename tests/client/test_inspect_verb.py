"""``assay inspect``: unreadable files hide no others, and ``--top`` shows where the time goes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import hand_made

Assay = Callable[..., Any]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    hand_made.write_raw_page(tmp_path / "page.csv", 40)
    return tmp_path / "page.csv"


@pytest.fixture
def damaged(tmp_path: Path, page: Path) -> Path:
    path = tmp_path / "damaged.csv"
    lines = page.read_text().splitlines()
    lines[5] = lines[5].rpartition(',"')[0] + ',"many"'
    path.write_text("\n".join(lines) + "\n")
    return path


def test_each_unreadable_file_has_its_error_and_the_others_are_shown(
    assay: Assay, page: Path, damaged: Path, tmp_path: Path
) -> None:
    ended = assay("inspect", damaged, page, tmp_path / "nope.csv", "--json")
    assert ended.code == 3
    assert [each["path"] for each in json.loads(ended.stdout)["files"]] == [str(page)]
    first, second = (json.loads(line)["error"] for line in ended.stderr.splitlines())
    assert first["subject"].startswith(f"{damaged}:6")
    assert second["subject"] == str(tmp_path / "nope.csv")
    assert all(each["cause"] and each["remedy"] and each["exit_code"] == 3 for each in (first, second))


def test_errors_for_people_follow_what_was_read(assay: Assay, page: Path, tmp_path: Path) -> None:
    ended = assay("inspect", tmp_path / "one.csv", page, tmp_path / "two.csv")
    assert ended.code == 3
    assert "ncu-raw-csv" in ended.stdout
    one, two = ended.stderr.splitlines()
    assert one.startswith(f"error: {tmp_path / 'one.csv'}: there is no such file")
    assert two.startswith(f"error: {tmp_path / 'two.csv'}: there is no such file")


def test_nothing_is_printed_where_no_file_can_be_read(assay: Assay, tmp_path: Path) -> None:
    ended = assay("inspect", tmp_path / "nope.csv", "--json")
    assert (ended.code, ended.stdout) == (3, "")


def test_other_verbs_name_every_file_that_is_missing(assay: Assay, page: Path, tmp_path: Path) -> None:
    ended = assay("select", "pks", tmp_path / "one.csv", page, tmp_path / "two.csv", "--json")
    assert (ended.code, ended.stdout) == (3, "")
    subjects = [json.loads(line)["error"]["subject"] for line in ended.stderr.splitlines()]
    assert subjects == [str(tmp_path / "one.csv"), str(tmp_path / "two.csv")]


def test_top_shows_kernels_operators_and_ranges(assay: Assay, tmp_path: Path) -> None:
    assert assay("samples", tmp_path / "samples").code == 0
    window = tmp_path / "samples" / "window.csv"
    (file,) = json.loads(assay("inspect", window, "--top", "2", "--json").stdout)["files"]
    top = file["top"]
    assert (top["quantity"], top["launches"], top["launches_without_cost"]) == (
        "profiled_duration_ns", 100, 0,
    )  # fmt: skip
    assert [len(top[kind]) for kind in ("kernels", "operators", "ranges")] == [2, 2, 2]
    (first, second) = top["operators"]
    assert (first["name"], first["launches"], first["calls"]) == ("aten::addmm", 29, 29)
    assert first["percent"] > second["percent"] > 0
    shown = assay("inspect", window, "--top", "2").stdout
    for what in ("kernels", "operators", "ranges"):
        assert f"The {what} with the most time, of 100 launches" in shown
    assert "step/forward/aten::addmm" in shown


def test_a_simulators_log_is_ranked_by_cycles(assay: Assay, tmp_path: Path) -> None:
    assert assay("samples", tmp_path / "samples").code == 0
    log = tmp_path / "samples" / "simulator.out.gz"
    (file,) = json.loads(assay("inspect", log, "--top", "1", "--json").stdout)["files"]
    assert file["top"]["unit"] == "cycle"
    assert sum(each["percent"] for each in file["top"]["kernels"]) <= 100.0
    assert "kernels with the most cycles" in assay("inspect", log, "--top", "1").stdout
