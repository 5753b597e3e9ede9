"""What the parts of an analysis that compare runs share: a GPU's runs by condition, and entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay_sampling.alignment import Alignment, MatchKind
from assay_sampling.identity import RunLevel
from assay_sampling.launch_table import Condition
from assay_sampling.launches import Launches
from assay_sampling.selection import Selection
from assay_server.analysis import rows
from assay_server.analysis.request import RunData
from assay_server.analysis.rows import LaunchFacts

Entry = dict[str, Any]


@dataclass
class Compared:
    """Entries of a report, by what is compared: each of its parts is a list of them."""

    sm_share: list[Entry] = field(default_factory=list)
    cold_start: list[Entry] = field(default_factory=list)
    locked_clock: list[Entry] = field(default_factory=list)
    noise: list[Entry] = field(default_factory=list)
    overhead: list[Entry] = field(default_factory=list)
    sequences: list[Entry] = field(default_factory=list)

    def parts(self) -> dict[str, list[Entry]]:
        """The entries by their keys in the report."""
        return {
            "sm_share": self.sm_share,
            "cold_start": self.cold_start,
            "locked_clock": self.locked_clock,
            "noise": self.noise,
            "overhead": self.overhead,
            "sequences": self.sequences,
        }

    def add(self, other: Compared) -> None:
        """Take over the entries of another workload."""
        for name, entries in self.parts().items():
            entries.extend(other.parts()[name])


@dataclass(frozen=True)
class MadeSelection:
    """A selection of the workload, its key in the report, and the run that it was made on."""

    method: str
    key: str
    selection: Selection
    whole: RunData


@dataclass(frozen=True)
class HeldPairs:
    """Access to runs while they are compared: launches, alignments by every kind, flags, counts.

    ``release`` lets go of the launches that no selection was made on.
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
        found = [
            run
            for run in self.runs
            if (run.level, run.condition, run.under_mps) == (level, condition, under_mps)
        ]
        return sorted(found, key=lambda run: run.repeat)

    def groups(self, level: RunLevel) -> Iterator[list[RunData]]:
        """Repeats of one another at a level, by repeat; groups in the order of the campaign."""
        kinds = dict.fromkeys((run.condition, run.under_mps) for run in self.runs if run.level == level)
        for condition, under_mps in kinds:
            yield self.of(level, condition, under_mps=under_mps)


def devices_of(runs: Sequence[RunData]) -> list[DeviceRuns]:
    """The runs of one workload by kind of GPU, in the order of the campaign."""
    kinds: dict[str, list[RunData]] = {}
    for run in runs:
        kinds.setdefault(run.device_kind, []).append(run)
    return [DeviceRuns(found[0].workload, kind, tuple(found)) for kind, found in kinds.items()]


def empty_entry(device: DeviceRuns, condition: Condition) -> Entry:
    """An entry with its identity; :func:`assay_server.analysis.rows.fail` works on it as on a row."""
    return {
        "workload": device.workload,
        "device": device.device_kind,
        "condition": condition.to_dict(),
        "status": "ok",
        "reason": "",
        "flags": [],
        "runs": [],
    }


def rest_on(entry: Entry, runs: Sequence[RunData], held: HeldPairs) -> None:
    """Name the runs that an entry rests on with their flags; raises RefusedError for one that is invalid."""
    rows.rest_on(entry, runs)
    held.refuse_invalid(runs)


def flag(entry: Entry, run: RunData, name: str, detail: str) -> None:
    """Say something that a reader of the entry must know."""
    entry["flags"].append({"run_id": run.run_id, "name": name, "detail": detail, "invalidates": False})


def match_facts(alignments: Mapping[MatchKind, Alignment], kind: MatchKind, between: str) -> dict[str, Any]:
    """How much matches by every kind, and which of them counts."""
    percents = {str(each): alignment.match_percent for each, alignment in alignments.items()}
    # Very different recordings are not searched to the end: more of their launches may match.
    at_least = [str(each) for each, alignment in alignments.items() if alignment.lower_bound]
    return {"percent": percents[kind], "kind": kind, "between": between, **percents, "at_least": at_least}
