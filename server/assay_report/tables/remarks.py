"""The remarks below the tables of narrow forms: why numbers are missing, and flags; each appears once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assay_report.model.common import FlagEntry, Outcome
from assay_report.model.report import COMPARISONS, Report
from assay_report.model.runs import FailedRunEntry
from assay_report.texts import ASSUMED, condition_in_words

_ABOUT = {"sm_share": "SM share", "cold_start": "flushed caches", "locked_clock": "locked clock",
          "noise": "noise", "overhead": "overhead", "sequences": "launch sequences"}  # fmt: skip


def remarks(report: Report) -> list[str]:
    """The sentences of the LONG columns of all tables that a narrow form draws, and the runs that failed."""
    return list(dict.fromkeys(_all(report)))


def _all(report: Report) -> Iterator[str]:
    for row in report.rows:
        where = f"{row.workload} on {row.device}, {row.method}"
        yield from _reason(where, row)
        for note in row.notes:
            yield f"{where}: {note.text}"
    yield from compared_remarks(report)
    for entry in report.provenance:
        yield from _flagged(entry.flags)
    for run in report.failed_runs:
        yield f"run {run.run_id}{_about(run)} has no data: {run.reason}"
    flags = [flag for row in report.rows for flag in row.flags]
    if any(flag.name == ASSUMED for flag in flags):
        yield ("assumed: the campaign file does not give a recording's condition, so the baseline's is used")
    yield from _flagged(flags)


def compared_remarks(report: Report) -> Iterator[str]:
    """The remarks about compared runs."""
    for part in COMPARISONS:
        for entry in getattr(report, part):
            where = f"{entry.workload} on {entry.device}, {_ABOUT[part]}"
            yield from _reason(where, entry)
            for each in (*getattr(entry, "predictions", ()), *getattr(entry, "selections", ())):
                yield from _reason(f"{where}, {each.method}", each)
            for note in getattr(entry, "notes", ()):
                yield f"{where}: {note.text}"
            yield from _flagged(entry.flags)


def _reason(where: str, entry: Outcome) -> Iterator[str]:
    """Why there is no number, with the first launches that differ if that is the reason."""
    if not entry.reason:
        return
    yield f"{where}: {entry.reason}"
    if entry.error is not None and entry.error.differences:
        yield f"{where}: first differences: {' | '.join(entry.error.differences)}"


def _flagged(flags: Sequence[FlagEntry]) -> Iterator[str]:
    for flag in flags:
        if flag.name != ASSUMED:
            detail = f": {flag.detail}" if flag.detail else ""
            yield f"run {flag.run_id} is flagged {flag.name}{detail}"


def _about(run: FailedRunEntry) -> str:
    if not run.workload:
        return ""
    return f" ({run.workload} on {run.device}, {run.level}, {condition_in_words(run.condition)})"
