"""Which pictures a report has, in which part and under which name: page and Markdown show the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay_server.report.launch_pictures import by_launch, group_composition
from assay_server.report.naming import condition_text
from assay_server.report.overview import error_and_speedup
from assay_server.report.pictures import (
    difference_bars,
    error_against_speedup,
    error_bars,
    predicted_against_true,
)

Report = Mapping[str, Any]
Row = Mapping[str, Any]

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_UNITS = {"ns": "time", "cycle": "cycles", "cycles": "cycles"}


@dataclass(frozen=True)
class Picture:
    """``name``: what its file is called, without the suffix; ``title``: what it shows; ``svg``: itself."""

    name: str
    title: str
    svg: str


def mark(report: Report) -> str:
    """What stands behind every title of data that no silicon produced."""
    return " (synthetic)" if report["campaign"]["synthetic"] else ""


def summary_pictures(report: Report) -> Iterator[Picture]:
    """Of the whole campaign."""
    title = f"Error and speedup by workload and GPU{mark(report)}"
    yield Picture("overview", title, error_and_speedup(title, report["summary"]))
    title = f"Error against speedup{mark(report)}"
    yield Picture("error-against-speedup", title, error_against_speedup(title, report["rows"]))


def compared_pictures(report: Report) -> Iterator[Picture]:
    """Of runs that are compared with one another."""
    if report.get("sm_share"):
        title = f"Speedup of all SMs over a share{mark(report)}"
        yield Picture("sm-shares", title, predicted_against_true(title, report["sm_share"]))
    if report.get("cold_start"):
        title = f"Caches flushed between launches{mark(report)}"
        yield Picture("flushed-caches", title, difference_bars(title, report["cold_start"]))


def workload_pictures(report: Report, workload: str, rows: Sequence[Row]) -> Iterator[Picture]:
    """Of one workload: its errors, and of each selection with groups what is in them, launch by launch."""
    title = f"Error by GPU and method: {workload}{mark(report)}"
    yield Picture(_name(workload, "error"), title, error_bars(title, rows))
    # A report of before has no numbers for the others.
    drawn = report.get("drawn", {})
    where = {row["selection"]: row["selected_on"]["device"] for row in rows if row["selection"]}
    keys = [key for key in where if key in drawn]
    grouped = [key for key in keys if _has_groups(drawn[key])]
    for key in grouped:
        title = f"Kernels in the groups of {key} on {_where(where[key], drawn[key])}{mark(report)}"
        cost = drawn[key]["cost"]
        kind = _UNITS.get(cost["unit"], str(cost["quantity"]))
        yield Picture(_name(key, "groups"), title, group_composition(title, drawn[key]["composition"], kind))
    for key in grouped or keys[:1]:
        entry = drawn[key]["by_launch"]
        if entry is not None:
            title = f"{entry['quantity']} by launch, {key} on {_where(where[key], drawn[key])}{mark(report)}"
            yield Picture(_name(key, "launches"), title, by_launch(title, entry))


def _has_groups(entry: Row) -> bool:
    return entry["composition"] is not None and len(entry["composition"]["groups"]) > 1


def _where(device: str, entry: Row) -> str:
    return f"{device} ({condition_text(entry['condition'])})"


def _name(*parts: str) -> str:
    """A file's name from texts of a campaign, which may hold anything."""
    return "-".join(_NOT_IN_A_NAME.sub("-", part).strip("-.")[:60] or "x" for part in parts).lower()
