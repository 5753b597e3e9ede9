"""``assay explain``: why a launch, why a run, what a code means."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay_client.meanings import all_codes, meanings_of
from assay_client.remote.explained import explain_campaign, explain_run
from assay_sampling.notes.registry import NOTES
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.validity import FLAGS


@pytest.fixture
def page(shared_data: Path) -> Path:
    return shared_data / "ncu" / "synthetic_v100_5000_raw_page.csv.gz"


@pytest.fixture
def selection(assay: Callable[..., Any], page: Path, tmp_path: Path) -> Path:
    path = tmp_path / "selection.json"
    published = ("-p", "mixing=allowed", "-p", "representative=first")
    assert assay("select", "pks", page, *published, "-o", path).code == 0
    return path


def test_every_launch_of_the_recording_is_placed(
    assay: Callable[..., Any], selection: Path, page: Path
) -> None:
    ended = assay("explain", selection, page, "--launch", 812, "--json")
    found = json.loads(ended.stdout)
    asked, (representative,) = found["asked"], found["representatives"]
    assert (asked["launch"], asked["chosen"]) == (812, False)
    assert asked["group"] == representative["group"]
    # The first launch of a group comes before all others of it.
    assert representative["launch"] < 812
    assert representative["why"] == "it is the first launch of its group (representative=first)"
    assert asked["representative_cost"] > 0
    saved = json.loads(selection.read_text())
    group = saved["groups"][asked["group"]]
    assert group["representatives"][0]["launch"] == representative["launch"]
    assert group["launches"] == representative["group_launches"] == representative["weight"]


def test_a_selection_alone_explains_what_it_chose_and_nothing_else(
    assay: Callable[..., Any], selection: Path
) -> None:
    found = json.loads(assay("explain", selection, "--json").stdout)
    weights = [each["weight"] for each in found["representatives"]]
    assert sum(weights) == found["launches"] == 5000
    assert weights == sorted(weights, reverse=True)
    assert found["asked"] is None
    most = found["representatives"][0]
    first = assay("explain", selection).stdout.splitlines()[2]
    assert first.startswith(f"launch {most['launch']} (simulators: {most['launch'] + 1}) counts ")
    chosen = found["representatives"][-1]["launch"]
    assert json.loads(assay("explain", selection, "--launch", chosen, "--json").stdout)["asked"]["chosen"]
    refused = assay("explain", selection, "--launch", 812)
    assert (refused.code, "name the recording" in refused.stderr) == (2, True)


def test_the_launch_where_half_of_the_time_is_reached_says_so(
    assay: Callable[..., Any], shared_data: Path, tmp_path: Path
) -> None:
    log = shared_data / "accel_sim_more" / "infer.SM7_QV100.out.gz"
    path = tmp_path / "selection.json"
    assert assay("select", "pks", log, "-o", path).code == 0
    found = json.loads(assay("explain", path, "--json").stdout)
    why = "half of its group's time is in launches that last no longer (representative=weighted_median)"
    assert why in {each["why"] for each in found["representatives"]}


def test_launches_drawn_at_random_say_so(assay: Callable[..., Any], page: Path, tmp_path: Path) -> None:
    path = tmp_path / "random.json"
    assert assay("select", "random", page, "-o", path, "--seed", 7).code == 0
    found = json.loads(assay("explain", path, "--json").stdout)
    assert {each["why"] for each in found["representatives"]} == {
        "it was drawn at random from its group (seed 7)"
    }


def test_another_recording_is_refused_with_the_first_difference(
    assay: Callable[..., Any], selection: Path, shared_data: Path
) -> None:
    other = shared_data / "ncu" / "synthetic_v100_1000_modern_layout.csv.gz"
    refused = assay("explain", selection, other, "--launch", 3)
    assert refused.code == 7


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nothing.json"], 3, "there is no such file"),
        (["launches_dropped", "--launch", "3"], 2, "not a selection"),
        (["launches_droped"], 2, "did you mean launches_dropped?"),
    ],
)
def test_what_cannot_be_explained(
    assay: Callable[..., Any], tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    ended = assay("explain", *arguments, "--server", f"unix:{tmp_path / 'none.sock'}")
    assert ended.code == code
    assert words in ended.stderr


def test_every_code_has_a_meaning() -> None:
    codes = all_codes()
    assert {*NOTES, *FLAGS, *(each.value for each in FailureClass)} == set(codes)
    assert all(each.meaning and each.effect for code in codes for each in meanings_of(code))
    assert meanings_of("no_such_code") == []


def test_a_flag_says_what_it_does(assay: Callable[..., Any]) -> None:
    (found,) = json.loads(assay("explain", "launches_dropped", "--json").stdout)["meanings"]
    assert found["kind"] == "flag"
    assert found["effect"] == ("results exclude the run; the run is tried again as after dropped_events")
    assert "profile again" in assay("explain", "launches_dropped").stdout


def _run(number: int, **changes: Any) -> dict[str, Any]:
    plain = {"run_id": f"c-1.{number:04}", "state": "done", "failure": None, "flags": [], "waiting_for": ""}
    return {**plain, **changes}


FAILURE = {"failure_class": "hang", "cause": "it printed nothing for 10 min", "remedy": "raise timeout"}


def test_reasons_of_a_campaign_are_gathered_failures_first() -> None:
    campaign = {
        "state": "running",
        "failure": None,
        "waiting": [{"kind": "no_agent", "runs": 5, "first_run_id": "c-1.0004", "reason": "no GPU"}],
        "runs": [
            _run(0, flags=[{"name": "throttled", "detail": "hot", "invalidates": True}]),
            _run(1, state="failed", failure=FAILURE),
            _run(2, state="failed", failure=FAILURE),
        ],
    }
    client: Any = SimpleNamespace(status=lambda _: campaign)
    found = explain_campaign(client, "c-1")
    assert [(each.what, each.code, each.runs, each.first_run_id) for each in found.reasons] == [
        ("failed", "hang", 2, "c-1.0001"),
        ("waits", "no_agent", 5, "c-1.0004"),
        ("flag", "throttled", 1, "c-1.0000"),
    ]
    assert found.reasons[0].remedy == "raise timeout"
    assert [each.invalidates for each in found.reasons] == [False, False, True]


@pytest.mark.parametrize(
    ("run", "detail"),
    [
        (_run(3, state="waiting", waiting_for="the GPU is hot"), "the GPU is hot"),
        (_run(3, state="waiting"), "its turn has not come: assay lab queue says who is ahead"),
    ],
)
def test_a_run_that_waits_says_what_for(run: dict[str, Any], detail: str) -> None:
    client: Any = SimpleNamespace(run=lambda _: run)
    (reason,) = explain_run(client, "c-1.0003").reasons
    assert (reason.what, reason.detail) == ("waits", detail)


def test_a_word_that_is_neither_code_nor_id_is_told_from_a_server_that_is_away(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    away = ("--server", f"unix:{tmp_path}/away.sock")
    word = assay("explain", "invalidates", *away)
    assert word.code == 2
    assert "'invalidates' is not a file, a code, or the id" in word.stderr
    for given_id in ("training-1", "training-1.0004"):
        assert assay("explain", given_id, *away).code == 5
