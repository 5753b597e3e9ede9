"""Intervals of rows in the report: their half width, and whether they held the true total."""

from __future__ import annotations

import pytest

from assay_client.cli.reporters.evaluation import score_facts
from assay_report.model.scores import Row
from assay_report.tables.scores import rows_table
from assay_sampling.documents.common import ConditionEntry, Cost
from assay_sampling.estimation.intervals import Interval
from assay_sampling.notes.registry import make_note
from assay_server.analysis.rows import give_interval


def row(low: float | None, high: float = 0.0) -> Row:
    made = Row(workload="w", device="RTX 2060", condition=ConditionEntry(), method="stratified")
    made.cost = Cost(quantity="duration_ns", unit="ns", total=1000.0, projected=1100.0)
    if low is None:
        give_interval(made, None, make_note("interval_of_no_draw"))
    else:
        give_interval(made, Interval(low, high, 3.0, "target_spread"), None)
    return made


def cells(rows: list[Row]) -> list[str] | None:
    table = rows_table(rows)
    titles = [column.title for column in table.columns]
    return [line[titles.index("interval")].text for line in table.rows] if "interval" in titles else None


def test_rows_show_whether_the_interval_held() -> None:
    assert cells([row(990, 1210), row(1045, 1155)]) == ["± 10.00 %, held", "± 5.00 %, missed"]


def test_without_any_interval_there_is_no_column_and_the_reason_is_kept() -> None:
    found = row(None)
    assert cells([found]) is None
    assert found.interval_reason is not None
    assert found.interval_reason.code == "interval_of_no_draw"


@pytest.mark.parametrize(
    ("low", "said"), [(990, "held: the true total is in"), (1045, "missed: the true total is outside")]
)
def test_evaluate_says_whether_the_interval_held(low: float, said: str) -> None:
    document = {
        **row(low, 1200).to_dict(), "error_percent": 10.0, "signed_error_percent": 10.0,
        "group_error_percent": None, "speedup": 5.0, "decomposition": None,
    }  # fmt: skip
    assert said in dict(score_facts(document))["interval"]
