"""The figures of a report: which there are, in which order, and which of them a page draws at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from assay_report.figures.figure import Figure
from assay_report.figures.kinds import cold_start, errors, pareto, relative
from assay_report.figures.kinds.composition import group_composition
from assay_report.figures.kinds.timeline import quantity_name, timeline
from assay_report.figures.text import shortened
from assay_report.model.drawn import Drawn
from assay_report.model.report import Report
from assay_report.model.scores import Row
from assay_report.texts import condition_text, mark

# A figure takes some 50 ms and 30 KB: a page of 200 workloads draws so many, the others on demand.
MOST_DRAWN = 60
CELLS_BY_METHOD = 4
_UNITS = {"ns": "time", "cycle": "cycles", "cycles": "cycles"}


def of_report(report: Report) -> tuple[Figure, ...]:
    """All figures of a report: of the suite, of compared runs, then of each workload. Names are unique."""
    figures = [*of_suite(report), *of_comparisons(report)]
    by_workload: dict[str, list[Row]] = {}
    for row in report.rows:
        by_workload.setdefault(row.workload, []).append(row)
    for workload, rows in by_workload.items():
        figures += of_workload(report, workload, rows)
    return tuple(_with_own_names(figures))


def of_suite(report: Report) -> Iterator[Figure]:
    """Figures of the whole campaign."""
    synthetic = mark(report)
    yield errors.of_summary(report.summary, synthetic)
    yield pareto.of_rows(report.rows, synthetic)
    if len({row.workload for row in report.rows}) > 1:
        yield from errors.of_cells(report.rows, synthetic, CELLS_BY_METHOD)


def of_comparisons(report: Report) -> Iterator[Figure]:
    """Figures of runs that are compared with one another."""
    synthetic = mark(report)
    for figure in (
        relative.of_gpus(report.rows, synthetic),
        relative.of_shares(report.sm_share, synthetic),
        cold_start.of_entries(report.cold_start, synthetic),
    ):
        if figure is not None:
            yield figure


def of_workload(report: Report, workload: str, rows: Sequence[Row]) -> Iterator[Figure]:
    """One workload's errors, and for each selection its launches in order and its groups' kernels."""
    synthetic = mark(report)
    yield errors.of_workload(rows, workload, synthetic)
    where = {row.selection: row.selected_on.device for row in rows if row.selection and row.selected_on}
    keys = [key for key in where if key in report.drawn]
    grouped = [key for key in keys if _has_groups(report.drawn[key])]
    for key in grouped or keys[:1]:
        entry = report.drawn[key]
        if entry.by_launch is not None:
            what = quantity_name(entry.by_launch.quantity)
            title = f"{what} by launch, {_of(key, where[key], entry)}{synthetic}"
            yield timeline(f"{key}-launches", title, entry, workload=workload)
    for key in grouped:
        entry = report.drawn[key]
        unit = _UNITS.get(entry.cost.unit, entry.cost.quantity)
        title = f"Kernels in the groups of {_of(key, where[key], entry)}{synthetic}"
        yield group_composition(f"{key}-groups", title, entry.composition, unit, workload=workload)


def drawn_at_once(figures: Sequence[Figure]) -> frozenset[str]:
    """The names of the figures that a page draws: the suite's, then of each workload its first ones.

    Figures that say why they are empty are drawn, too.
    """
    chosen = [figure.name for figure in figures if figure.workload is None]
    by_workload: dict[str, list[str]] = {}
    for figure in figures:
        if figure.workload is not None:
            by_workload.setdefault(figure.workload, []).append(figure.name)
    for depth in range(max(map(len, by_workload.values()), default=0)):
        chosen += [names[depth] for names in by_workload.values() if depth < len(names)]
    return frozenset(chosen[:MOST_DRAWN])


def _has_groups(entry: Drawn) -> bool:
    return entry.composition is not None and len(entry.composition.groups) >= 2


def _of(key: str, device: str, entry: Drawn) -> str:
    return f"{shortened(key)} on {device} ({condition_text(entry.condition)})"


def _with_own_names(figures: Sequence[Figure]) -> Iterator[Figure]:
    """Two workloads' names may give the same file name."""
    taken: set[str] = set()
    for figure in figures:
        candidates = (figure.name if number == 1 else f"{figure.name}-{number}" for number in count(1))
        name = next(each for each in candidates if each not in taken)
        taken.add(name)
        yield figure.named(name)
