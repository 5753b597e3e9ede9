"""The sentence that a report begins with: on how many workloads to trust the method to take, and where not.

Of each workload the recommended method counts, and where none is recommended the one of the best verdict; of
its selections the scores away from where they were made, whose truth is known, and where there are none the
verdict at home. A workload is trusted only where all of these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from assay_report.model.scores import RecommendedEntry, Row
from assay_report.model.verdicts import Overall, WorkloadVerdict
from assay_report.texts import condition_text
from assay_report.verdicts.sentences import counted, listed
from assay_report.verdicts.suite import Named
from assay_sampling.verdicts.sentences import clause_of
from assay_sampling.verdicts.verdict import LEVELS
from assay_sampling.verdicts.windows import stands_for, windows_of

_SHOWN = 3


def overall_of(rows: Sequence[Named], recommendations: Sequence[RecommendedEntry]) -> Overall:
    """The verdict over all rows of a report, the worst workloads first."""
    workloads = dict.fromkeys(each.row.workload for each in rows)
    of_workload: dict[str, list[Named]] = {name: [] for name in workloads}
    for each in rows:
        if each.row.verdict is not None:
            of_workload[each.row.workload].append(each)
    taken: dict[str, list[RecommendedEntry]] = {}
    for entry in recommendations:
        taken.setdefault(entry.workload, []).append(entry)
    several = len({condition_text(each.row.condition) for each in rows}) > 1
    verdicts = [
        _worst(_of_method_to_take(members, taken.get(name, ())), several=several)
        for name, members in of_workload.items()
        if members
    ]
    verdicts.sort(key=lambda each: (-LEVELS.index(each.level), -(each.error_percent or 0.0)))
    without = [name for name, members in of_workload.items() if not members]
    windowed = [name for name, members in of_workload.items() if any(_windows(each.row) for each in members)]
    sentence = _sentence(verdicts, without)
    if windowed and len(workloads) > 1:
        sentence = f"{sentence.removesuffix('.')}; of {listed(windowed, 3)} only a part was recorded."
    return Overall(workloads=verdicts, without_verdict=without, sentence=sentence)


def _of_method_to_take(rows: Sequence[Named], taken: Iterable[RecommendedEntry]) -> list[Named]:
    """The rows of one workload that the verdict rests on."""
    selections = {entry.selection for entry in taken if entry.method is not None and entry.selection}
    chosen = [each for each in rows if each.row.selection in selections]
    if not chosen:
        by_method: dict[str, list[Named]] = {}
        for each in rows:
            by_method.setdefault(each.method, []).append(each)
        chosen = min(by_method.values(), key=lambda members: _rank(_decisive(members)))
    return _decisive(chosen)


def _decisive(rows: Sequence[Named]) -> list[Named]:
    """The scores elsewhere; where there are none those at home."""
    return [each for each in rows if _elsewhere(each.row)] or list(rows)


def _elsewhere(row: Row) -> bool:
    made = row.selected_on
    return made is not None and (made.device, made.condition) != (row.device, row.condition)


def _rank(rows: Sequence[Named]) -> tuple[int, float]:
    return max(_badness(each.row) for each in rows)


def _badness(row: Row) -> tuple[int, float]:
    assert row.verdict is not None
    return LEVELS.index(row.verdict.level), row.error_percent or 0.0


def _worst(rows: Sequence[Named], *, several: bool) -> WorkloadVerdict:
    worst = max(rows, key=lambda each: _badness(each.row))
    row, verdict = worst.row, worst.row.verdict
    assert verdict is not None
    where = f"{row.device} ({condition_text(row.condition)})" if several else row.device
    made = row.selected_on.device if row.selected_on is not None else None
    # Where nobody has seen another GPU the clause says so itself.
    place = f"on the {where} " if _elsewhere(row) else ""
    because = clause_of(verdict.verdict().reasons[0], row.unit)
    return WorkloadVerdict(
        workload=row.workload,
        method=worst.method,
        level=verdict.level,
        device=row.device,
        condition=row.condition,
        selected_on=made,
        error_percent=row.error_percent,
        group_error_percent=row.group_error_percent,
        sentence="; ".join(filter(None, (place + because, stands_for(_windows(row))))),
    )


def _windows(row: Row) -> Sequence[str]:
    """The part of the program that a row is about, where only that was recorded."""
    chosen = row.verdict.windows if row.verdict is not None else ()
    return chosen or windows_of(note.to_dict() for note in row.notes)


def _sentence(verdicts: Sequence[WorkloadVerdict], without: Sequence[str]) -> str:
    """``Trust the method to take on 4 of 6 workloads; do not on stencil (pks), because ...``."""
    if not verdicts:
        return "Do not trust this report: none of its rows has a verdict."
    by_level: Mapping[str, list[WorkloadVerdict]] = {
        level: [each for each in verdicts if each.level == level] for level in LEVELS
    }
    trusted, total = len(by_level["trust"]), len(verdicts) + len(without)
    if trusted == total:
        worst = verdicts[0]
        return (
            f"Trust the method to take on {'the workload' if total == 1 else f'all {total:,} workloads'}: "
            f"{'' if total == 1 else f'{worst.workload} is worst, '}{worst.sentence}."
        )
    if total == 1:
        [only] = verdicts
        what = "Trust the total only" if only.level == "total_only" else "Do not trust the method to take"
        return "; ".join(_because(what, verdicts)) + "."
    parts = [f"Trust the method to take on {f'{trusted:,}' if trusted else 'none'} of {total:,} workloads"]
    parts += _because("do not", by_level["do_not"])
    parts += _because("trust the total only", by_level["total_only"])
    if without:
        parts.append(f"{counted(len(without), 'workload')} without a verdict")
    return "; ".join(parts) + "."


def _because(what: str, verdicts: Sequence[WorkloadVerdict]) -> list[str]:
    shown = [f"{each.workload} ({each.method}), because {each.sentence}" for each in verdicts[:_SHOWN]]
    if len(verdicts) > _SHOWN:
        shown.append(f"{len(verdicts) - _SHOWN:,} more")
    return [f"{what} on {shown[0]}", *shown[1:]] if shown else []
