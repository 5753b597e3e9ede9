"""The runs of one workload on one kind of GPU, by condition, and what comparisons have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from assay_report.model.common import Match
from assay_report.model.compared import Compared
from assay_report.model.drawn import Drawn
from assay_report.model.scores import Row
from assay_sampling.documents.common import ConditionEntry
from assay_sampling.documents.selection import SelectionInReport
from assay_sampling.errors import RefusedError
from assay_sampling.launches.alignment import Alignment, MatchKind, require_match
from assay_sampling.launches.table import Condition
from assay_sampling.running.identity import RunLevel
from assay_sampling.scoring.by_operation import SelectedCalls
from assay_sampling.scoring.selection import Selection
from assay_server.analysis import rows
from assay_server.analysis.rows import Cell
from assay_server.analysis.run_memory import RunMemory
from assay_server.analysis.runs.request import RunData

Entry = TypeVar("Entry", bound=Compared)


@dataclass(frozen=True)
class MadeSelection:
    """A selection of the workload, the cell where it was made, and the row that reports it there.

    ``selection`` is by launch; ``calls`` has what it was made from, if the workload's unit is the operation.
    Neither holds the launches that it was made on. ``document`` and ``drawn`` are what the report has of it.
    """

    cell: Cell
    row: Row
    selection: Selection
    calls: SelectedCalls | None
    document: SelectionInReport
    drawn: Drawn

    @property
    def key(self) -> str:
        """Its key in the report."""
        return self.row.selection or ""

    @property
    def method(self) -> str:
        return self.selection.method

    @property
    def whole(self) -> RunData:
        """The run that it was made on."""
        return self.cell.whole


@dataclass(frozen=True)
class DeviceRuns:
    """The runs of one workload on one kind of GPU, in the order of the campaign, loaded into ``memory``."""

    workload: str
    device_kind: str
    runs: tuple[RunData, ...]
    memory: RunMemory

    def entry(self, kind: type[Entry], condition: Condition, **values: Any) -> Entry:
        """An entry about the workload on this GPU under a condition, with these values."""
        about = ConditionEntry.of(condition)
        return kind(workload=self.workload, device=self.device_kind, condition=about, **values)

    def of(self, level: RunLevel, condition: Condition, *, under_mps: bool = False) -> list[RunData]:
        """Runs of one level and condition, by repeat."""
        runs = [
            run
            for run in self.runs
            if (run.level, run.condition, run.under_mps) == (level, condition, under_mps)
        ]
        return sorted(runs, key=lambda run: run.repeat)

    def groups(self, level: RunLevel) -> Iterator[list[RunData]]:
        """Groups of repeats at a level, each sorted by repeat; groups in the order of the campaign."""
        kinds = dict.fromkeys((run.condition, run.under_mps) for run in self.runs if run.level == level)
        for condition, under_mps in kinds:
            yield self.of(level, condition, under_mps=under_mps)

    def pair(
        self, runs: Sequence[RunData], others: Sequence[RunData], lacking: str, *, where: str
    ) -> tuple[RunData, RunData]:
        """The first of the runs that has the same repeat as one of the others, and that one; else the first
        of each. Raises RefusedError without others: the ``lacking`` runs have no data."""
        if not others:
            subject = f"{self.workload} on {self.device_kind}{where}"
            raise RefusedError(subject, lacking, "run it again")
        by_repeat = {run.repeat: run for run in others}
        run = next((run for run in runs if run.repeat in by_repeat), None)
        return (runs[0], others[0]) if run is None else (run, by_repeat[run.repeat])

    def rest_on(self, entry: Compared, runs: Sequence[RunData]) -> None:
        """Name an entry's runs and their flags; raises RefusedError if one is invalid."""
        rows.rest_on(entry, runs)
        rows.refuse_invalid(runs)

    def matched(self, left: RunData, right: RunData, kind: MatchKind) -> Alignment:
        """The launches that two runs have both; raises MisalignedError for too few."""
        alignment = self.memory.aligned(left, right)[kind]
        require_match(alignment, subject=f"{left.run_id} and {right.run_id}")
        return alignment

    def match(self, left: RunData, right: RunData, kind: MatchKind, between: str) -> Match:
        """How two runs match, however little."""
        return match_facts(self.memory.aligned(left, right), kind, between)


def devices_of(runs: Sequence[RunData], memory: RunMemory) -> list[DeviceRuns]:
    """The runs of one workload by kind of GPU, in the order of the campaign."""
    kinds: dict[str, list[RunData]] = {}
    for run in runs:
        kinds.setdefault(run.device_kind, []).append(run)
    return [DeviceRuns(members[0].workload, kind, tuple(members), memory) for kind, members in kinds.items()]


def match_facts(alignments: Mapping[MatchKind, Alignment], kind: MatchKind, between: str) -> Match:
    """The matched percentages by every kind, and the kind that counts."""
    percents = {each: alignment.match_percent for each, alignment in alignments.items()}
    return Match(
        percent=percents[kind],
        kind=kind,
        between=between,
        **percents,
        # The search gives up on very different recordings, so more of their launches may match.
        at_least=[each for each, alignment in alignments.items() if alignment.lower_bound],
    )
