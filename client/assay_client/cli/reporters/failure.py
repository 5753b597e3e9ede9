"""An error as one paragraph for people, or one line of JSON for scripts."""

from __future__ import annotations

import json
from dataclasses import dataclass

from assay_client.cli.reporters.text import printable
from assay_sampling.errors import AssayError


@dataclass(frozen=True)
class Failure:
    """Why a command ended: the kind of error, what it is about, the cause, the remedy, the exit code."""

    kind: str
    subject: str
    cause: str
    remedy: str
    exit_code: int

    @classmethod
    def of(cls, error: AssayError) -> Failure:
        return cls(type(error).__name__, error.subject, error.cause, error.remedy, error.exit_code)


def render_failure(failure: Failure, *, as_json: bool) -> str:
    """``error: subject: cause; remedy`` in one paragraph, or the same as one line of JSON."""
    if as_json:
        error = {
            "type": failure.kind,
            "subject": failure.subject,
            "cause": failure.cause,
            "remedy": failure.remedy,
            "exit_code": failure.exit_code,
        }
        return json.dumps({"error": error})
    parts = f"{failure.subject}: {failure.cause}"
    if failure.remedy:
        parts = f"{parts}; {failure.remedy}"
    return "error: " + " ".join(printable(parts).split())
