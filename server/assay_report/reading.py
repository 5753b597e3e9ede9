"""Read report documents of this and earlier releases into the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from assay_report.judging.verdicts import judge
from assay_report.model.report import REPORT_VERSION, Report
from assay_sampling.errors import InputError

_AGAIN = "fetch it again: assay report ID --json"


def read_report(document: object, source: str = "report") -> Report:
    """The report in a document from :func:`json.loads`; ``source`` names it in errors. It has verdicts, which
    are made here if an earlier release wrote it.

    Raises InputError if it is not a report, or if a newer release wrote it.
    """
    if not isinstance(document, Mapping):
        raise InputError(source, "it is not a JSON object", _AGAIN)
    version = document.get("format_version")
    if isinstance(version, int) and version > REPORT_VERSION:
        raise InputError(
            source,
            f"it has the version {version}, and this release reads versions up to {REPORT_VERSION}",
            "update assay to the release that wrote it, or a later one",
        )
    try:
        report = Report.model_validate(upgraded(document))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise InputError(source, f"it is not a report: {place}: {first['msg']}", _AGAIN) from error
    return report if report.verdicts is not None else judge(report)


def parse_report(text: str | bytes, source: str = "report") -> Report:
    """The report in a JSON text; raises the errors of :func:`read_report`."""
    try:
        return read_report(json.loads(text), source)
    except (ValueError, RecursionError) as error:
        raise InputError(source, f"it is not JSON ({error})", _AGAIN) from error


def upgraded(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document in this release's format; values that an earlier release did not record stay absent."""
    found = dict(document)
    version = found.get("format_version")
    for made_by in range(version if isinstance(version, int) else 0, REPORT_VERSION):
        found = _UPGRADES[made_by](found)
        found["format_version"] = made_by + 1
    return found


def _from_unversioned(document: dict[str, Any]) -> dict[str, Any]:
    """Reports without a version have the keys of version 1."""
    return document


def _from_1(document: dict[str, Any]) -> dict[str, Any]:
    """Version 1 has sentences where version 2 has notes with codes; they become notes without a code."""
    parts = {part: document[part] for part in ("rows", "locked_clock", "noise") if part in document}
    return {
        **document,
        **{part: [_with_notes(entry) for entry in entries] for part, entries in parts.items()},
    }


def _with_notes(entry: Mapping[str, Any]) -> dict[str, Any]:
    notes = [{"text": note} if isinstance(note, str) else note for note in entry.get("notes", ())]
    return {**entry, "notes": notes}


_UPGRADES: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {0: _from_unversioned, 1: _from_1}
