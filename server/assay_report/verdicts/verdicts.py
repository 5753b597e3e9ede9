"""From a report of any release to its verdicts: one module for the server that makes it, and for readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from assay_report.model.report import Report
from assay_report.model.scores import RecommendedEntry, Row
from assay_report.model.verdicts import Asked, BestMethod, GpuVerdict, Shortfall, SuiteEntry, Verdicts
from assay_report.texts import condition_text, method_names
from assay_report.verdicts.errors import cause_of, error_of, hold_against, target_of
from assay_report.verdicts.exclusions import excluded, flag_counts
from assay_report.verdicts.overall import overall_of
from assay_report.verdicts.sentences import gpu_details, gpu_headline, shortfall_sentence
from assay_report.verdicts.suite import Named, suite_entries


def judge(report: Report) -> Report:
    """Fill in the verdicts, and whether each error is within the target; returns the report itself."""
    target = target_of(report.rows)
    hold_against(report, target)
    rows = _named(report)
    report.verdicts = Verdicts(
        overall=overall_of(rows, report.recommendations),
        target_error_percent=target,
        asked=_scope(report, rows),
        complete=not report.failed_runs,
        gpus=[
            _gpu(device, [each for each in rows if each.row.device == device], report, target)
            for device in _devices(report)
        ],
        suite=_suite(report, rows),
        best=_best(report.recommendations, report.rows, target),
        flags=flag_counts(report.rows),
        excluded=excluded(rows, report.failed_runs),
    )
    return report


def _suite(report: Report, rows: Sequence[Named]) -> list[SuiteEntry]:
    suite = suite_entries(rows)
    if not report.simulated:
        return suite
    from assay_report.verdicts.simulated import with_simulated  # noqa: PLC0415 - loads the projection

    return with_simulated(suite, rows, report.simulated)


def verdicts_of(report: Report) -> Verdicts:
    """The verdicts of a report, judged now if it has none yet."""
    verdicts = report.verdicts if report.verdicts is not None else judge(report).verdicts
    assert verdicts is not None
    return verdicts


def first_sentence(report: Report) -> str:
    """What every form of the report begins with: on how many workloads to trust it, and where not."""
    return verdicts_of(report).overall.sentence


def _named(report: Report) -> list[Named]:
    return [Named(row, name) for row, name in zip(report.rows, method_names(report.rows), strict=True)]


def _devices(report: Report) -> list[str]:
    return list(dict.fromkeys(row.device for row in report.rows))


def _scope(report: Report, rows: Sequence[Named]) -> Asked:
    launches: dict[str, int] = {}
    for each in rows:
        row = each.row
        launches[row.workload] = max(launches.get(row.workload, 0), row.launches or 0)
    selected = (each.row.selected_on for each in rows)
    return Asked(
        workloads=len(launches),
        launches=sum(launches.values()),
        devices=_devices(report),
        methods=list(dict.fromkeys(each.method for each in rows)),
        selected_on=list(dict.fromkeys(place.device for place in selected if place is not None)),
        conditions=len({condition_text(each.row.condition) for each in rows}),
        runs=len(report.runs),
        runs_without_data=len(report.failed_runs),
    )


def _gpu(device: str, rows: Sequence[Named], report: Report, target: float) -> GpuVerdict:
    taken = {(entry.workload, entry.method) for entry in report.recommendations}
    shortfalls = [
        _shortfall(each, error, (each.row.workload, each.row.method) in taken)
        for each in rows
        if (error := error_of(each.row)) is not None and error > target
    ]
    shortfalls.sort(key=lambda each: (not each.recommended, -each.error_percent))
    scored = sum(error_of(each.row) is not None for each in rows)
    within, without = scored - len(shortfalls), len(rows) - scored
    here = any(each.row.is_selected_here for each in rows)
    headline = gpu_headline(device, scored, within, target, here)
    return GpuVerdict(
        device=device,
        projections=scored,
        within_target=within,
        without_number=without,
        shortfalls=shortfalls,
        headline=headline,
        sentence="; ".join([headline, *details_of(shortfalls, without, target)]) + ".",
    )


def details_of(shortfalls: Sequence[Shortfall], without: int, target_percent: float) -> list[str]:
    """The sentences below a GPU's headline."""
    return gpu_details([each.sentence for each in shortfalls], without, target_percent)


def _shortfall(each: Named, error_percent: float, recommended: bool) -> Shortfall:
    row, cause = each.row, cause_of(each.row)
    return Shortfall(
        workload=row.workload,
        device=row.device,
        condition=row.condition,
        method=each.method,
        error_percent=error_percent,
        selected_on=row.selected_on.device if row.selected_on is not None else None,
        recommended=recommended,
        cause=cause,
        sentence=shortfall_sentence(row, each.method, error_percent, cause),
    )


def _best(
    recommendations: Sequence[RecommendedEntry], rows: Sequence[Row], target: float
) -> list[BestMethod]:
    fair = {
        (row.workload, row.device, row.selection): row.fair.error_percent
        for row in rows
        if row.fair is not None
    }
    by_method: dict[tuple[str, str | None], list[RecommendedEntry]] = {}
    for entry in recommendations:
        by_method.setdefault((entry.device, entry.method), []).append(entry)
    totals = Counter(entry.device for entry in recommendations)
    return [
        BestMethod(
            device=device,
            method=method,
            workloads=[entry.workload for entry in entries],
            within_target=sum(_error_of(entry, fair, target + 1) <= target for entry in entries),
            of=totals[device],
        )
        for (device, method), entries in sorted(by_method.items(), key=lambda each: -len(each[1]))
    ]


def _error_of(
    entry: RecommendedEntry, fair: Mapping[tuple[str, str, str | None], float], without: float
) -> float:
    """The error that a recommendation rests on: the worst on other GPUs, else the fair one at home."""
    if entry.worst_error_percent is not None:
        return entry.worst_error_percent
    return fair.get((entry.workload, entry.device, entry.selection), without)
