"""Shared by the comparisons of runs: a GPU's runs by condition, and facts of entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from assay_report.model.common import Match
from assay_report.model.compared import Compared
from assay_sampling.launches.alignment import Alignment, MatchKind
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import Condition
from assay_sampling.running.identity import RunLevel
from assay_sampling.scoring.by_operation import SelectedCalls
from assay_sampling.scoring.selection import Selection
from assay_server.analysis import rows
from assay_server.analysis.rows import LaunchFacts
from assay_server.analysis.runs.request import RunData


@dataclass(frozen=True)
class MadeSelection:
    """A selection of the workload, its key in the report, and the run that it was made on.

    ``selection`` is by launch; ``calls`` has what it was made from, if the workload's unit is the operation.
    """

    method: str
    key: str
    selection: Selection
    whole: RunData
    calls: SelectedCalls | None = None


@dataclass(frozen=True)
class HeldPairs:
    """Access to runs during comparisons: launches, alignments by every kind, flags, counts.

    ``release`` frees the launches of runs on which no selection was made.
    """

    launches: Callable[[RunData], Launches]
    aligned: Callable[[RunData, RunData], Mapping[MatchKind, Alignment]]
    refuse_invalid: Callable[[Sequence[RunData]], None]
    facts: Callable[[RunData], LaunchFacts]
    release: Callable[[], None]


@dataclass(frozen=True)
class DeviceRuns:
    """The runs of one workload on one kind of GPU, in the order of the campaign."""

    workload: str
    device_kind: str
    runs: tuple[RunData, ...]

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
