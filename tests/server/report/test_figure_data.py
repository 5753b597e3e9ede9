"""Figures hold the numbers of the document, exactly, and say in words what they leave out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_report.figures import gallery, parts
from assay_report.figures.kinds import composition, errors, pareto, relative, timeline
from assay_report.model.drawn import Drawn
from assay_report.reading import read_report
from tests.support.server.made_figures import COMPOSITION, HOSTILE, data_rows, drawn_part, hints, texts

CONDITION = {"cache": "none", "clock": "none", "sm_percent": 100.0}


@pytest.fixture
def drawn() -> Drawn:
    return Drawn.model_validate(drawn_part(CONDITION))


def interval(low: float, high: float) -> dict[str, Any]:
    return {
        "low": low,
        "high": high,
        "confidence": 0.95,
        "expected_error_percent": 1.0,
        "basis": "known_design",
    }


def test_errors_and_speedups_are_those_of_the_rows(report: dict[str, Any]) -> None:
    rows = read_report(report).rows
    figure = errors.of_workload(rows, "training", "")
    drawn = [
        (row["line"], row["series"], row["error_percent"], row["speedup"]) for row in data_rows(figure.spec)
    ]
    assert drawn == [(row.device, row.method, row.error_percent, row.speedup) for row in rows]
    assert drawn[1] == ("V100", "random", 0.5, 512.5)
    assert "1 of 4 have no score" in figure.caption
    assert {"error / %", "speedup (total / representatives' cost)", "no score", "V100", "pks"} <= set(
        texts(figure)
    )
    assert "V100, random: error 0.5 %, speedup 512" in hints(figure)


@pytest.mark.parametrize(
    ("low", "high", "allowed", "verdict"),
    [(1.9e9, 2.2e9, 10.0, "held"), (2.05e9, 2.3e9, 2.5, "missed")],
)
def test_the_grey_bar_ends_at_the_error_that_the_interval_allows(
    report: dict[str, Any], low: float, high: float, allowed: float, verdict: str
) -> None:
    # The truth is 2.0e9 and the projection 2.1e9, so the lower end of the interval decides.
    report["rows"][0].update(error_percent=5.0, interval=interval(low, high))
    figure = errors.of_workload(read_report(report).rows[:1], "training", "")
    (row,) = data_rows(figure.spec)
    assert row["allowed_percent"] == pytest.approx(allowed)
    assert hints(figure)[-1].endswith(f"the interval allows {allowed:.3g} %: {verdict}") or any(
        hint.endswith(verdict) for hint in hints(figure)
    )


def test_an_error_of_nothing_is_drawn_at_the_end_of_the_axis_and_keeps_its_value(
    report: dict[str, Any],
) -> None:
    report["rows"][1]["error_percent"] = 0.0
    figure = errors.of_workload(read_report(report).rows, "training", "")
    row = data_rows(figure.spec)[1]
    assert (row["error_percent"], row["error_drawn"]) == (0.0, parts.LEAST_ERROR_PERCENT)
    assert "Errors below 0.01 % are drawn at 0.01 %." in figure.caption


def test_of_many_workloads_the_worst_are_shown(report: dict[str, Any]) -> None:
    entry = report["summary"][0]
    report["summary"] = [{**entry, "workload": f"w{i}", "error_percent": float(i)} for i in range(200)]
    figure = errors.of_summary(read_report(report).summary, "")
    assert [row["line"] for row in data_rows(figure.spec)] == [f"w{i}" for i in range(160, 200)]
    assert "The 40 of 200 with the largest errors." in figure.caption


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 1e6)), min_size=1, max_size=30))
def test_the_front_is_what_no_other_beats_in_both(points: list[tuple[float, float]]) -> None:
    kept = pareto.front(points)
    for i in kept:
        assert not any(
            (e <= points[i][0] and s > points[i][1]) or (e < points[i][0] and s >= points[i][1])
            for e, s in points
        )
    for i, (error, speedup) in enumerate(points):
        assert i in kept or any(points[j][0] <= error and points[j][1] >= speedup for j in kept)


def test_means_of_methods_are_arithmetic_for_errors_and_geometric_for_speedups(
    report: dict[str, Any],
) -> None:
    report["rows"][0].update(error_percent=10.0, speedup=10.0)
    report["rows"][2].update(error_percent=30.0, speedup=1000.0)
    figure = pareto.of_rows(read_report(report).rows, "")
    large = {row["method"]: row for row in data_rows(figure.spec) if row.get("large")}
    assert (large["pks"]["error_percent"], large["pks"]["speedup"]) == (20.0, pytest.approx(100.0))
    assert (large["random"]["error_percent"], large["random"]["speedup"]) == (0.5, pytest.approx(512.5))


def test_groups_are_ordered_by_cost_with_a_bar_for_launches_and_one_for_time(drawn: Drawn) -> None:
    figure = composition.group_composition("g", "Groups", drawn.composition, "time")
    shown = texts(figure)
    assert [text for text in shown if text.startswith("group ")] == ["group 1", "group 0"]
    assert {"80 % time", "5 % launches", "15 % time", "90 % launches"} <= set(shown)
    assert "Not shown: 7 more groups, 5 % of the cost." in figure.caption
    rows = [row for row in data_rows(figure.spec) if "share_percent" in row]
    shares = [(row["group"], row["kind"], row["letter"], row["share_percent"]) for row in rows]
    assert shares == [
        ("group 1", "launches", "c", 5.0), ("group 1", "time", "b", 40.0), ("group 1", "time", "c", 40.0),
        ("group 0", "launches", "a", 60.0), ("group 0", "launches", "b", 30.0),
        ("group 0", "time", "a", 10.0), ("group 0", "time", "b", 5.0),
    ]  # fmt: skip
    assert "group 1, time: 40 % are 3 other kernels" in hints(figure)


def test_colour_is_not_all_that_tells_kernels_apart(drawn: Drawn) -> None:
    shown = texts(composition.group_composition("g", "Groups", drawn.composition, "time"))
    for letter in "abc":
        assert letter in shown, "in a bar"
        assert any(text.startswith(f"{letter} ") for text in shown), "in the legend"


def test_launches_are_drawn_as_ranges_with_a_lane_per_group(drawn: Drawn) -> None:
    figure = timeline.timeline("t", "Launches", drawn)
    rows = data_rows(figure.spec)
    band = [(row["row"], row["least"], row["most"]) for row in rows if "least" in row]
    assert band == [(0, 10, 20), (250, 10, 20), (250, 20, 40), (500, 20, 40), (500, None, None),
                    (750, None, None), (750, 10, 1000), (1000, 10, 1000)]  # fmt: skip
    lanes = [(row["row"], row["lane"], row["cost_percent"]) for row in rows if "cost_percent" in row]
    # A share that does not change has no row of its own.
    assert lanes == [(0, 0, 50.0), (1000, 0, 50.0), (0, 1, 40.0), (500, 1, 25.5), (1000, 1, 25.5),
                     (0, 2, 10.0), (500, 2, 0.0), (1000, 2, 0.0)]  # fmt: skip
    marks = [(row["launch"], row["place"]) for row in rows if "place" in row and "launch" in row]
    assert marks == [(0, 1.5), (900, 2.5)], "each representative is in the lane of its group"
    shown = texts(figure)
    assert {"group 1", "group 0", "other groups", "gemm", "duration / ns"} <= set(shown)
    assert "2 of the 5 representatives" in figure.caption and "about 250 launches" in figure.caption
    assert "representative of group 1: launch 900, duration_ns 1,000" in hints(figure)
    assert "another process begins" in hints(figure)


def test_speedups_from_gpu_to_gpu_are_ratios_of_the_costs(report: dict[str, Any]) -> None:
    home, away = report["rows"][0], report["rows"][2]
    away.update(selection=home["selection"], cost={**home["cost"], "total": 5e9, "projected": 6.3e9})
    figure = relative.of_gpus(read_report(report).rows, "")
    assert figure is not None
    found = {row["series"]: row["speedup"] for row in data_rows(figure.spec)}
    assert found == {"measured": 2.5, "pks": pytest.approx(3.0)}


def test_two_costs_are_never_divided_by_one_another(report: dict[str, Any]) -> None:
    home, away = report["rows"][0], report["rows"][2]
    away.update(selection=home["selection"], cost={**home["cost"], "quantity": "cycles_sm_avg"})
    assert relative.of_gpus(read_report(report).rows, "") is None


@pytest.mark.parametrize("parts_missing", [{"composition": None, "lanes": None}, {"by_launch": None}])
def test_an_empty_figure_says_why(parts_missing: dict[str, None]) -> None:
    entry = Drawn.model_validate(drawn_part(CONDITION, **parts_missing))
    figures = [
        timeline.timeline("t", "Launches", entry),
        composition.group_composition("g", "Groups", entry.composition, "time"),
    ]
    for figure in figures:
        if figure.empty is not None:
            assert figure.empty in texts(figure)
    assert any(figure.empty for figure in figures)


def test_a_report_without_any_score_has_figures_that_say_so(report: dict[str, Any]) -> None:
    report.update(rows=[], summary=[])
    figures = gallery.of_report(read_report(report))
    assert [figure.empty for figure in figures] == [
        "There are no scores.",
        "No method has both an error and a speedup.",
    ]


def test_a_page_of_many_workloads_draws_few_figures_and_each_workload_the_same_number(
    report: dict[str, Any],
) -> None:
    source = report["rows"][0]
    report["rows"] = [{**source, "workload": f"w{i}"} for i in range(200)]
    figures = gallery.of_report(read_report(report))
    assert len(figures) > 200
    shown = gallery.drawn_at_once(figures)
    assert len(shown) == gallery.MOST_DRAWN
    suite = {figure.name for figure in figures if figure.workload is None}
    assert suite <= shown


def test_figures_of_two_workloads_with_similar_names_do_not_replace_each_other(
    report: dict[str, Any],
) -> None:
    source = report["rows"][0]
    report["rows"] = [{**source, "workload": name} for name in ("tr aining", "tr/../aining", "tr  aining")]
    names = [figure.name for figure in gallery.of_report(read_report(report))]
    assert len(names) == len(set(names))
    assert {"tr-aining-error", "tr-..-aining-error", "tr-aining-error-2"} <= set(names)


@given(st.lists(st.floats(1e-9, 1e12), min_size=1, max_size=6))
def test_log_axes_hold_all_values_with_few_ticks(values: list[float]) -> None:
    low, high = parts.log_domain(values)
    assert low <= min(values) * (1 + 1e-9) and max(values) <= high * (1 + 1e-9) and low < high
    ticks = parts.log_ticks((low, high))
    assert 1 <= len(ticks) <= 9
    assert all(low * (1 - 1e-9) <= tick <= high * (1 + 1e-9) for tick in ticks)


def test_the_made_composition_has_hostile_names() -> None:
    assert COMPOSITION["kernels"][0] == HOSTILE
