"""Tables of runs that are compared: SM shares, caches, clocks, repeats, profilers, launch sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from assay_report.model.common import Outcome
from assay_report.model.compared import (
    ColdStartEntry,
    LockedClockEntry,
    NoiseEntry,
    OverheadEntry,
    Prediction,
    SelectionDifference,
    SequenceEntry,
    SmShareEntry,
)
from assay_report.model.report import Report
from assay_report.tables import shared_columns as shared
from assay_report.tables.table import Cell, Filled, Table, Width, filled, names, numbers, sentences, table_of
from assay_report.texts import (
    ABSENT,
    count,
    match_percent,
    match_text,
    percent,
    quantity,
    ratio,
    share_kind,
    shortened,
)
from assay_sampling.documents.common import NoteEntry

Comparison = TypeVar("Comparison", SmShareEntry, ColdStartEntry)
Part = TypeVar("Part", Prediction, SelectionDifference)


@dataclass(frozen=True)
class _Line(Generic[Comparison, Part]):
    """A comparison with what one selection shows of it; None where there is no selection."""

    entry: Comparison
    each: Part | None

    @property
    def outcome(self) -> Outcome:
        return self.entry if self.entry.status != "ok" or self.each is None else self.each


def compared_tables(report: Report) -> list[Table]:
    """The tables for which this report has entries."""
    shares = [_Line(entry, each) for entry in report.sm_share for each in entry.predictions or (None,)]
    flushed = [_Line(entry, each) for entry in report.cold_start for each in entry.selections or (None,)]
    return filled(
        table_of("SM shares", _SM_SHARES, shares, [_OF_SM_SHARES]),
        table_of("Flushed caches", _COLD_STARTS, flushed, [_OF_COLD_STARTS]),
        table_of("Locked clocks", _LOCKED_CLOCKS, report.locked_clock, [_OF_LOCKED_CLOCKS]),
        table_of("Noise over repeats", _NOISE, report.noise, [_OF_NOISE]),
        table_of("Overhead of profilers", _OVERHEAD, report.overhead, [_OF_OVERHEAD]),
        table_of("Launch sequences that differ", _SEQUENCES, report.sequences, [_OF_SEQUENCES]),
    )


_SM_SHARES: list[Filled[_Line[SmShareEntry, Prediction]]] = [
    shared.workload(lambda line: line.entry),
    shared.gpu(lambda line: line.entry),
    shared.condition(lambda line: line.entry),
    numbers("SM", lambda line: _share(line.entry), "%"),
    names("SMs", lambda line: _sms(line.entry)),
    numbers("speedup of all SMs, true", lambda line: ratio(line.entry.speedup_true)),
    names("method", lambda line: ABSENT if line.each is None else line.each.method),
    numbers("predicted", lambda line: ratio(line.each.speedup_predicted if line.each else None)),
    numbers("its error", lambda line: percent(line.each.speedup_error_percent if line.each else None), "%"),
    numbers("error at the share", lambda line: percent(line.each.error_percent if line.each else None), "%"),
    shared.status(lambda line: line.outcome),
    numbers("match", lambda line: match_percent(line.entry.match.percent if line.entry.match else None), "%"),
    names("every match / %", lambda line: match_text(line.entry.match), width=Width.WIDE),
    shared.flags(lambda line: line.entry.flags),
]
_OF_SM_SHARES = (
    "Speedup of all SMs: time at the share / time at 100 %, of the same launches, light level; "
    "predicted: the same for the representatives' times x their weights. Both runs are under the same "
    "kind of MPS daemon. With clock none it is not the ratio of SM cycles."
)


def _share(entry: SmShareEntry) -> str:
    share = entry.sm_percent
    return ABSENT if share is None else f"{share:g}{share_kind(entry.sm_share)}"


def _sms(entry: SmShareEntry) -> str:
    if entry.effective_sms is None or entry.all_sms is None:
        return ABSENT
    return f"{entry.effective_sms:,} of {entry.all_sms:,}"


_COLD_STARTS: list[Filled[_Line[ColdStartEntry, SelectionDifference]]] = [
    shared.workload(lambda line: line.entry),
    shared.gpu(lambda line: line.entry),
    shared.condition(lambda line: line.entry),
    numbers("launches", lambda line: count(line.entry.launches)),
    numbers("difference", lambda line: percent(line.entry.weighted_difference_percent), "%"),
    numbers("median", lambda line: percent(line.entry.median_difference_percent), "%"),
    numbers("worst", lambda line: percent(getattr(line.entry.worst, "difference_percent", None)), "%"),
    names("worst launch", lambda line: _worst(line.entry), clips=True),
    names("instructions moved / %", lambda line: _moved(line.entry), width=Width.WIDE),
    names("method", lambda line: ABSENT if line.each is None else line.each.method),
    numbers("by representatives",
            lambda line: percent(getattr(line.each, "weighted_difference_percent", None)), "%"),
    numbers("error if they start cold", lambda line: _cold(line.each, "representatives", "cold_start"), "%",
            optional=True),
    numbers("of it cold start", lambda line: _cold(line.each, "cold_start"), "points", optional=True),
    names("representatives in the window", lambda line: _inside(line.each), width=Width.WIDE),
    shared.status(lambda line: line.outcome),
    names("cost", lambda line: line.entry.quantity or ABSENT, shared=True),
    names("match / %", lambda line: match_text(line.entry.match), width=Width.WIDE),
    shared.flags(lambda line: line.entry.flags),
]  # fmt: skip
_OF_COLD_STARTS = (
    "Difference: 100 x the sum of |flushed - warm| / the sum of warm, over the window's launches; by "
    "representatives: the same under a selection's weights. Instructions moved: share of the "
    "instructions in launches whose IPC differs by at least 5, 10, 15, 20 %."
)


def _worst(entry: ColdStartEntry) -> str:
    return ABSENT if entry.worst is None else f"{entry.worst.launch:,} {entry.worst.kernel}"


def _moved(entry: ColdStartEntry) -> str:
    return ", ".join(percent(each.share_percent) for each in entry.instruction_shares or ()) or ABSENT


def _cold(each: SelectionDifference | None, *parts: str) -> str:
    """The sum of these parts of the error of a selection whose representatives start cold."""
    if each is None or each.started_cold is None:
        return ABSENT
    return percent(sum(getattr(each.started_cold, part) or 0.0 for part in parts), signed=True)


def _inside(each: SelectionDifference | None) -> str:
    if each is None or each.representatives_in_window is None:
        return ABSENT
    return f"{each.representatives_in_window:,} of {count(each.representatives)}"


_LOCKED_CLOCKS: list[Filled[LockedClockEntry]] = [
    shared.workload(lambda entry: entry),
    shared.gpu(lambda entry: entry),
    shared.condition(lambda entry: entry),
    names("locked", lambda entry: {True: "yes", False: "no"}.get(bool(entry.clock_locked), ABSENT)),
    numbers("launches", lambda entry: count(entry.launches)),
    numbers("time, locked / free", lambda entry: ratio(entry.duration_ratio, 3)),
    numbers("window", lambda entry: count(entry.window_launches)),
    numbers("cycles, locked / free", lambda entry: ratio(entry.cycles_ratio, 3)),
    numbers("SM clock", lambda entry: quantity(entry.clock_mhz), "MHz"),
    numbers("free", lambda entry: quantity(entry.clock_mhz_free), "MHz"),
    shared.status(lambda entry: entry),
    sentences("notes", lambda entry: _notes(entry.notes), optional=True),
    names("cost", lambda entry: entry.quantity or ABSENT, width=Width.WIDE),
    names("match / %", lambda entry: match_text(entry.match), width=Width.WIDE),
    shared.flags(lambda entry: entry.flags),
]
_OF_LOCKED_CLOCKS = (
    "Time: of the light runs, locked / free. Cycles: of the window, locked / free; a workload whose "
    "cycles stay the same does not wait for memory. SM clock: of the window. Times and cycles are "
    "separate costs; neither is computed from the other."
)


def _notes(notes: list[NoteEntry]) -> str:
    return "; ".join(note.text for note in notes) or ABSENT


_NOISE: list[Filled[NoiseEntry]] = [
    shared.workload(lambda entry: entry),
    shared.gpu(lambda entry: entry),
    names("level", lambda entry: entry.level),
    shared.condition(lambda entry: entry),
    numbers("repeats", lambda entry: count(entry.repeats)),
    numbers("standard deviation", lambda entry: percent(entry.relative_standard_deviation_percent), "%"),
    numbers("interval", lambda entry: percent(entry.interval_percent), "%", width=Width.WIDE),
    numbers("mean total", lambda entry: quantity(entry.mean_total), width=Width.WIDE),
    names("cost", lambda entry: entry.quantity or ABSENT),
    shared.status(lambda entry: entry),
    sentences("notes", lambda entry: _notes(entry.notes), optional=True),
    shared.flags(lambda entry: entry.flags),
]
_OF_NOISE = (
    "Standard deviation: of the totals over repeats (n - 1), relative to their mean. Interval: half "
    "the width of the 95 % confidence interval of the mean, by Student's t."
)


_OVERHEAD: list[Filled[OverheadEntry]] = [
    shared.workload(lambda entry: entry),
    shared.gpu(lambda entry: entry),
    names("level", lambda entry: entry.level),
    shared.condition(lambda entry: entry),
    numbers("executions", lambda entry: f"{entry.executions:g}", width=Width.WIDE),
    numbers("bare", lambda entry: quantity(entry.bare_wall_seconds), "s"),
    numbers("profiled", lambda entry: quantity(entry.wall_seconds), "s"),
    numbers("overhead", lambda entry: percent(entry.overhead_percent), "%"),
    numbers("GPU busy overhead", lambda entry: percent(entry.busy_overhead_percent), "%", width=Width.WIDE),
    shared.status(lambda entry: entry),
    shared.flags(lambda entry: entry.flags),
]
_OF_OVERHEAD = (
    "Wall time of one execution of the command without and with the profiler, its start and report "
    "included; a detailed run has one execution per slice. GPU busy: the same for the driver's "
    "utilisation over time, an estimate."
)


def _first_difference(entry: SequenceEntry) -> Cell:
    """The first launch in which two runs differ, and what each launches there."""
    first = entry.first_difference
    if first is None:
        return Cell(ABSENT)
    where = f"launch {first.launch:,} of process {first.process}"
    brief = f"{shortened(first.run)} instead of {shortened(first.reference)}"
    return Cell(f"{where}: {first.run} instead of {first.reference}", f"{where}: {brief}")


_SEQUENCES: list[Filled[SequenceEntry]] = [
    shared.workload(lambda entry: entry),
    shared.gpu(lambda entry: entry),
    names("level", lambda entry: entry.level),
    shared.condition(lambda entry: entry),
    names("run", lambda entry: entry.run),
    names("compared with", lambda entry: entry.reference),
    numbers("launches", lambda entry: count(entry.launches)),
    numbers("launches there", lambda entry: count(entry.reference_launches)),
    numbers("differing", lambda entry: count(entry.differing)),
    names("first difference", _first_difference),
    shared.status(lambda entry: entry),
    shared.flags(lambda entry: entry.flags),
]
_OF_SEQUENCES = "Launches that differ in kernel, grid or block at the same place, or that one run lacks."
