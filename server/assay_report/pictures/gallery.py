"""The pictures of each part of a report with their names; page and Markdown show the same ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from assay_report.model.drawn import Drawn
from assay_report.model.report import Report
from assay_report.model.scores import Row
from assay_report.pictures.bars import (
    difference_bars,
    error_against_speedup,
    error_bars,
    predicted_against_true,
)
from assay_report.pictures.launch_pictures import by_launch, group_composition
from assay_report.pictures.overview import error_and_speedup
from assay_report.texts import condition_text

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_UNITS = {"ns": "time", "cycle": "cycles", "cycles": "cycles"}


@dataclass(frozen=True)
class Picture:
    """``name``: its file's name without the suffix; ``title``: what it shows; ``svg``: the picture."""

    name: str
    title: str
    svg: str


def mark(report: Report) -> str:
    """The mark behind every title where no silicon produced the data."""
    return " (synthetic)" if report.campaign.synthetic else ""


def summary_pictures(report: Report) -> Iterator[Picture]:
    """Pictures of the whole campaign."""
    title = f"Error and speedup by workload and GPU{mark(report)}"
    yield Picture("overview", title, error_and_speedup(title, report.summary))
    title = f"Error against speedup{mark(report)}"
    yield Picture("error-against-speedup", title, error_against_speedup(title, report.rows))


def compared_pictures(report: Report) -> Iterator[Picture]:
    """Pictures of runs that are compared with one another."""
    if report.sm_share:
        title = f"Speedup of all SMs over a share{mark(report)}"
        yield Picture("sm-shares", title, predicted_against_true(title, report.sm_share))
    if report.cold_start:
        title = f"Caches flushed between launches{mark(report)}"
        yield Picture("flushed-caches", title, difference_bars(title, report.cold_start))


def workload_pictures(report: Report, workload: str, rows: Sequence[Row]) -> Iterator[Picture]:
    """One workload's errors, and for each selection its groups' kernels and its launches in order."""
    title = f"Error by GPU and method: {workload}{mark(report)}"
    yield Picture(_name(workload, "error"), title, error_bars(title, rows))
    # Reports of earlier releases have no ``drawn`` part.
    drawn = report.drawn
    where = {row.selection: row.selected_on.device for row in rows if row.selection and row.selected_on}
    keys = [key for key in where if key in drawn]
    grouped: list[str] = []
    for key in keys:
        found = drawn[key].composition
        if found is None or len(found.groups) < 2:
            continue
        grouped.append(key)
        title = f"Kernels in the groups of {key} on {_where(where[key], drawn[key])}{mark(report)}"
        cost = drawn[key].cost
        kind = _UNITS.get(cost.unit, cost.quantity)
        yield Picture(_name(key, "groups"), title, group_composition(title, found, kind))
    for key in grouped or keys[:1]:
        entry = drawn[key].by_launch
        if entry is not None:
            title = f"{entry.quantity} by launch, {key} on {_where(where[key], drawn[key])}{mark(report)}"
            yield Picture(_name(key, "launches"), title, by_launch(title, entry))


def _where(device: str, entry: Drawn) -> str:
    return f"{device} ({condition_text(entry.condition)})"


def _name(*parts: str) -> str:
    """A file's name from a campaign's texts, which may hold any character."""
    return "-".join(_NOT_IN_A_NAME.sub("-", part).strip("-.")[:60] or "x" for part in parts).lower()
