"""The summary of a report: for each workload and GPU the facts that a reader asks for first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay_server.analysis.rows import Row


def summarise(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One entry for each workload, GPU and condition, in the order of the rows.

    It is about the first method, in the campaign's order, that gave numbers there; where none did, about
    the first that was refused or failed, so that the summary shows what stands in the way.
    """
    cells: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = (row["workload"], row["device"], *row["condition"].values())
        cells.setdefault(key, []).append(row)
    return [_entry(min(members, key=_rank)) for members in cells.values()]


def _rank(row: Row) -> int:
    return {"ok": 0, "refused": 1, "failed": 1, "not applicable": 2}[row["status"]]


def _entry(row: Row) -> dict[str, Any]:
    match, model, unknown = (row[what] or {} for what in ("match", "model", "unknown"))
    return {
        **{name: row[name] for name in (
            "workload", "device", "condition", "method", "status", "reason", "selected_on", "launches",
            "kernels", "groups", "error_percent", "group_error_percent", "speedup",
        )},
        "cost_quantity": (row["cost"] or {}).get("quantity"),
        "match_percent": match.get("percent"),
        "match_kind": match.get("kind"),
        "model": model.get("chosen"),
        **{name: model.get(name) for name in (
            "chronological_accuracy_percent", "chronological_balanced_accuracy_percent",
            "grouped_accuracy_percent", "grouped_balanced_accuracy_percent",
            "agreement_percent", "ambiguous_percent",
        )},
        "unknown_launches": unknown.get("launches"),
        "unknown_percent": unknown.get("percent"),
        "flags": sorted({flag["name"] for flag in row["flags"]}),
    }  # fmt: skip
