"""Figures of what verbs print hold the numbers of the documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assay_report.figures import forms
from assay_report.figures.figure import Figure
from assay_report.figures.kinds import cold_start, pareto, reuse, scaling, tiers, within_launch
from assay_sampling.projection.projector import Series
from tests.support.server.made_figures import HOSTILE, data_rows, hints, texts

COMPARED = {
    "per_launch": {"launch": [1, 2, 3], "kernel": [HOSTILE, "b", "c"],
                   "ipc_difference_percent": [-16.5, 0.0, None]},
    "weighted_shares_percent": {"5": 25.0, "10": 25.0}, "synthetic": False,
}  # fmt: skip
REUSED = {
    "launches": [
        {"launch": 1, "kernel": HOSTILE, "forward_reuse": {"byte": 0.5, "sector": 0.25, "line": 0.125}},
        {"launch": 2, "kernel": "b", "forward_reuse": {"byte": None, "sector": None, "line": None}},
    ]
}  # fmt: skip
SIEVED: dict[str, Any] = {
    "method": "sieve", "profile": {"synthetic": True},
    "tiers": [{"tier": 1, "kernels": 1, "strata": 1, "launches": 5, "launch_share": 0.25,
               "instruction_share": 0.1},
              {"tier": 2, "kernels": 3, "strata": 3, "launches": 15, "launch_share": 0.75,
               "instruction_share": 0.9}],
    "sweep": [{"theta": 0.1, "speedup": 10.0, "error_percent": 1.0, "kernels_by_tier": [1, 1, 2]},
              {"theta": 0.2, "speedup": 20.0, "error_percent": 2.0, "kernels_by_tier": [1, 3, 0]},
              {"theta": 0.3, "speedup": 20.0, "error_percent": 2.0, "kernels_by_tier": [1, 3, 0]}],
}  # fmt: skip


def test_every_launch_and_every_share_of_a_cold_start() -> None:
    figure = cold_start.of_comparison(COMPARED)
    rows = data_rows(figure.spec)
    assert [(r["launch"], r["difference_percent"]) for r in rows if "launch" in r] == [(1, -16.5), (2, 0.0)]
    assert [(r["least"], r["share_percent"]) for r in rows if "least" in r] == [("5 %", 25.0), ("10 %", 25.0)]
    assert any("<script>" in hint for hint in hints(figure))


def test_forward_reuse_in_each_grain() -> None:
    rows = data_rows(reuse.of_document(REUSED).spec)
    assert [(r["launch"], r["grain"], r["share_percent"]) for r in rows] == [
        (1, "byte", 50.0), (1, "sector", 25.0), (1, "line", 12.5),
    ]  # fmt: skip
    many = [
        {"launch": i, "kernel": "k", "forward_reuse": dict.fromkeys(reuse.GRAINS, i % 2)} for i in range(3000)
    ]
    means = data_rows(reuse.of_document({"launches": many}).spec)
    assert len(means) == 3 * reuse.MOST_POINTS
    assert {row["share_percent"] for row in means} == {50.0}


def test_tiers_and_thresholds_of_sieve() -> None:
    figure = tiers.of_selection(SIEVED)
    rows = data_rows(figure.spec)
    shares = {(r["of"], r["tier"][:6]): r["share_percent"] for r in rows if "of" in r}
    assert shares[("kernels", "tier 1")] == 25.0 and shares[("instructions", "tier 2")] == pytest.approx(90.0)
    swept = [(r["theta"], r["speedup"], r["error_percent"], r["label"]) for r in rows if "speedup" in r]
    assert swept == [("0.1", 10.0, 1.0, "0.1"), ("0.2", 20.0, 2.0, "0.2, 0.3"), ("0.3", 20.0, 2.0, "")]
    by_theta = [r["share_percent"] for r in rows if r.get("theta") == "0.1" and "of" not in r and "tier" in r]
    assert by_theta == [25.0, 25.0, 50.0]
    assert "(synthetic)" in figure.title
    assert tiers.of_selection({**SIEVED, "tiers": None, "method": "pks"}).empty is not None


def series(samples: int) -> Series:
    cycles = np.arange(1, samples + 1) * 100.0
    misses, accesses = np.full(samples, 3.0), np.full(samples, 4.0)
    return Series(cycles, cycles * 7, np.ones(samples), {"l2_miss_rate": (misses, accesses)})


def test_ipc_and_misses_over_time_at_any_number_of_samples() -> None:
    for samples in (5, 10_001):
        one = within_launch.Sampled(HOSTILE, series(samples), "paper", {"paper": 250.0, "waves": 300.0})
        figure = within_launch.over_time([one])
        rows = data_rows(figure.spec)
        ipc = [row["ipc"] for row in rows if "ipc" in row]
        assert set(ipc) == {7.0} and len(ipc) == min(samples, within_launch.MOST_SAMPLES)
        assert {row["percent"] for row in rows if row.get("what") == "L2 miss rate"} == {75.0}
        assert {"paper", "waves"} <= set(texts(figure))
    assert within_launch.over_time([]).empty is not None


def test_the_front_of_a_comparison_is_of_fair_scores() -> None:
    def entry(method: str, error: float, speedup: float | None) -> dict[str, Any]:
        fair = {"error_percent": error, "speedup": speedup, "basis": "draws", "trials": 30}
        return {"method": method, "status": "ok", "fair": fair}

    document = {
        "profile": {"synthetic": False},
        "methods": [entry("a", 1.0, 10.0), entry("b", 2.0, 20.0), entry("c", 3.0, 5.0), entry("d", 1.0, None),
                    {"method": "e", "status": "refused", "reason": "no counters"}],
    }  # fmt: skip
    figure = pareto.of_comparison(document)
    rows = data_rows(figure.spec)
    assert [row["speedup"] for row in rows if "method" not in row] == [10.0, 20.0]
    assert {row["method"] for row in rows if "method" in row} == {"a", "b", "c"}


def made() -> list[Figure]:
    prediction = {
        "workload": HOSTILE, "rule": "tool", "size_unit": "sm", "level": 0.9, "cliff_at": None,
        "scale_models": [{"size": 8, "ipc": 10.0}, {"size": 16, "ipc": 20.0}],
        "predictions": [{"size": 32, "ipc": 40.0, "lower": None, "upper": None, "level": 0.9},
                        {"size": 64, "ipc": None, "lower": None, "upper": None, "level": 0.9}],
    }  # fmt: skip
    evaluation = {
        "rules": {"tool": {"32": {}}},
        "size_unit": "sm",
        "workloads": {HOSTILE: {"tool": {"32": 1.5}}},
    }
    curve = {"curve": [{"capacity_bytes": 1024, "mpki": 2.0}, {"capacity_bytes": 4096, "mpki": 1.0}]}
    return [
        cold_start.of_comparison(COMPARED), reuse.of_document(REUSED), tiers.of_selection(SIEVED),
        within_launch.over_time([within_launch.Sampled(HOSTILE, series(5))]),
        scaling.of_prediction(prediction, {32: 41.0}), scaling.of_evaluation(evaluation),
        scaling.of_miss_rates(curve),
    ]  # fmt: skip


def test_all_of_them_are_valid_vega_lite_and_draw() -> None:
    for figure in made():
        figure.chart().to_dict()
        assert figure.empty is None
        assert len(texts(figure)) > 3
        assert float(forms.svg(figure).partition('width="')[2].partition('"')[0]) < 1000, figure.name
