"""``compare`` and ``classify``: every method on one profile, and the group of every launch."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from assay_client import api
from assay_client.recordings import comparing
from assay_sampling.errors import RefusedError
from assay_sampling.methods import registry
from tests.support.client import hand_made
from tests.support.sampling.published import PUBLISHED_PKS_OPTIONS

Assay = Callable[..., Any]
LAUNCHES = 40


@pytest.fixture
def raw_page(tmp_path: Path) -> Path:
    return hand_made.write_raw_page(tmp_path / "detailed.csv", LAUNCHES)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return hand_made.write_kineto(tmp_path / "light.json", LAUNCHES)


def document_of(ended: Any) -> Any:
    assert ended.stderr == ""
    assert ended.code == 0
    return json.loads(ended.stdout)


def by_method(document: Any) -> dict[str, Any]:
    return {entry["method"]: entry for entry in document["methods"]}


def test_every_method_is_compared_and_scored_as_select_does(assay: Assay, raw_page: Path) -> None:
    document = document_of(assay("compare", raw_page, "--seed", 3, "--json"))
    found = by_method(document)
    assert list(found) == list(registry.samplers())
    assert document["profile"]["launches"] == LAUNCHES
    for name in ("pks", "random", "stratified"):
        alone = document_of(assay("select", name, raw_page, "--seed", 3, "--json"))
        entry = found[name]
        assert (entry["status"], entry["reason"]) == ("ok", "")
        for key in ("cost", "error_percent", "group_error_percent", "speedup", "interval", "parameters"):
            assert entry[key] == alone[key], (name, key)
        assert entry["groups"] == len(alone["groups"])
        assert entry["launches_to_simulate"] == sum(len(g["representatives"]) for g in alone["groups"])
    assert found["single_iteration"]["error_percent"] == pytest.approx(0, abs=1e-9)


def test_methods_that_do_not_apply_are_listed_with_the_reason(assay: Assay, trace: Path) -> None:
    found = by_method(document_of(assay("compare", trace, "--json")))
    assert found["pks"]["status"] == "refused"
    assert found["pks"]["error"]["cause"] and found["pks"]["error"]["code"] != "failed"
    assert found["pks"]["reason"] == "PKS not applicable: no counters"
    assert found["pks"]["speedup"] is None
    assert found["random"]["status"] == "ok"
    shown = assay("compare", trace).stdout
    assert "Not applicable" in shown
    assert "PKS not applicable: no counters" in shown
    ended = assay("compare", trace, "--method", "pks")
    assert (ended.code, ended.stdout) == (7, "")
    assert "no method applies (pks: PKS not applicable" in ended.stderr


def test_a_star_marks_what_no_other_beats(assay: Assay, raw_page: Path) -> None:
    entries = document_of(assay("compare", raw_page, "--json"))["methods"]
    scored = [entry for entry in entries if entry["status"] == "ok"]
    judged = [e["fair"] for e in scored if e["no_star"] is None or e["no_star"]["code"] == "beaten_by"]
    for entry in scored:
        fair = entry["fair"]
        beaten = any(
            other["error_percent"] <= fair["error_percent"]
            and other["speedup"] >= fair["speedup"]
            and (other["error_percent"], other["speedup"]) != (fair["error_percent"], fair["speedup"])
            for other in judged
        )
        assert entry["pareto"] is (fair in judged and not beaten)
        assert entry["pareto"] is (entry["no_star"] is None)
    assert {entry["pareto"] for entry in scored} == {True, False}
    lines = [line.split() for line in assay("compare", raw_page).stdout.splitlines()]
    starred = {line[0] for line in lines if line[1:2] == ["*"]}
    assert starred == {entry["method"] for entry in scored if entry["pareto"]}


def test_a_comparison_ends_with_the_method_to_take_and_why(assay: Assay, raw_page: Path) -> None:
    document = document_of(assay("compare", raw_page, "--trials", 30, "--json"))
    found = document["recommendation"]
    best = by_method(document)[found["method"]]
    assert best["pareto"]
    assert found["reason"]["error_percent"] == pytest.approx(best["fair"]["error_percent"], abs=0.005)
    assert by_method(document)["random"]["fair"]["trials"] == 30
    shown = assay("compare", raw_page, "--trials", 30).stdout.rstrip().splitlines()
    assert shown[-1] == f"recommended: {found['reason']['text']}"
    assert assay("compare", raw_page, "--trials", 29).code == 2


def test_the_table_fits_a_terminal_of_80_columns(
    assay: Assay, raw_page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = assay("compare", raw_page).stdout
    assert "instructions" in wide
    assert "left out" not in wide
    monkeypatch.setenv("COLUMNS", "80")
    narrow = assay("compare", raw_page).stdout
    table = narrow[narrow.index("Methods (") : narrow.index("(left out on this narrow terminal: by launches")]
    assert max(map(len, table.splitlines())) <= 80
    # Other columns lose nothing.
    first = next(line.split() for line in table.splitlines() if line.startswith("random"))
    assert set(first) <= set(_cells(wide, "random"))
    assert len(first) >= 7


def _cells(shown: str, method: str) -> list[str]:
    return next(line.split() for line in shown.splitlines() if line.startswith(method))


def test_parameters_go_to_the_method_named_or_to_all_that_have_them(assay: Assay, raw_page: Path) -> None:
    chosen = ["-m", "random", "-m", "systematic", "-m", "pks"]
    given = ["-p", "launches=8", "-p", "systematic.launches=4", "-p", "pks.k=2", "-p", "pks.mixing=allowed"]
    found = by_method(document_of(assay("compare", raw_page, *chosen, *given, "--json")))
    assert list(found) == ["random", "systematic", "pks"]
    assert found["random"]["launches_to_simulate"] == 8
    assert found["systematic"]["launches_to_simulate"] == 4
    assert found["pks"]["groups"] == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-m", "nope"], "no method 'nope'"),
        (["-m", "random", "-p", "k=3"], "no compared method has a parameter 'k'"),
        (["-p", "clusters=3"], "no compared method has a parameter 'clusters'"),
        (["-p", "random.clusters=3"], "no parameter 'clusters'"),
        (["-p", "random.launches=none"], "'launches'"),
    ],
)
def test_wrong_methods_and_parameters_are_named(
    assay: Assay, raw_page: Path, arguments: list[str], text: str
) -> None:
    ended = assay("compare", raw_page, *arguments)
    assert (ended.code, ended.stdout) == (2, "")
    assert text in ended.stderr


def test_a_method_that_fails_spoils_no_other(monkeypatch: pytest.MonkeyPatch, raw_page: Path) -> None:
    from assay_client.recordings import analyses  # noqa: PLC0415

    def broken(self: Any, profile: Any, parameters: Any, *, seed: int, count: int) -> None:
        raise ZeroDivisionError("by nothing")

    sampler = "assay_sampling.methods.baselines.systematic.SystematicSampler"
    monkeypatch.setattr(f"{sampler}.select_and_try", broken)
    profile = analyses.read_profile(raw_page)
    told: list[str] = []
    document = comparing.compare(profile, methods=["random", "systematic"], progress=told.append)
    assert by_method(document)["systematic"]["status"] == "failed"
    assert by_method(document)["systematic"]["reason"] == "ZeroDivisionError: by nothing"
    assert by_method(document)["systematic"]["error"] is None
    assert by_method(document)["random"]["status"] == "ok"
    assert told == ["random", "systematic"]
    with pytest.raises(RefusedError, match="by nothing"):
        comparing.compare(profile, methods=["systematic"])


@pytest.fixture
def window(tmp_path: Path) -> Path:
    return hand_made.write_raw_page(tmp_path / "window.csv", 25)


def test_classify_gives_every_launch_a_group(assay: Assay, window: Path, trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    document = document_of(
        assay("classify", window, "--light", trace, "-p", "k=3", *PUBLISHED_PKS_OPTIONS, "-o", path, "--json")
    )
    assert document["launches"] == LAUNCHES
    assert document["launches_by_origin"] == {
        "window": 25,
        "model": 15,
        "unknown": 0,
        "abstained": 0,
        "size": 0,
    }
    assert set(document["two_level"]["models"]) == {
        "sgd", "gaussian_nb", "mlp", "combined", "nearest_light_time", "scaled_counters"
    }  # fmt: skip
    with path.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert list(rows[0]) == ["process", "launch", "group", "origin"]
    assert [int(row["launch"]) for row in rows] == list(range(LAUNCHES))
    assert [row["origin"] for row in rows] == ["window"] * 25 + ["model"] * 15
    # Every kind of launch has its own counters: groups are the kinds, numbered by first appearance.
    assert [int(row["group"]) for row in rows] == hand_made.kinds(LAUNCHES)
    binary = tmp_path / "labels.parquet"
    shown = assay(
        "classify", window, "--light", trace, "-p", "k=3", *PUBLISHED_PKS_OPTIONS, "-o", binary
    ).stdout
    for text in ("40 launches in 3 groups", "by the chosen model", "combined", "Held-out accuracy"):
        assert text in shown
    table = pq.read_table(binary)
    assert table["group"].to_pylist() == hand_made.kinds(LAUNCHES)
    assert table["origin"].to_pylist()[24:26] == ["window", "model"]


def test_classify_needs_both_levels_and_a_file_of_a_known_kind(
    assay: Assay, window: Path, trace: Path, tmp_path: Path
) -> None:
    ended = assay("classify", trace, "--light", trace)
    assert (ended.code, ended.stdout) == (7, "")
    assert "the same recording" in ended.stderr
    second = hand_made.write_kineto(tmp_path / "second.json", late_us=1.0)
    ended = assay("classify", trace, "--light", second, "--ranks")
    assert (ended.code, ended.stdout) == (2, "")
    assert "no recording with counters" in ended.stderr
    assert assay("classify", window).code == 2
    ended = assay("classify", window, "--light", trace, "-o", tmp_path / "labels.txt")
    assert (ended.code, ended.stdout) == (2, "")
    assert "neither .csv nor .parquet" in ended.stderr


def test_python_has_the_same_words(assay: Assay, raw_page: Path, window: Path, trace: Path) -> None:
    document = document_of(assay("compare", raw_page, "-m", "random", "-p", "launches=8", "--json"))
    assert api.compare(raw_page, methods=["random"], parameters={"launches": 8}) == document
    selection = api.classify(window, trace, parameters={"k": 3})
    assert selection.labels is not None
    assert selection.labels.tolist() == hand_made.kinds(LAUNCHES)
