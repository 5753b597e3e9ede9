"""Published results and simulations that a reader sets beside a report."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from assay_report.external_results import read_published, read_simulated
from assay_report.html import render_html
from assay_report.reading import parse_report, read_report
from assay_report.tables.external_results import beside_tables
from assay_sampling.errors import InputError
from tests.support.server.made_reports import made_report

TABLE = """\
method,suite,workload,device,error_percent,speedup,source
PKS,made,workload-000,V100,12.5,10,a paper
PKS,made,workload-001,V100,7.5,1000,a paper
Sieve,made,elsewhere,V100,,3,a paper
"""


def written(folder: Path, text: str, name: str = "published.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_published_results_are_beside_ours(tmp_path: Path) -> None:
    report = read_report(made_report(2))
    report.published = read_published(written(tmp_path, TABLE))
    suites, pairs = beside_tables(report)
    assert [[cell.text for cell in row] for row in suites.rows] == [
        ["a paper", "made", "PKS", "V100", "2", "10.00", "100.00"],
        ["a paper", "made", "Sieve", "V100", "1", "-", "3.00"],
    ]
    ours = [row for row in report.rows if (row.device, row.method) == ("V100", "pks")]
    at = [column.title for column in pairs.columns].index("our error")
    assert [[row[0].text, row[at].text] for row in pairs.rows] == [
        [row.workload, f"{row.error_percent:.2f}"] for row in ours
    ]
    page = render_html(report)
    assert "Published suites" in page and "a paper" in page
    again = parse_report(json.dumps(report.to_document()))
    assert again.published == report.published


def test_a_column_for_each_gpu(tmp_path: Path) -> None:
    path = written(
        tmp_path, "workload,volta_error_pct,volta_speedup,turing_error_pct\nbfs,5,1.5,0.4\ncfd,,,2\n"
    )
    assert [(e.workload, e.device, e.error_percent, e.speedup, e.source) for e in read_published(path)] == [
        ("bfs", "volta", 5.0, 1.5, "published.csv"),
        ("bfs", "turing", 0.4, None, "published.csv"),
        ("cfd", "turing", 2.0, None, "published.csv"),
    ]


def test_the_papers_tables_are_read(shared_data: Path) -> None:
    pka = read_published(shared_data / "published" / "pka_table4.csv")
    assert {entry.device for entry in pka} == {"volta", "turing", "ampere"}
    [bfs] = [e for e in pka if (e.workload, e.device) == ("bfs1MW", "volta")]
    assert (bfs.error_percent, bfs.speedup) == (5.0, 1.5)
    stem = read_published(shared_data / "published" / "stem_artifact_rodinia_casio.csv")
    assert stem[0].method == "PKA" and stem[0].error_percent == pytest.approx(43.5268557920869)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it has no columns"),
        ("name,error\na,1\n", "it has no columns"),
        ("workload,launches\na,1\n", "it has no columns"),
        ("workload,error\n,1\n", "it names no workload"),
        ("workload,error\na,five\n", "'five' is not a number"),
        ("workload,error\na,nan\n", "'nan' is not a number"),
    ],
)
def test_a_table_of_another_kind_is_refused_with_the_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        read_published(written(tmp_path, text))
    assert said in str(refused.value)
    assert "assay docs report-format" in refused.value.remedy


def test_simulations_are_taken_from_a_pka_table(tmp_path: Path) -> None:
    row = {"suite": "s", "application": "a", "simulator_error_percent": 20.0, "pks_error_percent": 21.5,
           "pka_error_percent": 22.0, "pks_speedup": 10.0, "pka_speedup": 40.0, "known": None}  # fmt: skip
    path = written(tmp_path, json.dumps({"rows": [row], "synthetic": False}), "rows.json")
    report = read_report(made_report(1))
    report.simulated = read_simulated(path)
    [table] = beside_tables(report)
    assert [cell.text for cell in table.rows[0]] == ["s", "a", "20.00", "21.50", "22.00", "10.00", "40.00"]
    means = {**row, "application": "mean", "known": {"pks_speedup": 1}}
    [_, of_suite] = read_simulated(written(tmp_path, json.dumps({"rows": [row, means]}), "means.json"))
    assert of_suite.means
    for wrong in ("[]", "{}", '{"rows": [1]}', "no JSON", '{"rows": [{"pka_speedup": "fast"}]}'):
        with pytest.raises(InputError, match="not a document of assay pka-table or assay import"):
            read_simulated(written(tmp_path, wrong, "wrong.json"))


def test_a_report_without_them_has_no_key_for_them() -> None:
    document = read_report(made_report(1)).to_document()
    assert "published" not in document and "simulated" not in document


def test_ours_and_theirs_are_compared_where_method_and_gpu_are_the_same_and_the_difference_is_said(
    tmp_path: Path,
) -> None:
    report = read_report(made_report(1))
    ours = {row.device: row for row in report.rows if row.method == "pks"}
    table = "workload,method,device,error,speedup\n" + "".join(
        f"workload-000,{method},{device},10,25\n"
        for method, device in (("PKA", "turing"), ("pks", "RTX 3070"), ("pks", "A100"), ("stem", "V100"))
    )
    report.published = read_published(written(tmp_path, table))
    pairs = {each.title: each for each in beside_tables(report)}["Published and ours, by workload"]
    headings = [column.heading for column in pairs.columns]
    shown = [dict(zip(headings, (cell.text for cell in row), strict=True)) for row in pairs.rows]
    for line, device in zip(shown, ("RTX 2060", "RTX 3070"), strict=False):
        error = ours[device].error_percent
        assert error is not None
        assert (line["our GPU"], line["our error / %"]) == (device, f"{error:.2f}")
        assert line["our error more by / points"] == f"{error - 10.0:+.2f}"
        assert line["our speedup / theirs"] == "4.00"
    for line in shown[2:]:
        assert [line[name] for name in headings if name.startswith("our")] == ["-"] * 6


def test_what_is_shown_of_the_papers_equals_the_files(shared_data: Path) -> None:
    for path in sorted((shared_data / "published").glob("*.csv")):
        lines = list(csv.DictReader(path.read_text().splitlines()))
        expected = [
            (line["workload"], float(line[error]) if line[error] else None,
             float(line[speedup]) if line[speedup] else None)
            for line in lines
            for error, speedup in (
                [("error", "speedup")]
                if "error" in line
                else [(f"{gpu}_error_pct", f"{gpu}_speedup") for gpu in ("volta", "turing", "ampere")]
            )
            if line[error] or line[speedup]
        ]  # fmt: skip
        found = read_published(path)
        assert [(entry.workload, entry.error_percent, entry.speedup) for entry in found] == expected
        report = read_report(made_report(1))
        report.published = found
        [means] = beside_tables(report)
        suites: dict[tuple[str, ...], list[float]] = {}
        for entry in found:
            errors = suites.setdefault((entry.source, entry.suite, entry.method, entry.device), [])
            errors += [entry.error_percent] if entry.error_percent is not None else []
        shown = [row[-2].text for row in means.rows]
        assert shown == [f"{sum(errors) / len(errors):,.2f}" if errors else "-" for errors in suites.values()]
