"""The tables in each part of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from assay_report.model.report import Report
from assay_report.model.scores import Row
from assay_report.tables import scores
from assay_report.tables.compared import compared_tables
from assay_report.tables.decomposition import report_tables
from assay_report.tables.external_results import beside_tables
from assay_report.tables.runs import failed_runs_table, provenance_table, runs_table
from assay_report.tables.selections import (
    groups_table,
    models_table,
    slices_summary,
    slices_tables,
    window_table,
)
from assay_report.tables.table import Table, filled
from assay_report.tables.verdicts import shortfalls_table, suite_table
from assay_report.verdicts.errors import error_of
from assay_report.verdicts.sentences import counted, percentage
from assay_report.verdicts.verdicts import verdicts_of

DEFINITIONS: tuple[tuple[str, str], ...] = (
    (
        "weights",
        "on the GPU of the selection by launches (Sieve: instructions), on others by light time if it has a "
        "light run",
    ),
    (
        "error",
        "100 |projected - total| / total; projected is the sum of weight x cost of the representatives",
    ),
    ("group error", "100 x the sum over groups of |projected - total| / total: errors cannot cancel"),
    ("speedup", "total / sum of the representatives' cost"),
    ("match", "launches matched in an order-preserving alignment / the larger number of launches"),
    ("agreement", "launches after the window to which all three models give the same group"),
    (
        "ambiguous",
        "launches of the window whose signature (kernel, shapes, NVTX path, operator) has several groups",
    ),
    ("unknown", "launches of kernels that the window never saw: each signature becomes a group"),
    (
        "unseen time",
        "share of the light time in signatures that no launch with counters has; known before profiling",
    ),
    ("assumed", "the campaign file does not give this condition of a recording, so the baseline's is used"),
    (
        "cost",
        "cycles under a profiler and free-running nanoseconds are separate costs, never mixed or converted",
    ),
)


def by_workload(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of each workload, in the order of the report."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row.workload, []).append(row)
    return by_name


@dataclass(frozen=True)
class Section:
    """A folded part of a page: its title, a line that says what is in it, and its tables."""

    title: str
    lead: str
    tables: tuple[Table, ...]


def workload_sections(report: Report) -> Iterator[Section]:
    """A section for each workload."""
    target = verdicts_of(report).target_error_percent
    for name, rows in by_workload(report.rows).items():
        yield Section(name, workload_line(rows, target), tuple(workload_tables(report, rows)))


def further_sections(report: Report) -> Iterator[Section]:
    """The sections that are not about one workload."""
    verdicts = verdicts_of(report)
    sections = [
        ("Every projection above the target", "and why it is", [shortfalls_table(verdicts)]),
        ("Every workload on every GPU", "one line for each", [scores.summary_table(report)]),
        ("Published and simulated", "numbers from elsewhere, beside these", beside_tables(report)),
        ("Conditions", "SM shares, caches, clocks, repeats, profilers", list(compared_tables(report))),
        ("Runs", _runs_line(report), _runs_tables(report)),
    ]
    for title, lead, tables in sections:
        if with_rows := filled(*tables):
            yield Section(title, lead, tuple(with_rows))


def _runs_line(report: Report) -> str:
    failed = f", {len(report.failed_runs):,} without data" if report.failed_runs else ""
    return f"{counted(len(report.runs), 'run')} with data{failed}: what they were measured with, and hashes"


def _runs_tables(report: Report) -> list[Table]:
    return [provenance_table(report), runs_table(report.runs), failed_runs_table(report.failed_runs)]


def workload_line(rows: Sequence[Row], target_percent: float) -> str:
    """A workload in short: how many rows are within the target, its worst error, and what has no number."""
    scored = [(row, error) for row in rows if (error := error_of(row)) is not None]
    clauses = []
    if scored:
        within = sum(error <= target_percent for _, error in scored)
        row, worst = max(scored, key=lambda each: each[1])
        clauses.append(f"{within:,} of {len(scored):,} within {target_percent:g} %")
        clauses.append(f"worst {percentage(worst)} ({row.method}, {row.device})")
    if len(scored) < len(rows):
        clauses.append(f"{counted(len(rows) - len(scored), 'row')} without a number")
    return "; ".join(clauses)


def workload_tables(report: Report, rows: Sequence[Row]) -> list[Table]:
    """The tables of one workload's part of a page."""
    workload = rows[0].workload
    keys = dict.fromkeys(row.selection for row in rows if row.selection)
    return filled(
        scores.rows_table(rows),
        scores.recommendations_table([each for each in report.recommendations if each.workload == workload]),
        *report_tables(rows),
        scores.weights_table(rows),
        scores.differences_table(rows),
        window_table(rows),
        models_table(rows),
        *slices_tables(report, workload),
        *(groups_table(key, report.selections.get(key)) for key in keys),
    )


def short_tables(report: Report) -> list[Table]:
    """The tables that a narrow form draws after the summary; it has no room for a page's other tables."""
    # A terminal has no room for the simulator's columns beside the others: they have a table of their own.
    suite = suite_table(verdicts_of(report), with_simulated=False)
    return filled(
        *([suite] if len(suite.rows) > 1 else []),
        *beside_tables(report),
        *compared_tables(report),
        scores.rows_table(report.rows, with_workload=True),
        scores.weights_table(report.rows, with_workload=True),
        *([scores.recommendations_table(report.recommendations)] if report.rows else []),
        *(table for rows in by_workload(report.rows).values() for table in report_tables(rows)),
        slices_summary(report.chosen_slices),
        provenance_table(report),
    )
