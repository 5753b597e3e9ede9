"""Workloads on kinds of GPU: their runs counted, and their results, as rows of a campaign's page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum

from assay_core.records.campaign import RunState
from assay_server.store.model import OPEN_RUNS
from assay_server.store.parts.runs import RunsAlike
from assay_server.web.views.filters import Filter
from assay_server.web.views.results import SELECTED_HERE, Result, Results

EVERY_METHOD = "every"
BY_ERROR, BY_NAME = "error", "workload"
# So far every method of a small campaign is shown: which one is to be taken is not known yet.
_MOST_OF_EVERY_METHOD = 200


class Standing(StrEnum):
    """What is known of a workload on a kind of GPU; the first four are the levels of a result."""

    TRUST = "trust"
    TOTAL_ONLY = "total_only"
    DO_NOT = "do_not"
    SELECTED_HERE = SELECTED_HERE
    NO_VERDICT = "no_verdict"
    REFUSED = "refused"
    TO_COME = "to_come"
    FAILED = "failed"
    CANCELLED = "cancelled"
    NO_RESULT = "no_result"


# How people call each of them.
STANDINGS: Mapping[Standing, str] = {each: each.replace("_", " ") for each in Standing} | {
    Standing.TOTAL_ONLY: "trust the total only",
    Standing.DO_NOT: "do not trust",
}


@dataclass(frozen=True)
class Cell:
    """A workload on a kind of GPU, with the result of a method under a condition; None before there is one.

    ``runs``: how many of its runs are in each state.
    """

    workload: str
    device: str
    standing: Standing
    result: Result | None = None
    runs: Mapping[RunState, int] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What tells it from other cells."""
        result = self.result
        return "\0".join(
            (self.workload, self.device, *((result.condition, result.method) if result is not None else ()))
        )

    @property
    def flags(self) -> tuple[str, ...]:
        return self.result.flags if self.result is not None else ()

    @property
    def error_percent(self) -> float:
        """Its absolute error; less than any without one."""
        signed_percent = None if self.result is None else self.result.error_percent
        return -1.0 if signed_percent is None else abs(signed_percent)


def cells_of(
    alike: Iterable[RunsAlike],
    results: Results,
    *,
    ended: bool,
    so_far: Set[tuple[str, str]] | None = None,
    method: str = "",
) -> list[Cell]:
    """All cells of a campaign, in its order.

    ``ended``: nothing more comes. ``so_far``: the results are of a part of it, and lack runs of these cells,
    which are not wrong yet. ``method``: whose results; "": those of the summary.
    """
    counts: dict[tuple[str, str], Counter[RunState]] = {}
    for each in alike:
        counts.setdefault((each.workload, each.device_kind), Counter())[each.state] += each.runs
    by_place: dict[tuple[str, str], list[Result]] = {place: [] for place in counts}
    for result in _chosen(results, method):
        by_place.setdefault((result.workload, result.device), []).append(result)
    cells = []
    for (workload, device), those in by_place.items():
        runs = counts.get((workload, device), Counter())
        lacking = so_far is None or (workload, device) in so_far or any(runs[state] for state in OPEN_RUNS)
        is_open = not ended and lacking
        for one in those or (None,):
            standing = _standing(one, runs, is_open=is_open)
            cells.append(Cell(workload, device, standing, one, runs))
    return cells


def method_of(cell_filter: Filter, results: Results, *, so_far: bool) -> str:
    """Whose results a list shows that is asked for: so far those of every method, if these are few."""
    few = len(results.every) <= _MOST_OF_EVERY_METHOD
    return cell_filter.method or (EVERY_METHOD if so_far and few else "")


def _chosen(results: Results, method: str) -> Sequence[Result]:
    if method == EVERY_METHOD:
        return results.every
    return [each for each in results.every if each.method == method] if method else results.rows


def _standing(result: Result | None, runs: Mapping[RunState, int], *, is_open: bool) -> Standing:
    if is_open:
        return Standing.TO_COME
    if result is not None and not result.refused:
        return Standing(result.level) if result.level else Standing.NO_VERDICT
    if result is not None:
        return Standing.REFUSED
    if runs.get(RunState.FAILED):
        return Standing.FAILED
    return Standing.CANCELLED if runs.get(RunState.CANCELLED) else Standing.NO_RESULT


def matching(cells: Sequence[Cell], cell_filter: Filter) -> list[Cell]:
    """The cells that a filter asks for, in its order."""
    matches = [each for each in cells if _matches(each, cell_filter)]
    if cell_filter.sort == BY_ERROR:
        matches.sort(key=lambda each: -each.error_percent)
    elif cell_filter.sort == BY_NAME:
        matches.sort(key=lambda each: (each.workload.casefold(), each.device))
    return matches


def _matches(cell: Cell, cell_filter: Filter) -> bool:
    states = (each for each, number in cell.runs.items() if number)
    return (
        cell_filter.finds(cell.workload)
        and cell_filter.device in ("", cell.device)
        and (not cell_filter.flag or cell_filter.flag in cell.flags)
        and (not cell_filter.state or cell_filter.state in (cell.standing, *states))
    )


@dataclass(frozen=True)
class GpuSummary:
    """All cells of a kind of GPU: how many stand how, in the order of Standing, and the errors of those that
    have all of their runs.

    ``worst``: the cell with the largest error; None without errors.
    """

    device: str
    standings: Mapping[Standing, int]
    mean_error_percent: float | None
    worst: Cell | None


def by_gpu(cells: Sequence[Cell]) -> list[GpuSummary]:
    """The cells of each kind of GPU together, in their order."""
    by_device: dict[str, list[Cell]] = {}
    for each in cells:
        by_device.setdefault(each.device, []).append(each)
    return [_summed(device, those) for device, those in by_device.items()]


def _summed(device: str, cells: Sequence[Cell]) -> GpuSummary:
    counted = Counter(each.standing for each in cells)
    scored = [each for each in cells if each.error_percent >= 0 and each.standing is not Standing.TO_COME]
    mean = sum(each.error_percent for each in scored) / len(scored) if scored else None
    worst = max(scored, key=lambda each: each.error_percent, default=None)
    return GpuSummary(device, {each: counted[each] for each in Standing if counted[each]}, mean, worst)
