"""The cells of a report's table: a workload on a kind of GPU under one condition, with its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay_sampling.errors import RefusedError
from assay_sampling.launches.table import Condition
from assay_sampling.methods.registry import needs
from assay_sampling.notes.registry import Note, make_note
from assay_server.analysis.runs.request import AnalysisRequest, RunData


@dataclass(frozen=True)
class Cell:
    """The runs of one workload on one kind of GPU under one condition, at most one per level.

    ``light_repeats`` are the further light runs: they are not scored, and count in the mean light time.
    """

    workload: str
    device_kind: str
    condition: Condition
    detailed: RunData | None = None
    light: RunData | None = None
    notes: tuple[Note, ...] = ()
    light_repeats: tuple[RunData, ...] = ()

    @property
    def whole(self) -> RunData:
        """The run that holds the whole workload: the light one if there is one."""
        run = self.light or self.detailed
        if run is None:
            raise ValueError("a cell has at least one run")
        return run

    def runs_of(self, method: str, parameters: Mapping[str, Any]) -> tuple[RunData, ...]:
        """The runs that a selection by ``method`` would use.

        If its parameters let it look only at names, order and cost, it uses the light run, if there is
        one. Raises ParameterError for a method, parameter or value that does not exist.
        """
        method_needs = needs(method, parameters, verb="select")
        if method_needs is not None and method_needs.nothing:
            return (self.whole,)
        return tuple(run for run in (self.detailed, self.light) if run is not None)


def cells_by_workload(runs: Sequence[RunData]) -> dict[str, list[Cell]]:
    """Cells by workload, both in the order in which the campaign file first names them.

    Live runs under other conditions make no cells: they are compared with the baseline.
    """
    grouped: dict[tuple[str, str, Condition], list[RunData]] = {}
    for run in runs:
        if run.compares or run.level == "bare":
            continue
        grouped.setdefault((run.workload, run.device_kind, run.condition), []).append(run)
    workloads: dict[str, list[Cell]] = {}
    for (workload, device_kind, condition), members in grouped.items():
        workloads.setdefault(workload, []).append(_cell(workload, device_kind, condition, members))
    return workloads


def _cell(workload: str, device_kind: str, condition: Condition, members: Sequence[RunData]) -> Cell:
    first: dict[str, RunData] = {}
    light_repeats: tuple[RunData, ...] = ()
    notes = []
    for level in ("detailed", "light"):
        repeats = sorted((r for r in members if r.level == level), key=lambda r: r.repeat)
        if repeats:
            first[level] = repeats[0]
        if level == "light":
            light_repeats = tuple(repeats[1:])
        if len(repeats) > 1:
            notes.append(
                make_note("repeats_unused", repeats=len(repeats), level=level, first_run=repeats[0].run_id)
            )
    return Cell(
        workload,
        device_kind,
        condition,
        detailed=first.get("detailed"),
        light=first.get("light"),
        notes=tuple(notes),
        light_repeats=light_repeats,
    )


def refuse_mixed_marks(request: AnalysisRequest) -> None:
    """Raises RefusedError if one campaign has both synthetic and measured runs."""
    for run in request.runs:
        if run.synthetic != request.synthetic:
            word = {True: "synthetic", False: "measured"}
            raise RefusedError(
                f"campaign {request.campaign_id}",
                f"it is {word[request.synthetic]}, but its run {run.run_id} is {word[run.synthetic]}",
                "put synthetic and measured data into separate campaigns",
            )


def refuse_invalid(runs: Sequence[RunData]) -> None:
    """Raises RefusedError naming the first flag that invalidates one of the runs."""
    for run in runs:
        for name, detail, invalidates in run.flags:
            if invalidates:
                shown = f"{name!r} ({detail})" if detail else repr(name)
                raise RefusedError(
                    f"run {run.run_id}",
                    f"it carries the flag {shown}, so its numbers cannot be trusted",
                    "make the run again, or accept invalid runs in the analysis",
                )
