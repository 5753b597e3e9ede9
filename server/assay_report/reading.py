"""Read report documents into the model."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import ValidationError

from assay_report.model.report import REPORT_VERSION, Report
from assay_report.verdicts.verdicts import judge
from assay_sampling.errors import InputError

_AGAIN = "fetch it again: assay report ID --json"


def read_report(document: object, source: str = "report") -> Report:
    """The report in a document from :func:`json.loads`; ``source`` names it in errors.

    Raises InputError if it is not a report, or of another version.
    """
    if not isinstance(document, Mapping):
        raise InputError(source, "it is not a JSON object", _AGAIN)
    version = document.get("format_version")
    if version != REPORT_VERSION:
        raise InputError(
            source,
            f"its format_version is {version!r}, and this program reads {REPORT_VERSION}",
            _AGAIN,
        )
    try:
        report = Report.model_validate(document)
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
