"""The table of what the numbers rest on: GPU, driver, tools, libraries and days, by workload and GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_server.report.naming import ABSENT
from assay_server.report.tables import Table, columns_of, flags_text, without_empty

Report = Mapping[str, Any]
Entry = Mapping[str, Any]

_MOST_LIBRARIES = 24


def provenance_table(report: Report) -> Table | None:
    """None in a report of an earlier release, which does not say it."""
    body = tuple(
        (
            entry["workload"], entry["device"], ", ".join(entry["gpus"]) or ABSENT,
            ", ".join(entry["drivers"]) or ABSENT, tools_text(entry), libraries_text(entry),
            measured_text(entry), flags_text(entry["flags"]),
        )
        for entry in report.get("provenance", ())
    )  # fmt: skip
    if not body:
        return None
    columns = columns_of(
        "workload", "GPU", "GPU's name", "driver", "~tools", "~libraries", "measured", "~flags"
    )
    note = (
        "Tools with the levels that they measured; libraries that the workload had loaded, without those of "
        "the profilers. What differs between runs that are compared is flagged."
    )
    return Table("What the numbers rest on", *without_empty(columns, body, "driver", "flags"), note)


def tools_text(entry: Entry) -> str:
    """Each tool with its release and levels."""
    return ", ".join(
        f"{tool['name']} {tool['version'] or '(release not known)'} ({', '.join(tool['levels'])})"
        for tool in entry["tools"]
    ) or ABSENT  # fmt: skip


def libraries_text(entry: Entry) -> str:
    """The first libraries with their versions, and what must be known about them."""
    found = entry["libraries"]
    said = [f"{each['name']} {' and '.join(each['versions'])}" for each in found[:_MOST_LIBRARIES]]
    if len(found) > _MOST_LIBRARIES:
        said.append(f"{len(found) - _MOST_LIBRARIES:,} more")
    return "; ".join([*([", ".join(said)] if said else []), *entry["library_notes"]]) or ABSENT


def measured_text(entry: Entry) -> str:
    """The day or days of measuring; virtual GPUs measure nothing."""
    days = entry["measured_on"]
    if days is None:
        return "synthetic" if entry["synthetic"] else ABSENT
    return days["first"] if days["first"] == days["last"] else f"{days['first']} to {days['last']}"
