"""The report model: what is read comes out as it was, old versions are read, newer ones refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from assay_report.model.report import REPORT_VERSION, Report
from assay_report.reading import parse_report, read_report
from assay_sampling.errors import InputError

# Made by the release before the model: every kind of comparison, two levels, refusals, notes.
VERSION_1 = (Path(__file__).parent / "fixtures" / "report_version_1.json").read_text()


# What reading fills in: it is computed from the rest, not taken from an old report.
JUDGED = ("verdicts", "within_target")


def plain_notes(document: Any) -> Any:
    """The document with the sentences of its notes only."""
    if isinstance(document, dict):
        if set(document) == {"code", "text", "flag", "invalidates"}:
            return document["text"]
        return {key: plain_notes(value) for key, value in document.items()}
    return [plain_notes(value) for value in document] if isinstance(document, list) else document


def without_new_keys(document: Any, old: Any) -> Any:
    """``document`` without the keys that ``old`` does not have; the old report says nothing for them."""
    if isinstance(document, dict) and isinstance(old, dict):
        assert document.get("unit", "launch") in ("launch", old.get("unit"))  # of a report that does not say
        new = {key: value for key, value in document.items() if key not in {*old, *JUDGED, "unit"}}
        assert not any(new.values()), new
        return {key: without_new_keys(value, old[key]) for key, value in document.items() if key in old}
    if isinstance(document, list) and isinstance(old, list) and len(document) == len(old):
        return [without_new_keys(*pair) for pair in zip(document, old, strict=True)]
    return document


@pytest.mark.parametrize("versioned", [True, False])
def test_a_report_of_version_1_is_read_with_all_that_it_says(versioned: bool) -> None:
    old = json.loads(VERSION_1)
    asked = copy.deepcopy(old)
    if not versioned:
        del asked["format_version"]
    read = read_report(asked).to_document()
    assert read["format_version"] == REPORT_VERSION
    was = plain_notes(old)
    assert without_new_keys(plain_notes(read), was) == {**was, "format_version": REPORT_VERSION}
    (note,) = next(row for row in old["rows"] if row["notes"])["notes"]
    assert {"code": None, "text": note, "flag": None, "invalidates": False} in read["rows"][0]["notes"]


def test_what_was_written_is_read_again() -> None:
    report = parse_report(VERSION_1)
    again = parse_report(json.dumps(report.to_document()))
    assert again == report
    assert again.to_document() == report.to_document()


def test_keys_of_a_newer_release_are_ignored() -> None:
    document = json.loads(VERSION_1)
    document["rows"][0]["something_new"] = document["something_new"] = 1
    assert read_report(document) == parse_report(VERSION_1)


def test_without_comparisons_a_report_has_no_keys_for_them() -> None:
    document = json.loads(VERSION_1)
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
        ({"format_version": REPORT_VERSION + 1}, "reads versions up to"),
        ({"format_version": REPORT_VERSION}, "campaign"),
        ({"campaign": {"id": "c", "name": "c", "synthetic": False, "seed": 0}, "rows": [{}]}, "rows.0"),
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
