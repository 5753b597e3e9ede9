"""Shared by the comparisons of runs: a GPU's runs by condition, and facts of entries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from assay_report.model.common import Match
from assay_report.model.compared import Compared
from assay_sampling.documents.common import ConditionEntry
from assay_sampling.launches.alignment import MATCH_KINDS, Alignment, MatchKind, align
from assay_sampling.launches.table import Condition
from assay_sampling.running.identity import RunLevel
from assay_sampling.scoring.by_operation import SelectedCalls
from assay_sampling.scoring.selection import Selection
from assay_server.analysis import rows
from assay_server.analysis.cells import refuse_invalid
from assay_server.analysis.rows import LaunchFacts
from assay_server.analysis.runs.held import HeldRuns
from assay_server.analysis.runs.request import RunData

Entry = TypeVar("Entry", bound=Compared)


@dataclass(frozen=True)
class MadeSelection:
    """A selection of the workload, its key in the report, and the run that it was made on.

    ``selection`` is by launch; ``calls`` has what it was made from, if the workload's unit is the operation.
    Neither holds the launches that it was made on.
    """

    key: str
    selection: Selection
    calls: SelectedCalls | None
    whole: RunData

    @property
    def method(self) -> str:
        return self.selection.method


class HeldPairs:
    """Runs in memory with what is computed once of each, and of each pair that is compared.

    ``selected``: the runs on which selections were made.
    """

    def __init__(self, held: HeldRuns, *, accept_invalid: bool) -> None:
        self.launches, self.spare_launches = held.launches, held.spare_launches
        self.selected: set[str] = set()
        self._held, self._accept_invalid = held, accept_invalid
        self._facts: dict[str, LaunchFacts] = {}
        self._alignments: dict[tuple[str, str], dict[MatchKind, Alignment]] = {}

    def facts(self, run: RunData) -> LaunchFacts:
        """Counts and overlap of a run's launches."""
        if run.run_id not in self._facts:
            self._facts[run.run_id] = LaunchFacts.of(self.launches(run))
        return self._facts[run.run_id]

    def aligned(self, reference: RunData, other: RunData) -> dict[MatchKind, Alignment]:
        """The two runs aligned by every kind."""
        pair = reference.run_id, other.run_id
        if pair not in self._alignments:
            left, right = self.launches(reference), self.launches(other)
            self._alignments[pair] = {kind: align(left, right, kind) for kind in MATCH_KINDS}
        return self._alignments[pair]

    def refuse_invalid(self, runs: Sequence[RunData]) -> None:
        """Raises RefusedError for a run with a flag that invalidates it, unless these are accepted."""
        if not self._accept_invalid:
            refuse_invalid(runs)

    def release(self) -> None:
        """Free the launches of runs on which no selection was made."""
        self.keep_only(self.selected)

    def keep_only(self, run_ids: Collection[str]) -> None:
        """Free the launches of all runs except these."""
        self._held.keep_only(run_ids)
        self._alignments.clear()


@dataclass(frozen=True)
class DeviceRuns:
    """The runs of one workload on one kind of GPU, in the order of the campaign."""

    workload: str
    device_kind: str
    runs: tuple[RunData, ...]

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


def same_repeat(runs: Sequence[RunData], others: Sequence[RunData]) -> tuple[RunData, RunData] | None:
    """The first of the runs that has the same repeat as one of the others, and that one; else the first of
    each; None without others."""
    by_repeat = {run.repeat: run for run in others}
    for run in runs:
        if run.repeat in by_repeat:
            return run, by_repeat[run.repeat]
    return (runs[0], others[0]) if others else None


def devices_of(runs: Sequence[RunData]) -> list[DeviceRuns]:
    """The runs of one workload by kind of GPU, in the order of the campaign."""
    kinds: dict[str, list[RunData]] = {}
    for run in runs:
        kinds.setdefault(run.device_kind, []).append(run)
    return [DeviceRuns(members[0].workload, kind, tuple(members)) for kind, members in kinds.items()]


def rest_on(entry: Compared, runs: Sequence[RunData], held: HeldPairs) -> None:
    """Name an entry's runs and their flags; raises RefusedError if one is invalid."""
    rows.rest_on(entry, runs)
    held.refuse_invalid(runs)


def match_facts(alignments: Mapping[MatchKind, Alignment], kind: MatchKind, between: str) -> Match:
    """The matched percentages by every kind, and the kind that counts."""
    percents = {each: alignment.match_percent for each, alignment in alignments.items()}
    return Match(
        percent=percents[kind],
        kind=kind,
        between=between,
        exact=percents["exact"],
        name_block=percents["name_block"],
        position=percents["position"],
        # The search gives up on very different recordings, so more of their launches may match.
        at_least=[each for each, alignment in alignments.items() if alignment.lower_bound],
    )
