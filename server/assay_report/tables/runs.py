"""Tables of runs: what they were measured with, their hashes and flags, which runs failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay_report.model.common import FlagEntry
from assay_report.model.report import Report
from assay_report.model.runs import FailedRunEntry, ProvenanceEntry, RunEntry
from assay_report.tables import shared_columns as shared
from assay_report.tables.table import Cell, Filled, Table, names, numbers, sentences, table_of
from assay_report.texts import ABSENT, assumed, count, text

_MOST_LIBRARIES = 24


@dataclass(frozen=True)
class _Resting:
    """Workloads of a GPU that share everything but the name; ``everywhere``: workloads in the report."""

    entries: tuple[ProvenanceEntry, ...]
    everywhere: int

    @property
    def entry(self) -> ProvenanceEntry:
        return self.entries[0]

    @property
    def workload(self) -> Cell:
        names = ", ".join(entry.workload for entry in self.entries)
        return Cell(names, f"all {self.everywhere:,}" if self.everywhere == len(self.entries) > 1 else names)

    @property
    def flags(self) -> list[FlagEntry]:
        return [flag for entry in self.entries for flag in entry.flags]


_PROVENANCE: list[Filled[_Resting]] = [
    names("workload", lambda line: line.workload, clips=True),
    names("GPU", lambda line: line.entry.device, clips=True),
    names("GPU's name", lambda line: ", ".join(line.entry.gpus) or ABSENT, clips=True),
    names("driver", lambda line: ", ".join(line.entry.drivers) or ABSENT, optional=True),
    names("measured", lambda line: _measured(line.entry)),
    names("tools", lambda line: _tools(line.entry)),
    names("libraries", lambda line: _libraries(line.entry)),
    shared.flags(lambda line: line.flags),
]


def provenance_table(report: Report) -> Table:
    """What the numbers were measured with; workloads of a GPU without differences share a line."""
    grouped: dict[tuple[str, ...], list[ProvenanceEntry]] = {}
    for entry in report.provenance:
        grouped.setdefault(_what(entry), []).append(entry)
    everywhere = len({entry.workload for entry in report.provenance})
    lines = [_Resting(tuple(entries), everywhere) for entries in grouped.values()]
    note = (
        "Tools with the levels that they measured; libraries that the workload loaded, without those of the "
        "profilers. Differences between compared runs are flagged."
    )
    return table_of("What the numbers rest on", _PROVENANCE, lines, [note])


def _what(entry: ProvenanceEntry) -> tuple[str, ...]:
    return (
        entry.device, *entry.gpus, "|", *entry.drivers, _measured(entry), _tools(entry), _libraries(entry),
    )  # fmt: skip


def _tools(entry: ProvenanceEntry) -> str:
    """Each tool with its release and levels."""
    return ", ".join(
        f"{tool.name} {tool.version or '(release not known)'} ({', '.join(tool.levels)})"
        for tool in entry.tools
    ) or ABSENT  # fmt: skip


def _libraries(entry: ProvenanceEntry) -> str:
    """The first libraries with their versions, and the notes about them."""
    libraries = entry.libraries
    names = [f"{each.name} {' and '.join(each.versions)}" for each in libraries[:_MOST_LIBRARIES]]
    if len(libraries) > _MOST_LIBRARIES:
        names.append(f"{len(libraries) - _MOST_LIBRARIES:,} more")
    sent = [f"files of the submitter {sha256[:12]}" for sha256 in entry.bundles]
    compiled = [f"compile cache {each[:12]}" for each in entry.compile_caches]
    return (
        "; ".join([*([", ".join(names)] if names else []), *entry.library_notes, *sent, *compiled]) or ABSENT
    )


def _measured(entry: ProvenanceEntry) -> str:
    """The day or days of measuring; a dash for virtual GPUs, which measure nothing."""
    days = entry.measured_on
    if days is None:
        return "synthetic" if entry.synthetic else ABSENT
    return days.first if days.first == days.last else f"{days.first} to {days.last}"


_RUNS: list[Filled[RunEntry]] = [
    names("run", lambda run: run.run_id),
    names("workload", lambda run: run.workload),
    names("GPU", lambda run: run.device),
    names("level", lambda run: run.level),
    names(shared.CONDITION, lambda run: shared.condition_cell(run.condition, _behind(run))),
    numbers("launches", lambda run: count(run.launches)),
    names("data", lambda run: "synthetic" if run.synthetic else "measured"),
    names("content hash", lambda run: text(run.content_hash)),
    shared.flags(lambda run: run.flags),
]


def _behind(run: RunEntry) -> str:
    return f"{assumed(run.flags)}{', MPS' if run.under_mps else ''}"


def runs_table(runs: Sequence[RunEntry]) -> Table:
    """Every run with the hash of its records and its flags."""
    return table_of("Where the numbers come from", _RUNS, runs)


_FAILED: list[Filled[FailedRunEntry]] = [
    names("run", lambda run: run.run_id),
    names("workload", lambda run: text(run.workload)),
    names("GPU", lambda run: text(run.device)),
    names("level", lambda run: text(run.level)),
    names(shared.CONDITION, lambda run: shared.condition_cell(run.condition)),
    sentences("reason", lambda run: run.reason),
]


def failed_runs_table(runs: Sequence[FailedRunEntry]) -> Table:
    """Runs without data, and why they have none."""
    return table_of("Runs that failed", _FAILED, runs)
