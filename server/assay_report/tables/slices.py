"""Tables of the slices that were chosen from a light run."""

from __future__ import annotations

from collections.abc import Sequence

from assay_report.model.report import Report
from assay_report.model.slices import ChosenSlicesEntry, SliceEntry
from assay_report.tables.table import Filled, Table, names, numbers, table_of
from assay_report.texts import count, percent

_SLICES_SHOWN = 20
_ENDINGS = {
    "unseen": "little enough is unseen",
    "budget": "the time budget is spent",
    "slices": "a run has as many slices as it may have",
}

_SLICES: list[Filled[tuple[int, SliceEntry]]] = [
    numbers("slice", lambda entry: count(entry[0])),
    numbers("from launch", lambda entry: count(entry[1].first_launch)),
    numbers("launches", lambda entry: count(entry[1].launches)),
    numbers("new light time", lambda entry: percent(entry[1].new_time_percent), "%"),
    numbers("unseen after it", lambda entry: percent(entry[1].unseen_time_percent), "%"),
    numbers("expected", lambda entry: f"{entry[1].expected_seconds:,.1f}", "s"),
    names("measured", lambda entry: "yes" if entry[1].measured else "no"),
]
_SUMMARY: list[Filled[ChosenSlicesEntry]] = [
    names("workload", lambda entry: entry.workload, clips=True),
    names("GPU", lambda entry: entry.device, clips=True),
    numbers("slices measured", lambda entry: count(sum(piece.measured for piece in entry.slices))),
    numbers("of", lambda entry: count(len(entry.slices))),
    numbers("launches", lambda entry: count(sum(p.launches for p in entry.slices if p.measured))),
    numbers("unseen", lambda entry: percent(entry.unseen_time_percent), "%"),
    numbers("may stay unseen", lambda entry: percent(entry.most_unseen_time_percent), "%"),
    names("no more because", lambda entry: _ENDINGS[entry.ending]),
]


def slices_tables(report: Report, workload: str) -> list[Table]:
    """For each GPU of a workload, the slices in the order in which they were measured, and why."""
    return [_table(entry) for entry in report.chosen_slices if entry.workload == workload]


def slices_summary(entries: Sequence[ChosenSlicesEntry]) -> Table | None:
    """How many slices each workload took on each GPU, and what they leave unseen."""
    if not entries:
        return None
    note = "Slices of launches with counters, chosen from the light run by the unseen time that each brings."
    return table_of("Slices chosen from the light run", _SUMMARY, entries, [note])


def _table(entry: ChosenSlicesEntry) -> Table:
    cost = entry.cost
    notes = [
        f"Chosen from {entry.light_run} ({entry.launches:,} launches): each time the slice of the most new "
        f"light time per second, until {_ENDINGS[entry.ending]}.",
        f"By the model, in {len(entry.runs)} runs together: {cost.start_seconds:g} s to start, "
        f"{1e3 * cost.skipped_launch_seconds:.3g} ms a skipped launch, "
        f"{1e3 * cost.profiled_launch_seconds:.3g} ms a profiled launch.",
    ]
    if len(entry.slices) > _SLICES_SHOWN:
        notes.append(f"The first {_SLICES_SHOWN} of {len(entry.slices):,} slices; JSON has all.")
    shown = list(enumerate(entry.slices[:_SLICES_SHOWN], start=1))
    return table_of(f"Slices chosen for {entry.workload} on {entry.device}", _SLICES, shown, notes)
