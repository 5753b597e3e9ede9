"""One workload: make each method's selection on one GPU, score the same selection on all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay_sampling.alignment import MATCH_KINDS, MatchKind, align, align_window
from assay_sampling.errors import AssayError, MisalignedError, RefusedError
from assay_sampling.launches import Launches
from assay_sampling.profile import Profile
from assay_sampling.samplers import select
from assay_sampling.scoring import score_on
from assay_sampling.selection import Selection
from assay_server.analysis import rows
from assay_server.analysis.cells import Cell, refuse_invalid
from assay_server.analysis.export import exported
from assay_server.analysis.held import HeldRuns, Load
from assay_server.analysis.request import AnalysisRequest, RunData
from assay_server.analysis.rows import Method, Row
from assay_server.analysis.two_level import two_level_facts

LEVELS_KIND: MatchKind = "exact"
DEVICES_KIND: MatchKind = "name_block"


@dataclass(frozen=True)
class _Made:
    """A selection, where it was made, and the row that reports it there."""

    key: str
    selection: Selection
    cell: Cell
    whole: RunData
    row: Row


@dataclass
class WorkloadAnalysis:
    """Rows of one workload in the order of cells, then methods; its selections by key."""

    rows: list[Row] = field(default_factory=list)
    selections: dict[str, dict[str, Any]] = field(default_factory=dict)


def analyse_workload(
    request: AnalysisRequest, cells: Sequence[Cell], methods: Sequence[Method], load: Load
) -> WorkloadAnalysis:
    """Every method on every cell of one workload. An AssayError about a cell becomes its rows' status."""
    work = _Work(request, HeldRuns(load, request.memory_limit_bytes))
    for cell in _reference_first(cells, request.reference):
        for method in methods:
            work.select(cell, method)
        work.release()
    for cell in cells:
        for method in methods:
            work.score(cell, method)
        work.release()
    return WorkloadAnalysis(
        rows=[work.rows[cell, method.position] for cell in cells for method in methods],
        selections={made.key: exported(made.selection) for _, made in sorted(work.made.items())},
    )


def _reference_first(cells: Sequence[Cell], reference: str | None) -> list[Cell]:
    return sorted(cells, key=lambda cell: cell.device_kind != reference)


class _Work:
    """The state of one workload's analysis: rows by cell and method, selections by method."""

    def __init__(self, request: AnalysisRequest, held: HeldRuns) -> None:
        self.request = request
        self.held = held
        self.rows: dict[tuple[Cell, int], Row] = {}
        self.made: dict[int, _Made] = {}
        self.blocked: dict[int, Row] = {}

    def select(self, cell: Cell, method: Method) -> None:
        """Make the method's selection here, unless it was made or refused on the GPU it belongs on."""
        if method.position in self.made or method.position in self.blocked:
            return
        row = rows.empty_row(cell, method)
        self.rows[cell, method.position] = row
        runs = cell.runs_of(method.name)
        rows.rest_on(row, runs)
        try:
            self._refuse_invalid(runs)
            selection = self._selection(cell, method, row)
        except AssayError as error:
            rows.fail(row, error)
            if row["status"] != "not applicable" and cell.device_kind == self.request.reference:
                self.blocked[method.position] = row
            return
        self.made[method.position] = _Made(row["selection"], selection, cell, cell.whole, row)

    def _selection(self, cell: Cell, method: Method, row: Row) -> Selection:
        levels = {run.level: self.held.launches(run) for run in cell.runs_of(method.name)}
        rows.describe_launches(row, self.held.launches(cell.whole), cell.whole)
        if len(levels) == 2:
            row["match"] = _match_of_levels(levels["detailed"], levels["light"])
        profile = Profile(detailed=levels.get("detailed"), light=levels.get("light"))
        selection = select(method.name, profile, method.parameters, method.seed)
        rows.describe_selection(row, selection, self._key(cell, method), cell)
        rows.score(row, selection.evaluation)
        row.update(two_level_facts(selection))
        return selection

    def _key(self, cell: Cell, method: Method) -> str:
        earlier = sum(1 for made in self.made.values() if made.selection.method == method.name)
        return f"{cell.workload}/{method.name}" + (f"-{earlier + 1}" if earlier else "")

    def score(self, cell: Cell, method: Method) -> None:
        """Score the method's selection here, unless it was made here or this cell refused it already."""
        made = self.made.get(method.position)
        known = self.rows.get((cell, method.position))
        if known is not None and (made is None or known["status"] != "not applicable"):
            return
        row = rows.empty_row(cell, method)
        self.rows[cell, method.position] = row
        if made is None:
            rows.fail(row, self._no_selection(cell, method))
            return
        try:
            self._score(cell, made, row)
        except AssayError as error:
            rows.fail(row, error)

    def _score(self, cell: Cell, made: _Made, row: Row) -> None:
        rows.describe_selection(row, made.selection, made.key, made.cell)
        run = cell.light if made.whole.level == "light" else cell.detailed
        if run is None:
            raise RefusedError(
                f"{cell.workload} on {cell.device_kind}",
                f"the selection was made on a {made.whole.level} run, and this GPU has none",
                f"record the {made.whole.level} level there too",
            )
        rows.rest_on(row, [*made.cell.runs_of(made.selection.method), run])
        self._refuse_invalid([run])
        other = self.held.launches(run)
        rows.describe_launches(row, other, run)
        reference = self.held.launches(made.whole)
        try:
            evaluation, percents = score_on(made.selection, other, DEVICES_KIND, reference=reference)
        except MisalignedError:
            row["match"] = _match_of_devices(reference, other)
            raise
        row["match"] = _match(percents, DEVICES_KIND, "GPUs")
        rows.score(row, evaluation)
        for what in ("model", "window", "unknown"):
            row[what] = made.row[what]

    def _no_selection(self, cell: Cell, method: Method) -> AssayError:
        blocked = self.blocked[method.position]
        return RefusedError(
            f"{method.name} on {cell.device_kind}",
            f"there is no selection to score: {blocked['status']} on {blocked['device']}",
        )

    def _refuse_invalid(self, runs: Sequence[RunData]) -> None:
        if not self.request.accept_invalid:
            refuse_invalid(runs)

    def release(self) -> None:
        """Let go of launches that no later row needs."""
        self.held.keep_only({made.whole.run_id for made in self.made.values()})


def _match_of_levels(detailed: Launches, light: Launches) -> dict[str, Any]:
    percents = {kind: align_window(detailed, light, kind).match_percent for kind in MATCH_KINDS}
    return _match(percents, LEVELS_KIND, "levels")


def _match_of_devices(left: Launches, right: Launches) -> dict[str, Any]:
    percents = {kind: align(left, right, kind).match_percent for kind in MATCH_KINDS}
    return _match(percents, DEVICES_KIND, "GPUs")


def _match(percents: Mapping[MatchKind, float], kind: MatchKind, between: str) -> dict[str, Any]:
    return {
        "percent": percents[kind],
        "kind": kind,
        "between": between,
        **{str(k): v for k, v in percents.items()},
    }
