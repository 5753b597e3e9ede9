"""Workloads that are honest and odd, through the command line: what a stranger reads of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_client.recordings.launch_files import write_launches
from tests.support.sampling import odd_workloads
from tests.support.sampling.odd_workloads import THERE, OddWorkload, other_kernels

Assay = Callable[..., Any]


def light_of(odd: OddWorkload, folder: Path) -> Path:
    return odd.written(folder)[1]


def test_all_launches_equal_are_trusted(assay: Assay, tmp_path: Path) -> None:
    light = light_of(odd_workloads.all_equal(), tmp_path)
    shown = assay("select", light).stdout
    assert shown.startswith("Trust it: on another GPU the total should be off by about 0.3 %")
    assert "error here  0.00 % of the total" in shown


def test_one_launch_with_half_of_the_time_is_taken_whole(assay: Assay, tmp_path: Path) -> None:
    counted, light = odd_workloads.one_of_half_the_time(600).written(tmp_path, 200)
    for words in (("select", light), ("select", "pks", counted, "--light", light)):
        found = json.loads(assay(*words, "--json").stdout)
        assert found["error_percent"] < 0.01
        assert 1.8 < found["speedup"] < 2.0
        assert found["verdict"]["level"] == "trust"


def test_of_two_launches_both_are_taken_and_it_is_said_that_nothing_is_saved(
    assay: Assay, tmp_path: Path
) -> None:
    counted, light = odd_workloads.two_launches().written(tmp_path)
    for words in (("select", light), ("select", counted, "--light", light)):
        shown = assay(*words).stdout
        assert shown.startswith(
            "Trust it: every launch was taken, so nothing is estimated, and no time is saved."
        )
        assert "speedup     1.00x" in shown


def test_durations_of_zero_are_refused_and_some_are_said(assay: Assay, tmp_path: Path) -> None:
    light = light_of(odd_workloads.durations_of_zero(), tmp_path)
    for words in (("select", light), ("select", "balanced", light), ("compare", light)):
        ended = assay(*words)
        assert (ended.code, ended.stdout) == (7, "")
        assert "the launches have no cost at all in 'duration_ns'" in ended.stderr
    some = light_of(odd_workloads.durations_of_zero(every=3), tmp_path)
    shown = assay("select", some).stdout
    assert "67 launches without any duration_ns can never be drawn" in shown


def test_where_hardly_anything_repeats_half_is_saved_and_it_is_said(assay: Assay, tmp_path: Path) -> None:
    counted, light = odd_workloads.many_names(4_000, 800).written(tmp_path, 400)
    ended = assay("select", "pks", counted, "--light", light, "--all")
    assert "hardly anything repeats: " in ended.stdout
    found = json.loads(assay("select", "pks", counted, "--light", light, "--json").stdout)
    assert found["speedup"] > 1.8
    assert found["grouping"]["put_together"] > 0
    once = odd_workloads.many_names(800, 800).written(tmp_path, 80)[1]
    balanced = json.loads(assay("select", "balanced", once, "--json").stdout)
    assert balanced["verdict"]["level"] == "do_not"


def test_a_selection_for_sizes_of_which_it_took_none_is_not_trusted(assay: Assay, tmp_path: Path) -> None:
    counted, light = odd_workloads.many_names(8_000, 800, zipf=True).written(tmp_path, 80)
    found = json.loads(assay("select", "pks", counted, "--light", light, "--json").stdout)
    (reason,) = found["verdict"]["reasons"]
    assert (found["verdict"]["level"], reason["code"]) == ("do_not", "extrapolated_time")
    assert reason["numbers"]["extrapolated_percent"] == pytest.approx(56.8, abs=0.05)
    assert assay("select", "pks", counted, "--light", light).stdout.startswith(
        "Do not trust it: 56.8 % of the time is of kernels and sizes of which no launch was taken, in groups "
        "for which one launch stands: nothing vouches for it."
    )


@pytest.mark.parametrize("change", [{"missing": 2}, {"new": 2}])
def test_a_gpu_whose_library_has_other_kernels_is_not_scored(
    assay: Assay, tmp_path: Path, change: dict[str, int]
) -> None:
    odd = odd_workloads.one_of_half_the_time(600)
    light, other, saved = light_of(odd, tmp_path), tmp_path / "other.parquet", tmp_path / "s.json"
    write_launches(other, other_kernels(odd, **change).light(THERE))
    assert assay("select", light, "-o", saved).code == 0
    ended = assay("evaluate", saved, other)
    assert ended.code == 7
    assert "8 of the 10 selected kernels have this name there" in ended.stderr
    compared = assay("compare", light, "--on", other, "--method", "stem")
    assert compared.stdout.startswith(
        "Do not trust it: the given recording of another GPU does not hold the same launches."
    )
