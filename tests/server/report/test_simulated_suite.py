"""The simulator's columns of the suite: which line a simulation belongs to, their means, and every form."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from assay_report.external_results import set_beside
from assay_report.forms import Form, files_of, single
from assay_report.model.external_results import SimulatedEntry
from assay_report.model.report import Report
from assay_report.model.verdicts import SuiteEntry
from assay_report.reading import parse_report, read_report
from assay_report.tables.sections import short_tables
from assay_report.tables.verdicts import suite_table
from assay_report.verdicts.verdicts import verdicts_of
from assay_sampling.errors import ParameterError, RefusedError
from tests.support.server.made_reports import made_report

V100 = ["Tesla V100-SXM2-16GB"]


def simulated(workload: str, method: str = "pks", **more: Any) -> SimulatedEntry:
    """A simulation against cycles of a V100."""
    told = {"silicon_devices": V100, "simulator": "simulated sm_70 (80 SMs)", **more}
    return SimulatedEntry(application=workload, method=method, **told)


def with_two() -> Report:
    report = read_report(made_report(3, prefix="a workload"))
    first = simulated("a-workload-000", simulator_error_percent=20.0, pks_error_percent=22.0,
                      pka_error_percent=26.0, active_simulator_error_percent=10.0,
                      active_pks_error_percent=12.0, active_pka_error_percent=13.0, pks_speedup=2.0,
                      pka_speedup=9.0, pka_speedup_over="full")  # fmt: skip
    second = simulated("a workload-002", simulator_error_percent=30.0, pks_error_percent=33.0,
                       pka_error_percent=None, active_pks_error_percent=14.0, pks_speedup=8.0,
                       pka_speedup=4.0, pka_speedup_over="full")  # fmt: skip
    set_beside(report, [], [first, second])
    return report


def lines_with_simulations(report: Report) -> list[SuiteEntry]:
    return [line for line in verdicts_of(report).suite if line.simulated is not None]


def test_a_line_of_the_suite_has_the_means_of_its_simulations() -> None:
    [line] = lines_with_simulations(with_two())
    assert (line.device, line.method, line.workloads) == ("V100", "pks", 3)
    found = line.simulated
    assert found is not None
    assert (found.workloads, found.simulators) == (2, ["simulated sm_70 (80 SMs)"])
    assert (found.simulator_error_percent, found.active_simulator_error_percent) == (25.0, 10.0)
    assert (found.pks_error_percent, found.active_pks_error_percent) == (27.5, 13.0)
    assert (found.pka_error_percent, found.active_pka_error_percent) == (26.0, 13.0)
    assert found.pks_speedup == pytest.approx(4.0) and found.pka_speedup == pytest.approx(6.0)


def test_every_form_has_the_columns_in_the_suite_itself() -> None:
    report = with_two()
    table = suite_table(verdicts_of(report))
    headings = [column.heading for column in table.columns]
    row = dict(zip(headings, (cell.text for cell in table.rows[0]), strict=True))
    expected = {"simulated": "2 of 3", "simulator error (active) / %": "25.00 (10.00)",
                "PKS error (active) / %": "27.50 (13.00)", "PKA error (active) / %": "26.00 (13.00)",
                "PKS speedup": "4.00", "PKA speedup": "6.00"}  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    for form in (Form.HTML, Form.MARKDOWN, Form.LATEX):
        text = single(report, form).decode()
        suite = text[text.index("The suite") : text.index("Best method")]
        assert "25.00 (10.00)" in suite and "27.50 (13.00)" in suite, form
    found = files_of(report, Form.CSV)["report-tables/suite.csv"].decode()
    [line, *_] = csv.DictReader(io.StringIO(found, newline=""))
    columns = pq.read_table(
        io.BytesIO(files_of(report, Form.PARQUET)["report-tables/suite.parquet"])
    ).to_pydict()
    written = json.loads(single(report, Form.JSON))["verdicts"]["suite"][0]["simulated"]
    assert written["pks_error_percent"] == 27.5
    for key, value in written.items():
        if not isinstance(value, list):
            assert columns[f"simulated.{key}"][0] == value
            assert line[f"simulated.{key}"] == ("" if value is None else str(value))
    again = parse_report(single(report, Form.JSON))
    assert verdicts_of(again).suite == verdicts_of(report).suite


def test_a_report_without_simulations_has_neither_columns_nor_keys() -> None:
    report = read_report(made_report(3))
    assert not any("simulat" in column.title for column in suite_table(verdicts_of(report)).columns)
    assert all("simulated" not in line for line in report.to_document()["verdicts"]["suite"])


@pytest.mark.parametrize(
    "entry",
    [
        simulated("elsewhere"),
        simulated("workload-000", "sieve"),
        simulated("workload-000", silicon_devices=["NVIDIA V1000"]),
        simulated("workload-000", parameters={"target_error_percent": 1.0}),
        simulated("workload-000", ""),
    ],
    ids=["workload", "method", "GPU", "parameters", "no method"],
)
def test_what_fits_no_line_has_one_of_its_own(entry: SimulatedEntry) -> None:
    report = read_report(made_report(2))
    before = verdicts_of(report).suite
    entry.pks_error_percent = 12.25
    set_beside(report, [], [entry])
    *others, own = verdicts_of(report).suite
    assert others == before
    assert own.simulated is not None and own.simulated.pks_error_percent == 12.25
    assert own.device == entry.silicon_devices[0] and own.workloads == 0
    cells = [cell.text for cell in suite_table(verdicts_of(report)).rows[-1]]
    assert cells[-6:] == ["1", "-", "12.25", "-", "-", "-"]
    assert cells[2] == "-"


def test_parameters_that_agree_belong_to_the_line() -> None:
    report = read_report(made_report(2))
    set_beside(report, [], [simulated("workload-000", parameters={"target_error_percent": 5.0, "k": 7})])
    assert len(lines_with_simulations(report)) == 1


def test_means_of_a_table_are_not_counted_again() -> None:
    report = read_report(made_report(1))
    rows = [SimulatedEntry(suite="s", application=name, pks_error_percent=value, means=name == "mean")
            for name, value in (("a", 10.0), ("b", 20.0), ("mean", 15.0))]  # fmt: skip
    set_beside(report, [], rows)
    own = verdicts_of(report).suite[-1]
    assert (own.device, own.method) == ("-", "method not said (s)")
    assert own.simulated is not None
    assert (own.simulated.workloads, own.simulated.pks_error_percent) == (2, 15.0)


def test_a_terminal_has_them_in_a_table_of_their_own() -> None:
    found = {table.title: table for table in short_tables(with_two())}
    assert not any("PKS" in column.title for column in found["The suite"].columns)
    assert [row[0].text for row in found["Simulated"].rows] == ["a-workload-000", "a workload-002"]


def test_a_simulation_given_twice_is_refused() -> None:
    report = read_report(made_report(1))
    with pytest.raises(ParameterError, match="workload-000 is given twice"):
        set_beside(report, [], [simulated("workload-000"), simulated("workload-000", pks_error_percent=1.0)])
    set_beside(report, [], [simulated("workload-000"), simulated("workload-000", "random")])


def test_synthetic_cycles_are_not_set_beside_measured_ones() -> None:
    document = made_report(1)
    entry = simulated("workload-000", synthetic=True)
    set_beside(read_report(document), [], [entry])
    document["campaign"]["synthetic"] = False
    with pytest.raises(RefusedError, match="synthetic cycles, and the campaign was measured"):
        set_beside(read_report(document), [], [entry])
