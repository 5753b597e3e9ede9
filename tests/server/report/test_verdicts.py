"""Verdicts: counts, means and causes from the rows, for reports of any release."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_report.html import render_html
from assay_report.latex import render_latex
from assay_report.markdown import render_markdown
from assay_report.model.report import Report
from assay_report.model.verdicts import SuiteEntry
from assay_report.reading import read_report
from assay_report.tables.verdicts import first_tables, intervals_text
from assay_report.verdicts.verdicts import first_sentence, judge, verdicts_of
from assay_sampling.documents.common import VerdictEntry
from assay_sampling.notes.registry import make_note
from tests.support.server.made_reports import made_report


def suite_of(report: Report, device: str, method: str) -> SuiteEntry:
    [entry] = [e for e in verdicts_of(report).suite if (e.device, e.method) == (device, method)]
    return entry


def test_a_gpus_verdict_counts_its_projections_and_says_why_one_does_not_carry_over() -> None:
    report = read_report(made_report(17))
    [_, turing, _] = verdicts_of(report).gpus
    # 17 workloads by three methods, one workload refused for all three.
    assert (turing.projections, turing.within_target, turing.without_number) == (48, 47, 3)
    [shortfall] = turing.shortfalls
    assert (shortfall.workload, shortfall.method, shortfall.error_percent) == ("workload-012", "pks", 114.0)
    assert shortfall.cause.model_dump(exclude_none=True) == {
        "kind": "group", "points": 114.0, "together": [], "kernel": made_kernel(report), "launches": 6000,
        "ratio": 1.6, "representative_ratio": 3.6,
    }  # fmt: skip
    assert turing.sentence == (
        "47 of 48 projections within 5 % on the RTX 2060; workload-012 (pks) does not carry over to the "
        "RTX 2060: 114 %, because a group of 6,000 launches costs 1.60 times as much there as on the V100, "
        "but what stands for it (gemm) 3.60 times; 3 rows without a number."
    )


def made_kernel(report: Report) -> str:
    return next(row.widest_groups[0].kernel for row in report.rows if row.widest_groups)


def test_the_suite_has_pkas_means() -> None:
    document = made_report(3)
    of_turing = [r for r in document["rows"] if (r["device"], r["method"]) == ("RTX 2060", "random")]
    for row, error, speedup in zip(of_turing, (1.0, 2.0, 6.0), (10.0, 100.0, 1000.0), strict=True):
        row.update(error_percent=error, speedup=speedup)
    entry = suite_of(read_report(document), "RTX 2060", "random")
    assert entry.mean_error_percent == 3.0
    assert entry.geometric_mean_speedup == pytest.approx(100.0, rel=1e-12)
    assert (entry.within_target, entry.workloads) == (2, 3)
    assert (entry.worst_workload, entry.worst_error_percent) == ("workload-002", 6.0)


def test_a_missing_speedup_leaves_no_mean_of_the_others() -> None:
    document = made_report(3)
    document["rows"][0]["speedup"] = None
    assert suite_of(read_report(document), "V100", "pks").geometric_mean_speedup is None
    assert suite_of(read_report(document), "V100", "random").geometric_mean_speedup is not None


def test_intervals_are_held_or_missed() -> None:
    document = made_report(2)
    first, second = [r for r in document["rows"] if (r["device"], r["method"]) == ("V100", "random")]
    first["interval"].update(low=1.9e9, high=2.0e9)  # the true total is its upper end
    second["interval"].update(low=2.1e9, high=2.2e9)
    entry = suite_of(read_report(document), "V100", "random")
    assert (entry.intervals, entry.intervals_held) == (2, 1)
    assert intervals_text(entry) == "1 held, 1 missed"
    assert intervals_text(suite_of(read_report(document), "V100", "pks")) == "no interval"


def test_the_campaigns_own_target_counts() -> None:
    document = made_report(13)
    for row in document["rows"]:
        row["asked_parameters"] = {"target_error_percent": 200.0}
    document["rows"][0]["asked_parameters"] = {"target_error_percent": 150}
    verdicts = verdicts_of(read_report(document))
    assert verdicts.target_error_percent == 150.0
    assert all(not gpu.shortfalls for gpu in verdicts.gpus)


def report_of_errors(errors: list[float | None]) -> Report:
    document = made_report(1)
    template = document["rows"][0]
    document["rows"] = [
        {
            **copy.deepcopy(template),
            "workload": f"w{at}",
            "error_percent": error,
            "signed_error_percent": error,
        }
        for at, error in enumerate(errors)
    ]
    document["summary"] = []
    return read_report(document)


@given(st.lists(st.floats(0.0, 300.0) | st.none(), min_size=1, max_size=6))
def test_nothing_above_the_target_is_within_it(errors: list[float | None]) -> None:
    report = report_of_errors(errors)
    above = sum(error is not None and error > 5.0 for error in errors)
    [gpu] = verdicts_of(report).gpus
    assert len(gpu.shortfalls) == above
    assert gpu.projections - gpu.within_target == above
    for row in report.rows:
        assert row.within_target == (None if row.error_percent is None else row.error_percent <= 5.0)


@pytest.mark.parametrize("errors", [[None], [0.0, 5.0], [5.1], [None, 0.0, 4.9, 5.0, 5.1, 300.0]])
def test_no_form_calls_a_row_good(errors: list[float | None]) -> None:
    report = report_of_errors(errors)
    assert not re.search(r">\s*ok\s*<|✓|✔|green", render_html(report))
    assert "| ok |" not in render_markdown(report)


def test_what_is_excluded_is_said_once_for_each_gpu_and_reason() -> None:
    document = made_report(34)
    failure = {
        "failure_class": "cancelled",
        "subject": "run",
        "cause": "a person cancelled it",
        "remedy": "r",
    }
    document["failed_runs"] = [
        {"run_id": f"made-1.9{at}", "workload": f"workload-00{at}", "device": "V100", "level": "light",
         "reason": "cancelled", "failure": failure} for at in range(3)
    ]  # fmt: skip
    report = read_report(document)
    verdicts = verdicts_of(report)
    rows, runs = verdicts.excluded
    assert (rows.device, rows.number, rows.workloads) == ("RTX 2060", 6, ["workload-016", "workload-033"])
    assert rows.methods == ["pks", "random", "systematic"]
    assert (runs.what, runs.number, runs.remedy) == ("runs", 3, "r")
    assert not verdicts.complete
    assert "3 of 207 runs have no data: this report covers what is there." in render_html(
        read_report(document)
    )


def test_a_report_without_rows_has_a_first_screen() -> None:
    document = {**made_report(1), "rows": [], "summary": [], "recommendations": [], "runs": []}
    verdicts = verdicts_of(read_report(document))
    assert (verdicts.gpus, verdicts.suite, verdicts.asked.workloads) == ([], [], 0)
    assert [table.title for table in first_tables(verdicts)] == ["The suite"]


def test_verdicts_of_a_stored_report_are_taken_as_they_are() -> None:
    document = read_report(made_report(2)).to_document()
    document["verdicts"]["gpus"][0]["sentence"] = "as the server said it."
    assert verdicts_of(read_report(document)).gpus[0].sentence == "as the server said it."


def test_a_number_that_is_not_finite_is_no_error() -> None:
    document: dict[str, Any] = made_report(2)
    report = Report.model_validate(document)
    report.rows[0].error_percent = math.nan
    assert judge(report).rows[0].within_target is None
    assert suite_of(report, "V100", "pks").workloads == 1


def verdict_as(level: str, **numbers: float) -> dict[str, Any]:
    code = {"trust": "within_goals", "total_only": "group_error", "do_not": "total_error"}[level]
    return {"level": level, "reasons": [{"code": code, "numbers": {"most_percent": 3.0, **numbers}}]}


def with_verdicts(document: dict[str, Any], **of_workload: tuple[str, float]) -> Report:
    """Rows of a method away from its GPU with these levels and errors by workload; others are trusted."""
    for row in document["rows"]:
        level, error = of_workload.get(row["workload"].replace("-", "_"), ("trust", 1.0))
        row["verdict"] = verdict_as(level, error_percent=error, group_error_percent=error)
        row["error_percent"] = error
    document["recommendations"] = []
    return read_report(document)


def test_the_first_sentence_says_where_not_to_trust_the_worst_first() -> None:
    report = with_verdicts(
        made_report(5), workload_001=("do_not", 9.0), workload_003=("do_not", 42.6),
        workload_004=("total_only", 12.0),
    )  # fmt: skip
    overall = verdicts_of(report).overall
    assert [(each.workload, each.level) for each in overall.workloads[:3]] == [
        ("workload-003", "do_not"), ("workload-001", "do_not"), ("workload-004", "total_only"),
    ]  # fmt: skip
    device = overall.workloads[0].device
    assert device != overall.workloads[0].selected_on
    assert first_sentence(report).startswith(
        "Trust the method to take on 2 of 5 workloads; do not on workload-003 (pks), because on the "
        f"{device} the total is off by 42.6 %, more than 3 %; workload-001 (pks), because"
    )
    assert "; trust the total only on workload-004 (pks), because on the" in first_sentence(report)


def test_the_first_sentence_says_for_which_window_of_a_program_it_stands() -> None:
    window = "launches 1 to 812, the first 600 s of the program, which was ended then"
    note = make_note("light_window", window=window).to_dict()
    for workloads in (1, 2):
        document = made_report(workloads)
        for row in document["rows"]:
            if row["workload"] == "workload-000":
                row["notes"] = [note]
        report = with_verdicts(document)
        [only] = (each for each in verdicts_of(report).overall.workloads if each.workload == "workload-000")
        assert only.sentence.endswith(f"; it stands only for {window}")
        said = (
            f"it stands only for {window}."
            if workloads == 1
            else "; of workload-000 only a part was recorded."
        )
        assert first_sentence(report).endswith(said)


def test_all_trusted_and_none() -> None:
    assert first_sentence(with_verdicts(made_report(2))).startswith(
        "Trust the method to take on all 2 workloads: workload-000 is worst, on the"
    )
    none = with_verdicts(made_report(1), workload_000=("do_not", 9.0))
    assert first_sentence(none).startswith("Do not trust the method to take on workload-000 (pks), because ")
    both = with_verdicts(made_report(2), workload_000=("do_not", 9.0), workload_001=("do_not", 8.0))
    assert first_sentence(both).startswith("Trust the method to take on none of 2 workloads; do not on ")
    document = made_report(1)
    for row in document["rows"]:
        row["verdict"] = None
    assert first_sentence(read_report(document)) == (
        "Do not trust this report: none of its rows has a verdict."
    )


def test_of_several_methods_the_recommended_one_counts_else_that_of_the_best_verdict() -> None:
    document = made_report(1)
    report = with_verdicts(document)
    for row in report.rows:
        level = "trust" if row.method == "random" else "do_not"
        row.verdict = VerdictEntry.model_validate(verdict_as(level, error_percent=9.0, group_error_percent=1))
    report.verdicts = None
    overall = verdicts_of(report).overall
    assert [(each.method, each.level) for each in overall.workloads] == [("random", "trust")]


@pytest.mark.parametrize("render", [render_html, render_markdown, render_latex])
def test_every_form_begins_with_the_verdict(render: Callable[[Report], str]) -> None:
    report = with_verdicts(made_report(3), workload_001=("do_not", 9.0))
    text = render(report)
    assert text.index("Trust the method to take on 2 of 3 workloads") < text.index("3 workloads with")


@pytest.mark.parametrize(
    ("method", "is_advised", "is_red"),
    [("random", True, False), ("random", False, True), ("pks", True, True)],
)
def test_a_gpu_is_red_only_where_the_method_to_take_falls_short_if_there_is_one(
    method: str, is_advised: bool, is_red: bool
) -> None:
    document = made_report(3)
    assert {each["method"] for each in document["recommendations"]} == {"pks"}
    [row] = [
        each
        for each in document["rows"]
        if (each["device"], each["workload"], each["method"]) == ("RTX 2060", "workload-001", method)
    ]
    row["error_percent"] = 40.0
    if not is_advised:
        document["recommendations"] = []
    cards = re.findall(r'<div class="card( short)?"><p>([^<]*)', render_html(read_report(document)))
    assert len(cards) == 3
    assert ["RTX 2060" in headline for short, headline in cards if short] == [True] * is_red
