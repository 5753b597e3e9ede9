"""What has no number, and why; and the validity flags of what has one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from assay_report.model.common import FlagEntry
from assay_report.model.runs import FailedRunEntry
from assay_report.model.scores import Row
from assay_report.model.verdicts import Excluded, FlagCount
from assay_report.texts import ASSUMED, refused_text
from assay_report.verdicts.errors import error_of
from assay_report.verdicts.suite import Named
from assay_sampling.running.validity import invalidates


def excluded(rows: Sequence[Named], failed_runs: Sequence[FailedRunEntry]) -> list[Excluded]:
    """Rows and runs without numbers, those of one GPU and kind of reason together."""
    by_kind: dict[tuple[str, ...], list[Named]] = {}
    for each in rows:
        if error_of(each.row) is None:
            by_kind.setdefault(_kind(each.row), []).append(each)
    runs: dict[tuple[str, str], list[FailedRunEntry]] = {}
    for run in failed_runs:
        kind = run.failure.failure_class if run.failure is not None else run.reason
        runs.setdefault((run.device, kind), []).append(run)
    return [*map(_of_rows, by_kind.values()), *map(_of_runs, runs.values())]


def _kind(row: Row) -> tuple[str, ...]:
    return (row.device, row.status, row.error.code if row.error is not None else row.reason)


def _of_rows(members: Sequence[Named]) -> Excluded:
    first = members[0].row
    return Excluded(
        what="rows",
        status=first.status,
        device=first.device,
        workloads=_distinct(each.row.workload for each in members),
        methods=_distinct(each.method for each in members),
        number=len(members),
        reason=refused_text(first) or "it has no error",
        remedy=first.error.remedy if first.error is not None else "",
    )


def _of_runs(members: Sequence[FailedRunEntry]) -> Excluded:
    first = members[0]
    return Excluded(
        what="runs",
        status="failed",
        device=first.device,
        workloads=_distinct(run.workload for run in members),
        number=len(members),
        reason=first.reason,
        remedy=first.failure.remedy if first.failure is not None else "",
    )


def flag_counts(rows: Iterable[Row]) -> list[FlagCount]:
    """How many rows carry each flag; a condition that is assumed is said where it is shown."""
    flagged: dict[str, list[FlagEntry]] = {}
    carried: Counter[str] = Counter()
    for row in rows:
        carried.update({flag.name for flag in row.flags})
        for flag in row.flags:
            flagged.setdefault(flag.name, []).append(flag)
    counts = [
        FlagCount(
            name=name,
            rows=carried[name],
            runs=len({flag.run_id for flag in flags}),
            invalidates=any(flag.invalidates for flag in flags) or invalidates(name),
            detail=flags[0].detail,
        )
        for name, flags in flagged.items()
        if name != ASSUMED
    ]
    return sorted(counts, key=lambda each: (not each.invalidates, -each.rows, each.name))


def _distinct(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name]
