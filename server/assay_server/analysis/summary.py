"""The summary of a report: for each workload and GPU the facts that a reader asks for first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay_sampling.launch_table import BASELINE
from assay_server.analysis.compared import Compared
from assay_server.analysis.rows import Row


def summarise(rows: Sequence[Row], compared: Compared | None = None) -> list[dict[str, Any]]:
    """One entry for each workload, GPU and condition, in the order of the rows.

    It is about the first method, in the campaign's order, that gave numbers there; where none did, about
    the first that was refused or failed, so that the summary shows what stands in the way. SM shares and
    flushed caches stand at the baseline that they are compared with, with that method's prediction;
    where no run is compared in the whole report, no entry has their keys.
    """
    cells: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = (row["workload"], row["device"], *row["condition"].values())
        cells.setdefault(key, []).append(row)
    found = [_entry(min(members, key=_rank)) for members in cells.values()]
    for entry in found if compared else ():
        _add_compared(entry, compared or Compared())
    return found


def _add_compared(entry: dict[str, Any], compared: Compared) -> None:
    if compared.sm_share:
        entry["sm_share"] = [_share(each, entry) for each in compared.sm_share if _is_about(each, entry)]
    if compared.cold_start:
        of_entry = [each for each in compared.cold_start if _is_about(each, entry)]
        first = of_entry[0] if of_entry else {"weighted_difference_percent": None, "selections": []}
        chosen = _of_method(first["selections"], entry)
        entry["flushed_difference_percent"] = first["weighted_difference_percent"]
        entry["flushed_difference_of_selection_percent"] = chosen.get("weighted_difference_percent")


def _is_about(each: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Whether an entry of another condition is compared with this one's: only cache and SM share differ."""
    if (each["workload"], each["device"]) != (entry["workload"], entry["device"]):
        return False
    condition = entry["condition"]
    baseline = (condition["cache"], condition["sm_percent"]) == (BASELINE.cache, BASELINE.sm_percent)
    return baseline and each["condition"]["clock"] == condition["clock"]


def _share(each: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    chosen = _of_method(each["predictions"], entry)
    return {
        "sm_percent": each["sm_percent"],
        "sm_share": each["sm_share"],
        "effective_sms": each["effective_sms"],
        "speedup_true": each["speedup_true"],
        "speedup_predicted": chosen.get("speedup_predicted"),
    }


def _of_method(parts: Sequence[Mapping[str, Any]], entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part about the selection that the summary's entry is about."""
    return next((part for part in parts if part["selection"] == entry["selection"]), {})


def _rank(row: Row) -> int:
    return {"ok": 0, "refused": 1, "failed": 1, "not applicable": 2}[row["status"]]


def _entry(row: Row) -> dict[str, Any]:
    match, model, unknown = (row[what] or {} for what in ("match", "model", "unknown"))
    return {
        **{name: row[name] for name in (
            "workload", "device", "condition", "method", "selection", "status", "reason", "selected_on",
            "launches",
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
