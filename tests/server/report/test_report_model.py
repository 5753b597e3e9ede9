"""The report model: what is read comes out as it was, and other versions are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay_report.model.report import REPORT_VERSION, Report
from assay_report.reading import parse_report, read_report
from assay_sampling.errors import InputError

# Every kind of comparison, two levels, refusals, notes.
REPORT = (Path(__file__).parent / "fixtures" / "report.json").read_text()


def test_what_was_written_is_read_again() -> None:
    report = parse_report(REPORT)
    again = parse_report(json.dumps(report.to_document()))
    assert again == report
    assert again.to_document() == report.to_document()


def test_keys_that_are_not_known_are_ignored() -> None:
    document = json.loads(REPORT)
    document["rows"][0]["something_new"] = document["something_new"] = 1
    assert read_report(document) == parse_report(REPORT)


def test_without_comparisons_a_report_has_no_keys_for_them() -> None:
    document = json.loads(REPORT)
    for part in ("sm_share", "cold_start", "locked_clock", "noise", "overhead", "sequences"):
        assert part in read_report(document).to_document()
        del document[part]
        assert part not in read_report(document).to_document()
    del document["summary"][0]["sm_share"]
    assert "sm_share" not in read_report(document).to_document()["summary"][0]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "not a JSON object"),
        ({"format_version": REPORT_VERSION + 1}, "this program reads"),
        ({"format_version": REPORT_VERSION - 1}, "this program reads"),
        ({}, "its format_version is None"),
        ({"format_version": REPORT_VERSION}, "campaign"),
        (
            {
                "format_version": REPORT_VERSION,
                "campaign": {"id": "c", "name": "c", "synthetic": False, "seed": 0},
                "rows": [{}],
            },
            "rows.0",
        ),
    ],
)
def test_what_is_no_report_is_refused_with_the_place(document: object, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read_report(document, "report.json")
    assert caught.value.subject == "report.json" and caught.value.remedy
    assert caught.value.exit_code == 3


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(InputError, match="not JSON"):
        parse_report(b"{", "report.json")


def test_every_field_says_what_it_means() -> None:
    described = json.dumps(Report.model_json_schema()["$defs"])
    for name, part in json.loads(described).items():
        for key, field in part.get("properties", {}).items():
            assert "description" in field or "$ref" in field, f"{name}.{key}"
